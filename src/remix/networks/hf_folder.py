"""Models of the `transformers` library in a folder or on the hub: only safetensors is read, nothing is executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from safetensors import SafetensorError
from torch import Tensor, nn

from remix.data import DataError, Preprocessing, in_data_folder
from remix.networks.heads import LinearHead
from remix.networks.registry import register_backbone
from remix.networks.transformer import KINDS, Kind, Transformer, architecture
from remix.networks.weights import check_numbers
from remix.support.global_random import undisturbed

__all__ = [
    "ImageModel", "MissingPackageError", "from_folder", "library", "load_pretrained", "open_image_model", "own_name",
    "quiet", "read_config",
]  # fmt: skip

_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_RESAMPLE = ("bicubic", "bilinear", "lanczos")


# Parts of a layer of `transformers` by their names in `TransformerLayer`.
_LAYER = {
    "layernorm_before": "norm1", "layer_norm1": "norm1", "layernorm_after": "norm2", "layer_norm2": "norm2",
    "self_attn": "attention", "q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out",
    "out_proj": "out", "fc1": "up", "fc2": "down", "gate_proj": "gate", "up_proj": "up", "down_proj": "down",
    "layer_scale1": "scale1", "layer_scale2": "scale2",
}  # fmt: skip


class MissingPackageError(ValueError):
    """A package that is not installed, and what to type."""


def library(name: str) -> Any:
    """A module of `transformers`. Raises MissingPackageError without it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            "this network needs the transformers library: pip install 'remix-dfcil[vit]'"
        ) from error


class ImageModel(NamedTuple):
    """What a folder holds.

    Attributes:
        backbone: the image tower.
        options: of ``create_backbone("transformer", **options)``.
        preprocessing: of images.
        head: its classifier, if it has one on the CLS token.
        names: of that head's outputs.

    """

    backbone: Transformer
    options: dict[str, Any]
    preprocessing: Preprocessing
    head: LinearHead | None
    names: tuple[str, ...]


@register_backbone("hf:")
def from_folder(
    place: str,
    *,
    input_shape: tuple[int, int, int] | None = None,
    view: str = "token-positions",
    adapter: str | None = None,
) -> Transformer:
    """The backbone of ``hf:PATH_OR_NAME``. Arguments and errors are those of `open_image_model`."""
    return open_image_model(place, input_shape, view, adapter=adapter).backbone


@undisturbed()
def open_image_model(
    place: str,
    input_shape: tuple[int, int, int] | None = None,
    view: str = "token-positions",
    size: int | None = None,
    adapter: str | None = None,
    seed: int = 0,
) -> ImageModel:
    """Read a ViT, DeiT, DINOv2 or CLIP.

    Args:
        place: a folder as `transformers` saves it, here or in the data folder, or the name of one on the hub.
        input_shape: (C, H, W) of one image; by default what the folder prepares images to.
        view: see `Transformer`.
        size: side of square images, instead of ``input_shape``.
        adapter: see `Transformer`.
        seed: of the adapter's weights.

    Raises:
        MissingPackageError: without `transformers`.
        FileNotFoundError: if there is no such folder.
        ValueError: if it is no such model, has no safetensors weights, or weights that do not fit.

    """
    place = in_data_folder(place)
    told = read_config(place)
    config = getattr(told, "vision_config", told)
    if config is not told:
        config.projection_dim = told.projection_dim
    kind = KINDS[config.model_type]
    models = library(f"transformers.models.{kind.module}")
    if kind.module in ("vit", "deit"):
        loader, optional = f"{kind.name}ForImageClassification", "classifier."
    else:
        loader, optional = ("CLIPVisionModelWithProjection" if kind.module == "clip" else "Dinov2Model"), None
    model, missing = load_pretrained(getattr(models, loader), place, config, optional)
    prepared = _prepared(place, kind, config)
    side = size or prepared.size
    shape = input_shape or (config.num_channels, side, side)
    options: dict[str, Any] = {"config": architecture(config), "input_shape": tuple(shape), "view": view}
    if adapter is not None:
        options["adapter"] = adapter
    with undisturbed(seed):
        backbone = Transformer(**options)
    state = _state(kind, model)
    check_numbers(state)
    backbone.load_state_dict({**_own_adapters(backbone), **state})
    head = None
    if optional is not None and not missing and isinstance(model.classifier, nn.Linear):
        head = LinearHead(backbone.feature_dim, [model.classifier.out_features], bias=True)
        head.classifier(0).load_state_dict(model.classifier.state_dict())
    return ImageModel(backbone.eval(), options, prepared, head, () if head is None else _names(config.id2label))


