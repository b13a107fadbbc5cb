"""What a person asks of a dream, and the settings of each strategy that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from remix.data import Preprocessing
from remix.inversion import (
    Augmentation,
    Form,
    GeneratorSettings,
    LayerwiseSettings,
    PixelSettings,
    PriorKind,
    PriorSettings,
    PyramidSettings,
    Scale,
    Schedule,
)

__all__ = ["STRATEGIES", "DreamOptions", "Settings", "Strategy", "settings_for"]

Strategy = Literal["layerwise", "pixels", "pyramid", "generator"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
Settings = LayerwiseSettings | PixelSettings | PyramidSettings | GeneratorSettings

# Weight of the prior where none is asked for.
_PRIOR_WEIGHT: dict[Strategy, float] = {"layerwise": 0.5, "pixels": 1.0, "pyramid": 5.0, "generator": 1.0}
_PYRAMID_STEPS = 80  # four images of 224 pixels from a ResNet-34 take a minute of one core; published: 2,000

# No rolling, as published for a ViT-B/16. Published are squares of statistics and variation, each of weight 1; but
# squares of a transformer's deep layers are thousands of times the cross-entropy (docs/reproduce/transformers.md).
_FOR_TRANSFORMERS = PyramidSettings(
    scales=(Scale(112, 2000, 0.05), Scale(224, 3000, 0.02)),
    statistics=10.0,
    statistics_form="kl",
    augmentation=replace(PyramidSettings().augmentation, jitter=0),
)


@dataclass(frozen=True)
class DreamOptions:
    """What is asked for; None where the model or the strategy decides.

    Attributes:
        classes: names, or places among the model's; None for all, of more than ten the first ten.
        count: images per class.
        strategy: how images are sought.
        prior: covariance behind the prior on activations.
        form: in which the prior enters.
        prior_weight: of that term.
        steps: of the longest phase; the others keep their proportion to it.
        batch: most images inverted together.
        micro_batch: most images in memory at once.
        seed: of everything random.

    Raises:
        ValueError: for numbers out of range and unknown names; the message lists the known.

    """

    classes: tuple[str | int, ...] | None = None
    count: int = 8
    strategy: Strategy | None = None
    prior: PriorKind | None = None
    form: Form = "typical"
    prior_weight: float | None = None
    steps: int | None = None
    batch: int | None = None
    micro_batch: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.strategy is not None and self.strategy not in STRATEGIES:
            raise ValueError(f"unknown strategy {self.strategy!r}; there are: {', '.join(STRATEGIES)}")
        PriorSettings(self.prior or "none", self.form, self.prior_weight or 0.0)
        for name in ("count", "steps", "batch", "micro_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
        if self.classes is not None and len(set(self.classes)) < len(self.classes):
            twice = next(name for name in self.classes if self.classes.count(name) > 1)
            raise ValueError(f"the class {twice!r} is asked for twice")
        if self.seed < 0:
            raise ValueError(f"--seed must not be negative, got {self.seed}")


def settings_for(
    strategy: Strategy,
    options: DreamOptions,
    prior: PriorKind,
    images: Preprocessing,
    spread: float,
    transformer: bool = False,
) -> Settings:
    """The published settings of a strategy, with the images' size and normalisation, and what was asked for.

    Args:
        strategy: which.
        options: what was asked for.
        prior: the kind that was asked for or chosen.
        images: what the network takes.
        spread: the sum over BatchNorm layers of the norms of their standard deviations and variances.
        transformer: whether the network is one; the published pyramid has other settings for these.

    """
    weight = _PRIOR_WEIGHT[strategy] if options.prior_weight is None else options.prior_weight
    chosen = PriorSettings(prior, options.form, weight)
    if strategy == "generator":
        usual = GeneratorSettings(prior=chosen)
        return replace(usual, schedule=Schedule(options.steps or 1000, 1e-3), batch=options.batch or usual.batch)
    settings: LayerwiseSettings | PixelSettings | PyramidSettings
    if strategy == "layerwise":
        settings = _layerwise(options.steps)
    elif strategy == "pixels":
        settings = _pixels(options.steps or 500, images, spread)
    else:
        settings = _pyramid(options.steps or _PYRAMID_STEPS, images, transformer)
    return replace(settings, prior=chosen, batch=options.batch or settings.batch, micro_batch=options.micro_batch)


def _layerwise(wanted: int | None) -> LayerwiseSettings:
    usual = LayerwiseSettings()
    steps = wanted or usual.refine.steps
    share = steps / usual.refine.steps
    milestones = tuple(sorted({round(share * m) for m in usual.refine.milestones}))
    return replace(
        usual,
        block=replace(usual.block, steps=max(1, round(share * usual.block.steps))),
        refine=replace(usual.refine, steps=steps, milestones=milestones),
    )


def _pixels(steps: int, images: Preprocessing, spread: float) -> PixelSettings:
    usual = PixelSettings()
    return replace(
        usual,
        schedule=replace(usual.schedule, steps=steps),
        # The published weights differ a thousandfold between networks. This one makes statistics that are off by a
        # hundredth count as much as a cross-entropy of 1, whatever the network.
        statistics=100 / spread if spread else usual.statistics,
        augmentation=Augmentation(jitter=max(1, images.size // 16)),
    )


def _pyramid(steps: int, images: Preprocessing, transformer: bool) -> PyramidSettings:
    usual = _FOR_TRANSFORMERS if transformer else PyramidSettings()
    assert usual.polish is not None
    side = images.size
    half, full = usual.scales
    share = steps / full.steps

    def scaled(scale: Scale, size: int) -> Scale:
        return replace(scale, size=size, steps=max(1, round(share * scale.steps)))

    return replace(
        usual,
        scales=(scaled(half, max(1, side // 2)), scaled(full, side)),
        polish=scaled(usual.polish, side),
        augmentation=replace(usual.augmentation, jitter=max(1, side // 64) if usual.augmentation.jitter else 0),
        mean=images.mean,
        std=images.std,
    )
