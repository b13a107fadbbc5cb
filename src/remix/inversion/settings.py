"""The settings of every strategy."""

# ruff: noqa: RUF009 (frozen dataclasses can be defaults)

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from remix.inversion.priors import PriorKind, check_prior
from remix.inversion.statistics_losses import Form
from remix.inversion.variables import Augmentation

__all__ = [
    "GeneratorSettings",
    "LayerwiseSettings",
    "PixelSettings",
    "PriorSettings",
    "PyramidSettings",
    "Scale",
    "Schedule",
]


@dataclass(frozen=True)
class Schedule:
    """A number of steps and their learning rates: warm-up, then milestones or half a cosine.

    During warm-up, step k has the rate ``rate * max(k, 1) / warm_up``: the first value appears twice. Milestones count
    from the end of the warm-up; each multiplies the rate by ``factor``. With ``cosine_period`` the rate falls as half a
    cosine that reaches zero after so many steps.

    Attributes:
        steps: how many.
        rate: learning rate after the warm-up.
        warm_up: steps in which the rate rises.
        milestones: steps after which the rate is multiplied by ``factor``.
        factor: see ``milestones``.
        cosine_period: steps in which the rate falls to zero as half a cosine; None for no such fall.

    Raises:
        ValueError: for numbers out of range, or milestones that do not ascend.

    """

    steps: int
    rate: float
    warm_up: int = 0
    milestones: tuple[int, ...] = ()
    factor: float = 0.5
    cosine_period: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise ValueError(f"rate must be positive, got {self.rate}")
        if self.warm_up < 0:
            raise ValueError(f"warm_up must not be negative, got {self.warm_up}")
        if list(self.milestones) != sorted(set(self.milestones)) or any(m < 0 for m in self.milestones):
            raise ValueError(f"milestones must ascend from 0 up, got {self.milestones}")
        if self.cosine_period is not None and self.cosine_period < 1:
            raise ValueError(f"cosine_period must be at least 1, got {self.cosine_period}")

    def __call__(self, step: int) -> float:
        """The rate of step 0, 1, ..., steps - 1."""
        if step < self.warm_up:
            return self.rate * max(step, 1) / self.warm_up
        after = step - self.warm_up
        rate = self.rate * self.factor ** sum(after >= milestone for milestone in self.milestones)
        if self.cosine_period is not None:
            rate *= 0.5 * (1 + math.cos(math.pi * min(after, self.cosine_period) / self.cosine_period))
        return rate


@dataclass(frozen=True)
class PriorSettings:
    """Which covariance stands behind the prior on activations, in which form it enters, and its weight.

    Attributes:
        kind: "none", "diagonal", "laplace", "laplace-dct", "dense" or another registered kind of covariance.
        form: "nll", "typical", "kl" or "frobenius".
        weight: of the mean over layers.
        summed: whether it is of their sum instead.

    """

    kind: PriorKind = "laplace"
    form: Form = "nll"
    weight: float = 0.5
    summed: bool = False

    def __post_init__(self) -> None:
        check_prior(self.kind, self.form)
        if self.weight < 0:
            raise ValueError(f"the weight of the prior must not be negative, got {self.weight}")


@dataclass(frozen=True)
class LayerwiseSettings:
    """Layer by layer, then refined. The defaults are those of the authors' code; docs/methods.md compares them.

    Attributes:
        block: steps and rate for every block.
        refine: steps and rates of the whole network.
        features: weight of the feature match in a block.
        refine_features: weight of the feature match in the refinement.
        labels: weight of the cross-entropy with the labels in the refinement.
        top: what the topmost block aims at: the "features" of the targets, or these after steps of their own in which
            the cross-entropy with the "labels" moved them.
        normalised: whether features match in units of the standard deviations that real ones have.
        statistics: weight of the statistics of layers in the refinement.
        statistics_form: "kl": divergence of means and variances, averaged over channels; "nll": negative log-likelihood
            under the covariances of the prior, summed over channels. Both are summed over layers.
        input: weight of the statistics of what is sought.
        block_factor: in a block, ``statistics`` and ``input`` weigh ``number of blocks * block_factor`` times as much.
        variation: weight of the squared differences of neighbouring pixels, in the first block.
        entry: steps and rate of the block whose inputs are sought; None for those of every block.
        entry_side: side that these inputs begin with, to double on the way, where they are maps; None for whole ones.
            The last step counts then, not the best.
        refine_at: where statistics are compared in the refinement: "all" places that are watched, or the inputs of
            "blocks" alone, without what is sought.
        refine_variation: weight of the norms of differences of neighbours in maps, in the refinement.
        boosting: whether terms that grow above their first value gain weight.
        prior: the covariance prior.
        batch: most images inverted together; more are done in equal chunks.
        micro_batch: most images in memory at once; None for all.

    """

    block: Schedule = Schedule(50, 0.8)
    refine: Schedule = Schedule(160, 0.4, warm_up=5, milestones=(80, 120))
    features: float = 1.0
    refine_features: float = 1.0
    labels: float = 0.0
    top: Literal["features", "labels"] = "features"
    normalised: bool = False
    statistics: float = 0.25
    statistics_form: Literal["kl", "nll"] = "kl"
    input: float = 0.25
    block_factor: float = 20.0
    variation: float = 0.0
    entry: Schedule | None = None
    entry_side: int | None = None
    refine_at: Literal["all", "blocks"] = "all"
    refine_variation: float = 0.0
    boosting: bool = True
    prior: PriorSettings = PriorSettings()
    batch: int = 4000
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        _check_batches(self.batch, self.micro_batch)
        if self.entry_side is not None and self.entry_side < 1:
            raise ValueError(f"entry_side must be at least 1, or null for whole maps, got {self.entry_side}")
        if self.statistics_form == "nll" and self.prior.kind == "none":
            raise ValueError(
                "statistics_form 'nll' is the likelihood under the covariances of the prior, and prior.kind is none: "
                "set prior.kind, such as laplace, or statistics_form=kl"
            )


