"""Text towers: texts -> features that can be compared with those of an image network. They never learn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from remix.data import in_data_folder
from remix.networks.hf_folder import library, load_pretrained, own_name, quiet, read_config
from remix.networks.text_encoders import ClipTexts, Encoder, Sentences
from remix.networks.weights import check_numbers, read_weights

__all__ = ["TextTower", "open_text_tower"]

_TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt")
_KINDS = ("clip", "clip_text_model", "bert")


class TextTower(nn.Module):
    """Texts -> (N, F) features, as they are before they are brought to unit length.

    It is frozen, so copies of what has one share it.

    Args:
        encoder: of tokens.
        tokenizer: of the same folder.
        words: how many tokens the encoder knows.

    Raises:
        ValueError: if the tokenizer knows more words than the model.

    """

    def __init__(self, encoder: Encoder, tokenizer: Any, words: int) -> None:
        super().__init__()
        self.encoder, self._tokenizer = encoder.requires_grad_(False).eval(), tokenizer
        self.feature_dim, self.longest = encoder.feature_dim, encoder.longest
        if len(tokenizer) > words:
            raise ValueError(
                f"the tokenizer knows {len(tokenizer)} tokens, the text tower {words}: they belong to different models"
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> TextTower:
        return self

    def tokens(self, texts: Sequence[str], room: int = 0) -> tuple[Tensor, Tensor]:
        """Numbers of tokens (N, L) and which of them are real (N, L), on the tower's device.

        Args:
            texts: one at least.
            room: further tokens that each is to have room for.

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
        if int(lengths[worst]) + room > self.longest:
            beside = f" beside {room} of prompts" if room else ""
            raise ValueError(
                f"the text {texts[worst][:60]!r} has {int(lengths[worst])} tokens{beside}, and the text tower takes "
                f"{self.longest}: shorten the name or the template"
            )
        return found["input_ids"].to(device), mask

    def forward(self, texts: Sequence[str], adapters: Sequence[nn.Module] = ()) -> Tensor:
        """Features of texts, perhaps with an adapter in every layer. Raises as `tokens`."""
        numbers, mask = self.tokens(texts)
        return self.encoder.encode(self.encoder.embed(numbers), mask, adapters)


@lru_cache(maxsize=2)
def open_text_tower(place: str, projection: str | None = None) -> TextTower:
    """Read the text tower of a CLIP, or a sentence encoder with a projection; the same one if it is asked for again.

    Args:
        place: a folder as `transformers` saves it, tokenizer included, or the name of one on the hub.
        projection: of a sentence encoder: safetensors file with ``projection`` (D, F) and ``text_mean`` (D,).

    Raises:
        MissingPackageError: without `transformers`.
        FileNotFoundError: if there is no such folder or file.
        ValueError: if it is no such model, has no safetensors weights or no tokenizer.

    """
    place = in_data_folder(place)
    told = read_config(place, _KINDS)
    _check_tokenizer(place)
    if told.model_type == "bert":
        encoder: Encoder = _sentences(place, told, projection)
    else:
        if projection is not None:
            raise ValueError(f"{place} is a CLIP, which has a projection of its own: leave the projection out")
        encoder = _clip(place, told)
    words = getattr(told, "text_config", told).vocab_size
    return TextTower(encoder, _tokenizer(place, told.model_type), words)


def _check_tokenizer(place: str) -> None:
    folder = Path(place)
    if folder.is_dir() and not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ValueError(f"{place} has no tokenizer: tokenizer.json, or vocab.json and merges.txt, is missing")


def _tokenizer(place: str, kind: str) -> Any:
    module, name = ("bert", "BertTokenizer") if kind == "bert" else ("clip", "CLIPTokenizer")
    loader = getattr(library(f"transformers.models.{module}"), name)
    try:
        with quiet():
            return loader.from_pretrained(place, local_files_only=Path(place).is_dir())
    except Exception as error:  # the tokenizers library raises bare exceptions
        raise ValueError(f"the tokenizer of {place} cannot be read: {str(error)[:200]}") from error


def _clip(place: str, told: Any) -> ClipTexts:
    config = getattr(told, "text_config", told)
    if config is not told:
        config.projection_dim = told.projection_dim
    model, _ = load_pretrained(library("transformers.models.clip").CLIPTextModelWithProjection, place, config)
    tower, encoder = model.text_model, ClipTexts(config)
    parts = {
        "tokens": tower.embeddings.token_embedding,
        "positions": tower.embeddings.position_embedding,
        "norm": tower.final_layer_norm,
        "projection": model.text_projection,
    }
    state = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
    for number, layer in enumerate(tower.encoder.layers):
        state |= {f"layers.{number}.{own_name(key)}": value for key, value in layer.state_dict().items()}
    check_numbers(state)
    encoder.load_state_dict(state)
    return encoder


def _sentences(place: str, config: Any, projection: str | None) -> Sentences:
    if projection is None:
        raise ValueError(
            f"{place} is a sentence encoder, which knows nothing of images: give the projection of its vectors to the "
            "features of the image network (network.text.projection)"
        )
    held = read_weights(in_data_folder(projection))
    missing = [key for key in ("projection", "text_mean") if key not in held]
    if missing:
        raise ValueError(f"{projection} holds no tensor {missing[0]!r}, as a projection of texts does")
    model, _ = load_pretrained(library("transformers.models.bert").BertModel, place, config, "pooler.")
    check_numbers({**model.state_dict(), **held})
    with torch.no_grad():
        return Sentences(model, held["projection"], held["text_mean"])
