"""Vision transformers in blocks: ViT, DeiT, DINOv2 and the image tower of CLIP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from remix.data import CLIP, IMAGENET, Normalisation
from remix.networks.adapters import plug_in
from remix.networks.backbone import Backbone, Block
from remix.networks.hooks import Point
from remix.networks.prompts import CodaPrompts, VisualPrompts
from remix.networks.registry import register_backbone
from remix.networks.transformer_layer import TransformerLayer
from remix.networks.views import CHANNELS, View, as_view

__all__ = ["KINDS", "Kind", "Transformer", "architecture"]

_NUMBERS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "mlp_ratio", "image_size",
    "patch_size", "num_channels", "projection_dim",
)  # fmt: skip
_OTHERS = {"hidden_act": str, "layer_norm_eps": float, "qkv_bias": bool, "use_swiglu_ffn": bool}
_BASE = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 224, "num_channels": 3,
    "qkv_bias": True, "use_swiglu_ffn": False,
}  # fmt: skip
_SETTINGS = (*_NUMBERS, *_OTHERS)
_MOST_LAYERS, _LARGEST = 200, 1 << 16  # a model file must not choose what building its network costs


class Kind(NamedTuple):
    """A kind of transformer.

    Attributes:
        module: of `transformers` that defines it.
        name: that its classes begin with.
        patch: pixels of a side of a patch, where a config does not say.
        activation: of its MLPs, likewise.
        eps: of its norms, likewise.
        tokens: that stand before those of the patches; the first is the CLS token.
        first_norm: whether tokens are normalised before the first layer.
        scaled: whether branches of layers have factors.
        normalisation: of its images where a folder does not say.

    """

    module: str
    name: str
    patch: int = 16
    activation: str = "gelu"
    eps: float = 1e-12
    tokens: int = 1
    first_norm: bool = False
    scaled: bool = False
    normalisation: Normalisation = IMAGENET


KINDS = {
    "vit": Kind("vit", "ViT", normalisation=Normalisation((0.5,) * 3, (0.5,) * 3)),
    "deit": Kind("deit", "DeiT", tokens=2),
    "dinov2": Kind("dinov2", "Dinov2", 14, eps=1e-6, scaled=True),
    "clip_vision_model": Kind("clip", "CLIP", 32, "quick_gelu", 1e-5, first_norm=True, normalisation=CLIP),
}
"""By ``model_type`` of a config.json."""


def architecture(config: Any) -> str:
    """What of a `transformers` config settles the network, as JSON text; dropout is left out."""
    chosen = {key: getattr(config, key) for key in _SETTINGS if hasattr(config, key)}
    return json.dumps({"model_type": config.model_type, **chosen})


@register_backbone("transformer")
class Transformer(Backbone):
    """A vision transformer: patch embedding, tokens with positions, layers, last norm of the CLS token.

    Block 0 gives maps (N, D, H / patch, W / patch), the following tokens (N, L, D), the last the pooled feature (N, F).
    Images of any size that patches fit into are taken: positions are interpolated.

    Attributes:
        adapter: the name of what is plugged in, or None.

    Args:
        config: JSON text with ``model_type`` and settings of that kind, see `architecture`.
        input_shape: (C, H, W) of one image; by default that of the config.
        view: how tokens are read where statistics are taken: token-positions as published, or token-channels.
        adapter: what alone learns, one of `ADAPTERS`; without one, everything learns.

    Raises:
        ValueError: for a kind that is not known, settings that do not fit, or images that patches do not fit into.

    """

    def __init__(
        self,
        config: str = '{"model_type": "vit"}',
        *,
        input_shape: tuple[int, int, int] | None = None,
        view: str = "token-positions",
        adapter: str | None = None,
    ) -> None:
        told = _settings(config)
        kind = KINDS[told["model_type"]]
        width, patch, grid = told["hidden_size"], told["patch_size"], told["image_size"] // told["patch_size"]
        shape = input_shape or (told["num_channels"], grid * patch, grid * patch)
        super().__init__(shape, told.get("projection_dim", width))
        self.patch, self.kind, self.view = patch, kind, as_view(view)
        _check_size(*self.input_shape[1:], patch)
        eps = told["layer_norm_eps"]
        self.patches = nn.Conv2d(told["num_channels"], width, patch, patch, bias=kind.module != "clip")
        self.pre = _Tokens(kind.tokens, grid, width, eps if kind.first_norm else None)
        self.layers = nn.ModuleList(
            TransformerLayer(
                width, told["num_attention_heads"], told["intermediate_size"], told["hidden_act"], eps,
                bias=told["qkv_bias"], scaled=kind.scaled, gated=told["use_swiglu_ffn"],
            )
            for _ in range(told["num_hidden_layers"])
        )  # fmt: skip
        self.post = _Last(width, eps, told.get("projection_dim"))
        self.adapter = adapter
        if adapter is not None:
            plug_in(adapter, self._layers(), width)
        if adapter == "prompts":
            self.pre.prompts = VisualPrompts(width)
        if adapter == "coda":
            self.pre.query = self._query

    def blocks(self) -> list[Block]:
        """Return the patch embedding, the tokens, every layer and the last norm."""
        layers = [Block(f"layers.{number}", layer, self.view) for number, layer in enumerate(self.layers)]
        return [
            Block("patches", self.patches),
            Block("pre", self.pre, CHANNELS),
            *layers,
            Block("post", self.post, self.view),
        ]

    def trainable(self, start: int = 0) -> list[nn.Module]:
        """Adapters from block ``start`` on, if there are any; else blocks."""
        blocks = super().trainable(start)
        if self.adapter is None:
            return blocks
        found = [part for block in blocks for name, part in block.named_children() if name in ("adapter", "prompts")]
        return [part for part in found if next(part.parameters(), None) is not None]

    def _layers(self) -> list[TransformerLayer]:
        return [layer for layer in self.layers if isinstance(layer, TransformerLayer)]

    def begin_task(self, task: int) -> None:
        """Pools of prompts bring in their next part."""
        for module in self.modules():
            if isinstance(module, CodaPrompts):
                module.begin_task(task)

    @torch.no_grad()
    def _query(self, tokens: Tensor) -> Tensor:
        """What the CLS token (N, 1, D) comes to without prompts."""
        for layer in self._layers():
            tokens = layer.bare(tokens)
        return self.post.norm.forward(tokens[:, :1])

    def watched(self, start: int = 0) -> list[tuple[Point, View]]:
        """The inputs of blocks, and of the attention and the MLP of every layer."""
        inside = [
            (Point(f"layers.{number}.{part}", "input"), self.view)
            for number in range(max(start - 2, 0), len(self.layers))
            for part in ("attention", "mlp")
        ]
        return [*self.block_inputs(start), *inside]

    def features(self, x: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """See `Backbone.features`. Raises ValueError also for images that patches do not fit into."""
        if not start and x.dim() == 4:
            _check_size(x.shape[2], x.shape[3], self.patch)
        return super().features(x, start, stop)


class _Tokens(nn.Module):
    """Maps (N, D, h, w) -> tokens (N, L, D): flattened, behind the CLS token, with positions, perhaps normalised.

    Attributes:
        prompts: tokens that come behind, if any.
        query: gives a token that comes last, if any.

    """

    def __init__(self, tokens: int, grid: int, width: int, eps: float | None) -> None:
        super().__init__()
        self.tokens = nn.Parameter(0.02 * torch.randn(1, tokens, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, tokens + grid * grid, width))
        self.norm = nn.Identity() if eps is None else nn.LayerNorm(width, eps=eps)
        self.grid = grid
        self.prompts: VisualPrompts | None = None
        self.query: Callable[[Tensor], Tensor] | None = None

    def forward(self, maps: Tensor) -> Tensor:
        """Run the step."""
        tokens = torch.cat([self.tokens.expand(len(maps), -1, -1), maps.flatten(2).mT], 1)
        result: Tensor = self.norm(tokens + self._positions(maps.shape[2], maps.shape[3]))
        if self.prompts is not None:
            result = self.prompts(result)
        return result if self.query is None else torch.cat([result, self.query(result)], 1)

    def _positions(self, height: int, width: int) -> Tensor:
        """Those of another size are interpolated."""
        if height == width == self.grid:
            return self.positions
        own, patches = self.positions.split([self.tokens.shape[1], self.grid * self.grid], 1)
        grid = patches.mT.unflatten(2, (self.grid, self.grid))
        return torch.cat([own, interpolate(grid, (height, width), mode="bicubic").flatten(2).mT], 1)


class _Last(nn.Module):
    """The last norm of the CLS token, and CLIP's projection: (N, L, D) -> (N, F)."""

    def __init__(self, width: int, eps: float, features: int | None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=eps)
        self.projection = nn.Identity() if features is None else nn.Linear(width, features, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Run the step."""
        result: Tensor = self.projection(self.norm(tokens[:, 0]))
        return result


def _check_size(height: int, width: int, patch: int) -> None:
    if height % patch or width % patch or not height or not width:
        near = max(1, round(height / patch)) * patch
        raise ValueError(
            f"images of {height} x {width} pixels cannot be cut into patches of {patch} x {patch}: choose a multiple "
            f"of {patch}, such as {near}"
        )


def _settings(text: str) -> dict[str, Any]:
    """A config that was checked: a model file may come from anywhere."""
    try:
        settings: Any = json.loads(text)
    except (ValueError, TypeError) as error:
        raise ValueError(f"the config of a transformer is no JSON text: {str(text)[:60]!r}") from error
    if not isinstance(settings, Mapping) or settings.get("model_type") not in KINDS:
        raise ValueError(f"the config of a transformer must name a model_type: {', '.join(KINDS)}")
    if unknown := settings.keys() - {"model_type", *_SETTINGS}:
        raise ValueError(f"the config of a transformer has no {min(unknown)[:60]!r}")
    kind = KINDS[settings["model_type"]]
    found: dict[str, Any] = {
        **_BASE,
        "patch_size": kind.patch,
        "hidden_act": kind.activation,
        "layer_norm_eps": kind.eps,
    }
    found |= settings
    if "intermediate_size" not in found:
        found["intermediate_size"] = found["hidden_size"] * found.get("mlp_ratio", 4)
    for key in (one for one in _NUMBERS if one in found):
        most = _MOST_LAYERS if key == "num_hidden_layers" else _LARGEST
        if type(found[key]) is not int or not 1 <= found[key] <= most:
            raise ValueError(f"{key} of a transformer must be a number from 1 to {most}, got {str(found[key])[:60]}")
    for key, kinds in _OTHERS.items():
        if not isinstance(found[key], kinds):
            raise ValueError(f"{key} of a transformer is no {kinds.__name__}: {str(found[key])[:60]}")
    if found["image_size"] < found["patch_size"]:
        raise ValueError(f"a transformer's patches of {found['patch_size']} pixels do not fit into its images")
    return found