@dataclass(frozen=True)
class PixelSettings:
    """Pixels from noise: the published values of DeepInversion for 32 pixel images.

    Attributes:
        schedule: steps and rates.
        labels: weight of the cross-entropy with the labels.
        features: weight of the feature match, where the targets have features.
        statistics: weight of the distance of BatchNorm statistics (sum over layers of the norms).
        variation: weight of the total variation (norms over the batch).
        norm: weight of the mean square of the pixels.
        augmentation: what the network sees of the images in each step.
        prior: the covariance prior.
        batch: most images inverted together.
        micro_batch: most images in memory at once; None for all.

    """

    schedule: Schedule = Schedule(2000, 0.1)
    labels: float = 1.0
    features: float = 0.0
    statistics: float = 100.0
    variation: float = 2.5e-5
    norm: float = 0.0
    augmentation: Augmentation = Augmentation(jitter=2)
    prior: PriorSettings = PriorSettings("none")
    batch: int = 256
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        _check_batches(self.batch, self.micro_batch)


@dataclass(frozen=True)
class Scale:
    """A level of a pyramid: images of ``size`` x ``size`` pixels."""

    size: int
    steps: int
    rate: float


@dataclass(frozen=True)
class PyramidSettings:
    """From small images to large ones, then a polish without augmentation: the published values for ImageNet networks.

    Attributes:
        scales: levels from small to large; the rate falls as half a cosine within each.
        polish: a last level without augmentation; None to leave it out.
        labels: weight of the cross-entropy; ``polish_labels`` during the polish.
        statistics: weight of the distance of statistics (sum over layers).
        statistics_form: that distance: "square", as published, the mean square of means and variances; or "kl", their
            divergence, which does not weigh a layer by the size of its numbers.
        variation: weight of mean |dx| + mean |dy|; ``polish_variation`` during the polish.
        augmentation: what the network sees; images are resized to the network's input size after it.
        mean: of the network's input normalisation, per channel; images are within 0..1 before it.
        std: the same.
        blur_every: a 3 x 3 blur every so many steps in the first half of a level; 0 for none.
        gradient_limit: on the norm of the gradient.
        prior: the covariance prior; 20 times the mean over the paper's four maps is its 5 times their sum.
        batch: most images inverted together.
        micro_batch: most images in memory at once; None for all.

    """

    scales: tuple[Scale, ...] = (Scale(112, 1000, 0.05), Scale(224, 2000, 0.02))
    polish: Scale | None = Scale(224, 400, 0.005)
    labels: float = 1.0
    polish_labels: float = 20.0
    statistics: float = 1.0
    statistics_form: Literal["square", "kl"] = "square"
    variation: float = 0.1
    polish_variation: float = 0.05
    augmentation: Augmentation = Augmentation(jitter=3, flip=0.5, rotation=10, shift=0.05, scale=0.05)
    mean: tuple[float, ...] | None = (0.485, 0.456, 0.406)
    std: tuple[float, ...] | None = (0.229, 0.224, 0.225)
    blur_every: int = 15
    gradient_limit: float | None = 1.0
    prior: PriorSettings = PriorSettings(weight=20.0)
    batch: int = 50
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        if not self.scales:
            raise ValueError("a pyramid needs at least one scale")
        _check_batches(self.batch, self.micro_batch)


@dataclass(frozen=True)
class GeneratorSettings:
    """A generator network trained to please the frozen one: the published values of R-DFCIL (ABD: 10,000 steps).

    Attributes:
        schedule: steps and rate.
        batch: images per step.
        noise: length of the generator's input.
        confidence: weight of the cross-entropy with the network's own decision, at ``temperature``.
        temperature: that logits are divided by for it.
        balance: weight of the class balance.
        smoothness: weight of the difference to the blurred image.
        statistics: weight of the mean over layers of KL(running || batch).
        prior: the covariance prior.

    """

    schedule: Schedule = Schedule(5000, 1e-3)
    batch: int = 128
    noise: int = 1000
    confidence: float = 1.0
    temperature: float = 1000.0
    balance: float = 1.0
    smoothness: float = 1e-3
    statistics: float = 50.0
    prior: PriorSettings = PriorSettings("none")

    def __post_init__(self) -> None:
        if self.batch < 2 or self.noise < 1:
            raise ValueError(f"a generator needs batches of 2 images or more and some noise, got {self}")


def _check_batches(batch: int, micro_batch: int | None) -> None:
    if batch < 1 or (micro_batch is not None and micro_batch < 1):
        raise ValueError(f"batch and micro_batch must be at least 1, got {batch} and {micro_batch}")
