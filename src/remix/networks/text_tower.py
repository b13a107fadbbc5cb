"""The text tower of a CLIP: texts -> features that can be compared with those of its image tower."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from remix.networks.hf_folder import library, load_pretrained, quiet, read_config
from remix.networks.weights import check_numbers

__all__ = ["TextTower", "open_text_tower"]

_TOKENIZERS = ("tokenizer.json", "vocab.json")


class TextTower(nn.Module):
    """Texts -> (N, F) features, as they are before they are brought to unit length.

    Args:
        model: a ``CLIPTextModelWithProjection``.
        tokenizer: of the same folder.

    Raises:
        ValueError: if the tokenizer knows more words than the model.

    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__()
        self.model, self._tokenizer = model, tokenizer
        self.feature_dim: int = model.config.projection_dim
        self.longest: int = model.config.max_position_embeddings
        if len(tokenizer) > model.config.vocab_size:
            raise ValueError(
                f"the tokenizer knows {len(tokenizer)} tokens, the text tower {model.config.vocab_size}: they belong "
                "to different models"
            )

    @property
    def layers(self) -> nn.ModuleList:
        """Its transformer blocks."""
        found: nn.ModuleList = self.model.text_model.encoder.layers
        return found

    def tokens(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Numbers of tokens (N, L) and which of them are real (N, L), on the tower's device.

        Raises:
            ValueError: for no text at all, or one of more tokens than the tower takes.

        """
        if not texts or isinstance(texts, str):
            raise ValueError("give a list of texts, one at least")
        found = self._tokenizer(list(texts), padding=True, return_tensors="pt")
        device = next(self.parameters()).device
        mask: Tensor = found["attention_mask"].to(device)
        lengths = mask.sum(1)
        worst = int(lengths.argmax())
        if int(lengths[worst]) > self.longest:
            raise ValueError(
                f"the text {texts[worst][:60]!r} has {int(lengths[worst])} tokens, and the text tower takes "
                f"{self.longest}: shorten the name or the template"
            )
        return found["input_ids"].to(device), mask

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Features of texts. Raises as `tokens`."""
        numbers, mask = self.tokens(texts)
        features: Tensor = self.model(input_ids=numbers, attention_mask=mask).text_embeds
        return features


def open_text_tower(place: str) -> TextTower:
    """Read the text tower of a CLIP, in eval mode.

    Args:
        place: a folder as `transformers` saves it, tokenizer included, or the name of one on the hub.

    Raises:
        MissingPackageError: without `transformers`.
        FileNotFoundError: if there is no such folder.
        ValueError: if it is no CLIP, has no safetensors weights or no tokenizer.

    """
    told = read_config(place, ("clip", "clip_text_model"))
    config = getattr(told, "text_config", told)
    if config is not told:
        config.projection_dim = told.projection_dim
    folder = Path(place)
    if folder.is_dir() and not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ValueError(f"{place} has no tokenizer: tokenizer.json, or vocab.json and merges.txt, is missing")
    models = library("transformers.models.clip")
    try:
        with quiet():
            tokenizer = models.CLIPTokenizer.from_pretrained(place, local_files_only=folder.is_dir())
    except Exception as error:  # the tokenizers library raises bare exceptions
        raise ValueError(f"the tokenizer of {place} cannot be read: {str(error)[:200]}") from error
    model, _ = load_pretrained(models.CLIPTextModelWithProjection, place, config)
    check_numbers(model.state_dict())
    return TextTower(model.eval(), tokenizer)
