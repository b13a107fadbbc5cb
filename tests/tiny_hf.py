"""Small transformers of random weights in folders, as the `transformers` library saves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

_SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
VISION_KINDS = ("vit", "deit", "dinov2", "dinov2-swiglu", "clip")
_LETTERS = "abcdefghijklmnopqrstuvwxyz."
WORDS = ("<|startoftext|>", "<|endoftext|>", *_LETTERS, *(letter + "</w>" for letter in _LETTERS))


def make(kind: str) -> Any:
    """A model; every weight is drawn anew, so that nothing is left at zero or one."""
    if kind in ("vit", "deit"):
        family = {"vit": "ViT", "deit": "DeiT"}[kind]
        config = getattr(transformers, f"{family}Config")(**_SIZES, intermediate_size=32, num_labels=4)
        model = getattr(transformers, f"{family}ForImageClassification")(config)
    elif kind.startswith("dinov2"):
        swiglu = kind.endswith("swiglu")
        model = transformers.Dinov2Model(transformers.Dinov2Config(**_SIZES, mlp_ratio=2, use_swiglu_ffn=swiglu))
    else:
        text = {"vocab_size": len(WORDS), "hidden_size": 12, "intermediate_size": 24, "num_hidden_layers": 2}
        text |= {"num_attention_heads": 2, "max_position_embeddings": 20, "bos_token_id": 0, "eos_token_id": 1}
        model = transformers.CLIPModel(
            transformers.CLIPConfig(
                text_config=text, vision_config={**_SIZES, "intermediate_size": 32}, projection_dim=10
            )
        )
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def save(model: Any, folder: Path, **processor: Any) -> Path:
    """Save a model, with a preprocessor_config.json if anything is given for it."""
    model.save_pretrained(folder)
    if processor:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def save_tokenizer(folder: Path) -> None:
    """Beside a CLIP: a tokenizer of letters."""
    words = {word: number for number, word in enumerate(WORDS)}
    transformers.CLIPTokenizer(vocab=words, merges=[]).save_pretrained(folder)


@torch.no_grad()
def features(model: Any, images: torch.Tensor) -> torch.Tensor:
    """What `transformers` itself makes of images: the CLS token after the last norm, or CLIP's image_embeds."""
    if isinstance(model, transformers.CLIPModel):
        return model.get_image_features(pixel_values=images, interpolate_pos_encoding=True).pooler_output
    if isinstance(model, transformers.Dinov2Model):
        return model(pixel_values=images).pooler_output
    return model.base_model(pixel_values=images, interpolate_pos_encoding=True).last_hidden_state[:, 0]


def save_clip(folder: Path) -> Any:
    """A CLIP with its tokenizer."""
    model = make("clip")
    save(model, folder)
    save_tokenizer(folder)
    return model


def save_sentences(folder: Path, features: int) -> Any:
    """A sentence encoder with its tokenizer and, in projection.safetensors, a map to features of an image network."""
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        ".",
        *(prefix + a for a in _LETTERS for prefix in ("", "##")),
    ]
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=12, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertModel(config).eval()
    save(model, folder)
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    generator = torch.Generator().manual_seed(1)
    projection = torch.randn(12, features, generator=generator), 0.1 * torch.randn(12, generator=generator)
    save_file({"projection": projection[0], "text_mean": projection[1]}, folder / "projection.safetensors")
    return model
