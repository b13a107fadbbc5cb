"""A head whose classes are known by their names: cosines between image features and those of texts about each class."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from remix.networks.adapters import MoEAdapter
from remix.networks.heads import Head, checked_sizes, register_head
from remix.networks.text_tower import TextTower, open_text_tower

__all__ = ["TEMPLATE", "TextHead", "spoken"]

TEMPLATE = "a photo of a {}."
_MOST = {"layers": 200, "width": 1 << 16}  # a model file must not choose what its head costs


def spoken(name: str) -> str:
    """The name of a class as it is written in a text: ``001.Black_footed_Albatross`` is a Black footed Albatross."""
    plain = re.sub(r"^\d+\.", "", name.strip()).replace("_", " ")
    return " ".join(plain.split()) or name


@register_head("text")
class TextHead(Head):
    """Logits are ``scale`` times the cosines between features and the texts of classes, so it grows by names alone.

    The vector of a class is the mean of the features of its texts, one for every template, each of unit length. They
    are kept, so that classes can be told apart without the tower; that is opened again where classes are to be added.

    Attributes:
        adapters: of the layers of the tower, which learn; none for texts that stay as they are.
        names: of the classes of every task.

    Args:
        feature_dim: length of a pooled feature.
        place: of the tower, see `open_text_tower`; None for a head that cannot grow.
        projection: the same.
        templates: texts with a ``{}`` for the name of a class.
        adapted: whether the layers of the tower get adapters.

    Raises:
        ValueError: for templates without their place for a name, or a tower of other features or without adapters.

    """

    counts = (".draws",)

    def __init__(
        self,
        feature_dim: int,
        *,
        place: str | None = None,
        projection: str | None = None,
        templates: Sequence[str] = (TEMPLATE,),
        adapted: bool = False,
    ) -> None:
        super().__init__(feature_dim)
        self.place, self.projection, self.templates = place, projection, tuple(templates)
        if not templates or any(text.count("{}") != 1 for text in templates):
            raise ValueError(f"a template is a text with one {{}} for the name of a class, such as {TEMPLATE!r}")
        self.names: list[tuple[str, ...]] = []
        self.scale: Tensor
        self.register_buffer("scale", torch.tensor(100.0))
        self.adapters = nn.ModuleList()
        self._stale = False  # whether the adapters learned since the vectors were made
        self.register_state_dict_pre_hook(lambda head, *_: head._refresh())
        if place is not None:
            encoder = self._tower().encoder
            self.scale.fill_(encoder.scale)
            if encoder.feature_dim != feature_dim:
                raise ValueError(
                    f"the text tower gives features of length {encoder.feature_dim}, the image network of length "
                    f"{feature_dim}: they do not belong together"
                )
            if adapted and not encoder.adapted:
                raise ValueError(f"{place} is a sentence encoder: its texts stay as they are, without adapters")
            self.adapters.extend(MoEAdapter(encoder.width) for _ in range(encoder.adapted if adapted else 0))

    def _tower(self) -> TextTower:
        if self.place is None:
            raise ValueError(
                "this head has no text tower: give its folder (network.text.tower of remix run), or another head"
            )
        return open_text_tower(self.place.removeprefix("hf:"), self.projection).to(self._placement.device)

    # --- classes ---

    @property
    def task_sizes(self) -> tuple[int, ...]:
        """Number of classes of each task, in order."""
        return tuple(map(len, self.names))

    def check_names(self, names: Sequence[str]) -> None:
        """Whether classes of these names can be added one day.

        Raises:
            ValueError: for two whose texts are the same, or one too long for the tower.

        """
        known: dict[str, str] = {}
        for name in (*(name for task in self.names for name in task), *names):
            said = spoken(name).lower()
            if said in known:
                raise ValueError(f"the classes {known[said]!r} and {name!r} have one text, {said!r}: rename one")
            known[said] = name
        self._tower().tokens(self._texts(names), self._room)

    _room = 0  # tokens beside those of a text

    def grow(self, names: Sequence[str], *, generator: torch.Generator | None = None) -> None:
        """Add classes by their names. Raises ValueError as `check_names`."""
        if not names:
            raise ValueError("a task needs at least one class, got none")
        self.check_names(names)
        with torch.no_grad():
            vectors = self._of(names)
        self.register_buffer(f"vectors_{len(self.names)}", vectors)
        self.names.append(tuple(names))
        if generator is not None and len(self.names) == 1:  # adapters begin as the seed of a run says
            self._draw(generator)

    def newest(self) -> nn.Module:
        """The adapters, which all classes share."""
        return self.adapters

    def start_over(self, *, generator: torch.Generator | None = None) -> None:
        """Forget what adapters learned."""
        for adapter in self._adapters():
            adapter.load_state_dict(MoEAdapter(len(adapter.router)).to(self._placement).state_dict())
        if generator is not None:
            self._draw(generator)
        self._stale = bool(self.adapters)

    def _adapters(self) -> list[MoEAdapter]:
        return [adapter for adapter in self.adapters if isinstance(adapter, MoEAdapter)]

    @torch.no_grad()
    def _draw(self, generator: torch.Generator) -> None:
        for adapter in self._adapters():
            bound = adapter.down.shape[2] ** -0.5
            drawn = torch.rand(adapter.down.shape, generator=generator, device=generator.device)
            adapter.down.copy_((2 * drawn - 1) * bound)
            adapter.draws.copy_(torch.randint(1 << 31, (), generator=generator, device=generator.device))

    # --- vectors ---

    def _texts(self, names: Sequence[str]) -> list[str]:
        """By class, then by template."""
        return [template.replace("{}", spoken(name)) for name in names for template in self.templates]

    def _of(self, names: Sequence[str]) -> Tensor:
        """Vectors (K, F) of unit length."""
        features = normalize(self._tower()(self._texts(names), list(self.adapters)))
        return normalize(features.unflatten(0, (len(names), -1)).mean(1))

    def vectors(self, first: int = 0) -> Tensor:
        """Of all classes from ``first`` on, (K, F), of unit length. They have gradients while the adapters learn."""
        if self._learning():
            self._stale = True
            return self._of([name for task in self.names for name in task][first:])
        self._refresh()
        return torch.cat([getattr(self, f"vectors_{task}") for task in range(len(self.names))])[first:]

    def _learning(self) -> bool:
        return torch.is_grad_enabled() and any(one.requires_grad for one in self.adapters.parameters())

    @torch.no_grad()
    def _refresh(self) -> None:
        if not self._stale:
            return
        modes = self.adapters.training
        self.adapters.eval()
        for task, names in enumerate(self.names):
            getattr(self, f"vectors_{task}").copy_(self._of(names))
        self.adapters.train(modes)
        self._stale = False

    def scores(self, features: Tensor, vectors: Tensor) -> Tensor:
        """Logits (N, K) of features (N, F) for vectors (K, F)."""
        return self.scale * linear(normalize(features), vectors)

    def forward(self, features: Tensor) -> Tensor:
        """Pooled features (N, feature_dim) -> logits (N, classes). Raises RuntimeError without classes."""
        if not self.names:
            raise RuntimeError("the head has no classes yet: call grow(names) first")
        return self.scores(features, self.vectors())

    # --- files ---

    def describe(self) -> dict[str, Any]:
        """Names, templates and where the tower is; adapters by their number and width."""
        adapters = self._adapters()
        adapted = {"layers": len(adapters), "width": len(adapters[0].router)} if adapters else None
        return {
            "kind": self.kind, "tasks": list(self.task_sizes), "names": [list(task) for task in self.names],
            "templates": list(self.templates), "tower": self.place, "projection": self.projection, "adapters": adapted,
        }  # fmt: skip

    @classmethod
    def from_description(cls, feature_dim: int, described: Mapping[str, Any]) -> TextHead:
        """Build it again; the tower is opened when it is needed."""
        layers, width = _checked(described)
        head = cls(feature_dim, templates=described["templates"])
        head.place, head.projection = described["tower"], described["projection"]
        head.adapters.extend(MoEAdapter(width) for _ in range(layers))
        for task, names in enumerate(described["names"]):
            head.names.append(tuple(names))
            head.register_buffer(f"vectors_{task}", torch.zeros(len(names), feature_dim))
        return head

    @classmethod
    def shapes(cls, feature_dim: int, described: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Of vectors, scale and adapters."""
        layers, width = _checked(described)
        found: dict[str, tuple[int, ...]] = {"scale": ()}
        found |= {f"vectors_{task}": (len(names), feature_dim) for task, names in enumerate(described["names"])}
        if layers:
            with torch.device("meta"):
                one = MoEAdapter(width).state_dict()
            found |= {f"adapters.{i}.{key}": tuple(value.shape) for i in range(layers) for key, value in one.items()}
        return found

    def plain(self) -> nn.Module:
        """Vectors alone."""
        self._refresh()
        described = {**self.describe(), "tower": None, "adapters": None}
        head = TextHead.from_description(self.feature_dim, described)
        own = self.state_dict()
        head.load_state_dict({key: own[key] for key in head.state_dict()})
        return head


def _checked(described: Mapping[str, Any]) -> tuple[int, int]:
    """Layers and width of the adapters of a description. Raises ValueError, KeyError."""
    sizes, names, adapters = checked_sizes(described), described["names"], described["adapters"]
    texts = [*described["templates"], *(name for task in names for name in task)]
    places = [described[key] for key in ("tower", "projection")]
    fits = [len(task) for task in names] == sizes and all(isinstance(text, str) for text in texts)
    if not fits or not all(place is None or isinstance(place, str) for place in places):
        raise ValueError(f"its head is described as {str(dict(described))[:60]}")
    if adapters is None:
        return 0, 1
    for key, most in _MOST.items():
        if type(adapters[key]) is not int or not 1 <= adapters[key] <= most:
            raise ValueError(f"the adapters of its head are described as {str(adapters)[:60]}")
    return adapters["layers"], adapters["width"]