def read_config(place: str, kinds: tuple[str, ...] = (*KINDS, "clip")) -> Any:
    """The config of a folder or a name on the hub; see `open_image_model`."""
    folder = _folder(place)
    auto = library("transformers").AutoConfig
    try:
        with quiet():
            config = auto.from_pretrained(place, local_files_only=folder is not None, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = "no folder here and no model of the hub" if folder is None else "no model"
        raise ValueError(f"{place} is {what} that can be read: {_first_line(error)}") from error
    if config.model_type not in kinds:
        known = "vit, deit, dinov2 and clip" if "vit" in kinds else "clip and bert"
        raise ValueError(f"{place} holds a model of the kind {config.model_type!r}; those that can be used are {known}")
    return config


def load_pretrained(loader: Any, place: str, config: Any, optional: str | None = None) -> tuple[Any, bool]:
    """A model of a class of `transformers` in float32, and whether weights that begin with ``optional`` are missing.

    Raises:
        ValueError: if other weights are missing or do not fit.

    """
    try:
        with quiet(), undisturbed():
            model, told = loader.from_pretrained(
                place, config=config, local_files_only=_folder(place) is not None, use_safetensors=True,
                dtype=torch.float32, output_loading_info=True,
            )  # fmt: skip
    except RuntimeError as error:  # its message points to a report that is not shown
        raise ValueError(f"the weights of {place} do not fit its config.json: they have other shapes") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise ValueError(f"the weights of {place} cannot be used: {_first_line(error)}") from error
    missing = sorted(told["missing_keys"])
    absent = [key for key in missing if optional is None or not key.startswith(optional)]
    if absent:
        raise ValueError(f"the weights of {place} do not fit its config.json: {absent[0]} is missing")
    return model, bool(missing)


def _folder(place: str) -> Path | None:
    """The folder that is meant, checked, or None for a name on the hub."""
    folder = Path(place)
    if not place:
        raise ValueError("hf: is followed by a transformers folder, or NAME/MODEL of the hub")
    if not folder.is_dir():
        if place.startswith((".", "/", "~")) or place.count("/") != 1:
            raise FileNotFoundError(
                f"there is no folder {place!r} here or in the data folder (REMIX_DATA): give a transformers folder, or "
                "NAME/MODEL of the hub"
            )
        return None
    if not (folder / "config.json").is_file():
        raise ValueError(f"{place} is no transformers folder: it has no config.json")
    if not any(folder.glob("*.safetensors")):
        if any(path for pattern in _PICKLED for path in folder.glob(pattern)):
            raise ValueError(
                f"{place} has pickled weights only, and reading those can run code: convert them where you trust them "
                "with model.save_pretrained(...), which writes model.safetensors"
            )
        raise ValueError(f"{place} has no weights: model.safetensors is missing")
    return folder


def _prepared(place: str, kind: Kind, config: Any) -> Preprocessing:
    """How images are made for it: preprocessor_config.json, or what is usual for its kind."""
    mixin = library("transformers.image_processing_base").ImageProcessingMixin
    try:
        with quiet():
            told: Any = mixin.get_image_processor_dict(place, local_files_only=_folder(place) is not None)[0]
    except (OSError, ValueError):
        told = {}
    usual, number = kind.normalisation, told.get("resample")
    names = {int(one): one.name.lower() for one in Image.Resampling}
    resample = names.get(number, "bicubic") if isinstance(number, int) else "bicubic"
    try:
        return Preprocessing(
            _side(told, config), config.num_channels, tuple(told.get("image_mean") or usual.mean),
            tuple(told.get("image_std") or usual.std), resample if resample in _RESAMPLE else "bicubic",
        )  # fmt: skip
    except (DataError, TypeError, ValueError) as error:
        raise ValueError(f"{place} prepares images in a way that cannot be used: {_first_line(error)}") from error


def _names(labels: Mapping[int, str]) -> tuple[str, ...]:
    """Of the head's outputs; those that several have get their number."""
    names = [str(name) for _, name in sorted(labels.items())]
    return tuple(name if names.count(name) == 1 else f"{name} {number}" for number, name in enumerate(names))


def _side(told: Mapping[str, Any], config: Any) -> int:
    """Pixels of a side: what is cropped to, else resized to, if patches fit in."""
    for key in ("crop_size", "size"):
        size = told.get(key)
        side = size.get("height", size.get("shortest_edge")) if isinstance(size, Mapping) else size
        if isinstance(side, int) and side > 0 and side % config.patch_size == 0:
            return side
    return int(config.image_size) // config.patch_size * config.patch_size


def _state(kind: Kind, model: Any) -> dict[str, Tensor]:
    """Weights by the names of `Transformer`."""
    if kind.module == "clip":
        tower, embeddings = model.vision_model, model.vision_model.embeddings
        tokens, positions = embeddings.class_embedding[None, None], embeddings.position_embedding.weight[None]
        parts = {
            "patches": embeddings.patch_embedding,
            "pre.norm": tower.pre_layrnorm,
            "post.norm": tower.post_layernorm,
        }
        parts["post.projection"] = model.visual_projection
        layers = tower.encoder.layers
    else:
        tower, embeddings = model.base_model, model.base_model.embeddings
        tokens, positions = embeddings.cls_token, embeddings.position_embeddings
        if kind.tokens == 2:
            tokens = torch.cat([tokens, embeddings.distillation_token], 1)
        parts = {"patches": embeddings.patch_embeddings.projection, "post.norm": tower.layernorm}
        layers = tower.encoder.layer if kind.module == "dinov2" else tower.layers
    state = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
    for number, layer in enumerate(layers):
        state |= {f"layers.{number}.{own_name(key)}": value for key, value in layer.state_dict().items()}
    return state | {"pre.tokens": tokens.detach(), "pre.positions": positions.detach()}


def _own_adapters(backbone: Transformer) -> dict[str, Tensor]:
    """Which no folder has."""
    parts = (".adapter.", ".prompts.")
    return {key: value for key, value in backbone.state_dict().items() if any(part in key for part in parts)}


def own_name(key: str) -> str:
    """A part of a layer of `transformers` by its name in `TransformerLayer`."""
    return ".".join(_LAYER.get(part, part) for part in key.removesuffix(".lambda1").split("."))


@contextmanager
def quiet() -> Iterator[None]:
    """Without the reports and progress bars of `transformers`."""
    talk, hub = library("transformers.utils.logging"), library("huggingface_hub.utils.logging")
    level, hub_level, bars = talk.get_verbosity(), hub.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity_error()
    hub.set_verbosity_error()
    talk.disable_progress_bar()
    try:
        yield
    finally:
        talk.set_verbosity(level)
        hub.set_verbosity(hub_level)
        if bars:
            talk.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
