"""How a step is learned: what a person asked for, and what the amount of data suggests for the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remix.data import Augment
from remix.inversion import LayerwiseSettings, PriorSettings, Schedule
from remix.learning import Method, Training
from remix.methods import create_method, list_methods, method_class
from remix.networks import Backbone, backbone_options
from remix.networks.probe import block_shapes

__all__ = [
    "LearnSettings", "Recipe", "auto_method", "check_step_method", "epochs_from_scratch", "frozen_blocks",
    "make_recipe", "step_methods", "usual_size",
]  # fmt: skip

_PHOTO_SIZE = 128  # pixels: a third of the work of 224, see docs/learn.md
_SMALL = 5000  # images: so few do not train the lower blocks of a network better than they are


_OF_TRAINING = ("freeze", "epochs", "lr", "samples", "versions", "patience", "prior")  # what an exact head has not


@dataclass(frozen=True)
class LearnSettings:
    """What a person may choose about learning; None means: by the data.

    Attributes:
        freeze: how many blocks from the first on never change; or the name of the first block that learns, "none", or
            "last-stage". Only in the first step; a model keeps it.
        epochs: most passes over the images for the network; the head alone has as many.
        lr: learning rate of the network.
        samples: pseudo-samples of every old class.
        size: side in pixels to which images are brought. Only in the first step.
        batch: images per step, and as many pseudo-samples.
        versions: of every image that go through frozen blocks; 1 for no augmentation.
        flip: whether images may be mirrored left to right; by default if they are in colour.
        holdout: fraction of the images kept apart, to choose the best epoch and to test; 0 for none. By default 0.2;
            0 where nothing is trained: an exact head is tested on every image, by a head without it.
        patience: epochs without a better one after which training stops.
        prior: kind of covariance that dreams are held to, such as laplace or dense; laplace by default.
        covariance: of the features, that the method lda keeps: auto, dense, laplace or diagonal.
        minimum: fewest images of a class that an exact head takes; 1 by default.
        removable: whether an exact head keeps the scatter of every class by itself, so that a class can be removed
            without a trace. Only in the first step; a model keeps it.
        similar_names: whether names of classes may differ in case or spaces only.
        seed: of everything random.

    Raises:
        ValueError: for numbers out of range.

    """

    freeze: int | str | None = None
    epochs: int | None = None
    lr: float | None = None
    samples: int | None = None
    size: int | None = None
    batch: int | None = None
    versions: int | None = None
    flip: bool | None = None
    holdout: float | None = None
    patience: int | None = None
    prior: str | None = None
    covariance: str | None = None
    minimum: int | None = None
    removable: bool = False
    similar_names: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "samples", "size", "batch", "versions", "patience", "minimum"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.lr is not None and not 0 < self.lr < 100:
            raise ValueError(f"lr must be above 0 and below 100, such as 0.01, got {self.lr}")
        if self.holdout is not None and not 0 <= self.holdout < 1:
            raise ValueError(f"holdout must be within 0 (nothing) and 1, got {self.holdout}")
        if self.prior is not None:
            PriorSettings(self.prior)  # raises for an unknown one
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")

    def changed(self, changes: Mapping[str, Any]) -> LearnSettings:
        """With other values of some. Raises ValueError for a setting that there is not."""
        known = list(LearnSettings.__dataclass_fields__)
        for key in changes:
            if key not in known:
                raise ValueError(f"there is no setting {key!r}; there are: {', '.join(known)}")
        return replace(self, **changes)

    def held_out(self, exact: bool = False) -> float:
        """The fraction to hold out, of a step in which an exact head is all that is learned, or of any other."""
        return self.holdout if self.holdout is not None else 0.0 if exact else 0.2


@dataclass(frozen=True)
class Recipe:
    """Everything that is settled about one step.

    Attributes:
        method: with its settings.
        batch: images per step.
        augment: of the images.
        versions: through a frozen trunk.
        adapt_batchnorm: whether BatchNorm statistics follow the data.
        patience: epochs without a better one after which a stage ends.

    """

    method: Method
    batch: int
    augment: Augment
    versions: int
    adapt_batchnorm: bool
    patience: int


def frozen_blocks(wanted: int | str | None, backbone: Backbone, trained: bool, images: int) -> int:
    """How many blocks to freeze.

    Args:
        wanted: see `LearnSettings`.
        backbone: the network.
        trained: whether it was trained before.
        images: to learn from.

    Raises:
        ValueError: for a number or name that does not fit the network.

    """
    names = [block.name for block in backbone.blocks()]
    if wanted is None:
        return len(names) - 1 if trained and images <= _SMALL else 0
    if wanted == "none":
        return 0
    if wanted == "last-stage":
        sizes = [shape[1:] for shape in block_shapes(backbone)[1:]]
        return next(number for number, size in enumerate(sizes) if size == sizes[-1])
    if isinstance(wanted, str) and wanted.isdigit():
        wanted = int(wanted)
    if isinstance(wanted, str):
        if wanted not in names:
            raise ValueError(
                f"there is no block {wanted!r} to begin learning at; there are: {', '.join(names)}; or none, last-stage"
            )
        return names.index(wanted)
    if not 0 <= wanted < len(names):
        raise ValueError(f"0 to {len(names) - 1} of the network's {len(names)} blocks can be frozen, got {wanted}")
    return wanted


def usual_size(name: str, options: Mapping[str, Any]) -> int | None:
    """Side of the images of a network by name: its own, None, but smaller for those made for photographs of 224."""
    usual: Any = backbone_options(name).get("input_shape")
    photographs = isinstance(usual, Sequence) and usual[1] == 224 and "input_shape" not in options
    return _PHOTO_SIZE if photographs else None


def auto_method(
    settings: LearnSettings, head: str = "linear", images: int = 0, features: int | None = None
) -> tuple[str, str]:
    """What the method auto comes to in a first step: its name, and why, unless images decide, which tell by themselves.

    A network without weights learns from the first classes and rests then, too, unless there are as many images as
    features: with fewer nothing tells how these drift, and drift was no better (docs/bench/learn.md).

    Args:
        settings: what was asked for.
        head: kind of head that was asked for.
        images: to learn from.
        features: that tell classes apart, of a network without weights that learns several; None otherwise.

    """
    asked = [name for name in _OF_TRAINING if getattr(settings, name) is not None] + ["head"] * (head != "linear")
    if asked:
        return "remix", f"auto chose remix, which trains: {asked[0]} (--{asked[0]}) is a setting of training"
    summed = settings.covariance is not None or settings.minimum is not None or settings.removable
    if features is not None and images >= features and not summed:
        return "drift", (
            f"auto chose drift, which goes on training: the network begins without weights, and {images} images are "
            f"enough to tell how its {features} features drift; --method lda rests after the first classes"
        )
    return "auto", ""


def make_recipe(
    method: str,
    settings: LearnSettings,
    *,
    trained: bool,
    frozen: int,
    channels: int,
    size: int,
    images: int,
    old_classes: int = 0,
    covariances: bool = True,
) -> Recipe:
    """Settle a step.

    Args:
        method: one of `step_methods`.
        settings: what was asked for.
        trained: whether the network came with weights.
        frozen: number of frozen blocks.
        channels, size: of the images.
        images: to learn from.
        old_classes: known before this step.
        covariances: whether the model's statistics hold those of the prior, or are yet to be measured.

    Raises:
        ValueError: for a method that cannot be used here.

    """
    if method not in step_methods():
        raise ValueError(
            f"the method {method!r} cannot extend a model step by step; there are: {', '.join(step_methods())}. "
            "Others can be compared with: remix run"
        )
    tuned = trained or frozen > 0
    batch = min(settings.batch or (32 if images <= _SMALL else 128), images)
    batches = math.ceil(images / batch)
    epochs = settings.epochs or (_passes(32, batches, 8, 20) if tuned else epochs_from_scratch(images))
    of_head = settings.epochs or (_passes(80, batches, 8, 40) if tuned else min(epochs, 8))
    lr = settings.lr or (0.004 if tuned else 0.05)
    flip = channels == 3 if settings.flip is None else settings.flip
    first = _falling(epochs, lr)
    wanted = {
        "covariance": settings.covariance, "minimum": settings.minimum, "removable": settings.removable or None,
    }  # fmt: skip
    if unused := [
        name for name, value in wanted.items() if value is not None and not hasattr(method_class(method), name)
    ]:
        raise ValueError(f"the method {method} has no {unused[0]} (--{unused[0]}): leave it out")
    if method in ("remix", "pmi"):
        kind = "none" if method == "pmi" else (settings.prior or "laplace") if covariances else "diagonal"
        chosen: dict[str, Any] = {
            "first": first,
            "head": Training(of_head, 10 * lr if tuned else 2 * lr),
            "last_block": Training(0, 0.0),
            "network": _falling(epochs, 0.5 * lr if tuned else 0.2 * lr),
            "balance": Training(of_head, 2.5 * lr if tuned else 0.4 * lr),
            "samples": (settings.samples or (30 if frozen else 40)) * max(old_classes, 1),
            "samples_per_task": 0,
            "spread": 1.5 if tuned else 1.0,
            "selection": False,  # selectors need more images than there are
            "follow": "shift",
            "bounded": True,
            "measure_augmented": False,
            "inversion": _inversion(frozen > 0, kind),
        }
    else:
        usual = {name: getattr(method_class(method), name, None) for name in ("first", "later")}
        chosen = {name: replace(first, clip=one.clip) for name, one in usual.items() if one is not None}
        chosen |= {name: value for name, value in wanted.items() if value is not None}
    made = create_method(method, **chosen)
    return Recipe(
        made.on_trained() if trained else made,
        batch,
        Augment(size // 8 if size > 8 else 1, flip),
        settings.versions or 3,
        adapt_batchnorm=not tuned,
        patience=settings.patience or max(4, epochs // 3),
    )


def step_methods() -> list[str]:
    """The methods that can go on from a model file."""
    return [name for name in list_methods() if method_class(name).by_steps]


def check_step_method(method: str) -> str:
    """The method, if it is among these. Raises ValueError."""
    known = step_methods()
    if method not in known:
        hint = ": learn all classes in one step for that" if method == "joint" else ""
        raise ValueError(f"method {method!r} cannot be used here{hint}; there are: {', '.join(known)}")
    return method


def _falling(epochs: int, lr: float) -> Training:
    """A rate that falls twice on the way, where there is room for it."""
    steps = tuple(dict.fromkeys(step for step in (round(epochs * 0.6), round(epochs * 0.85)) if 0 < step < epochs))
    return Training(epochs, lr, steps)


def _passes(steps: int, batches: int, least: int, most: int) -> int:
    """Epochs that make about so many steps."""
    return max(least, min(most, round(steps / batches)))


def epochs_from_scratch(images: int) -> int:
    """About as many steps whatever the number of images: 60 passes over a few hundred, 20 over ten thousand."""
    return max(20, min(60, round(60 * (500 / max(images, 1)) ** 0.37)))


def _inversion(at_the_cut: bool, kind: str) -> LayerwiseSettings:
    prior = PriorSettings(kind, "nll", 0.5)
    if at_the_cut:
        return LayerwiseSettings(Schedule(24, 0.3, milestones=(16,)), Schedule(1, 0.05), prior=prior)
    return LayerwiseSettings(Schedule(20, 0.8), Schedule(40, 0.4, warm_up=5, milestones=(20, 30)), prior=prior)
