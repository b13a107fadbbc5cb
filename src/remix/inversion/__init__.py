"""From a frozen network and its statistics to pseudo-samples."""

from remix.inversion.conditional_generator import ConditionalGenerator, Critic, gradient_penalty
from remix.inversion.dream import Dream
from remix.inversion.generator import GeneratorSource, train_generator
from remix.inversion.image_generator import ImageGenerator, doublings_to
from remix.inversion.knowledge import Knowledge
from remix.inversion.layerwise import invert_layerwise
from remix.inversion.loop import Checkpoint, InversionStoppedError, LoopState, Optimisation, StepReport, optimise
from remix.inversion.losses import (
    ClassBalance,
    FeatureMatch,
    ImageNorm,
    LabelMatch,
    SelfConfidence,
    Smoothness,
    TotalVariation,
)
from remix.inversion.phases import Phase, Progress, run_phases
from remix.inversion.pixels import invert_pixels
from remix.inversion.priors import CovariancePrior, PriorKind
from remix.inversion.pyramid import invert_pyramid
from remix.inversion.settings import (
    GeneratorSettings,
    LayerwiseSettings,
    PixelSettings,
    PriorSettings,
    PyramidSettings,
    Scale,
    Schedule,
)
from remix.inversion.statistics_losses import Form, MomentDistance, StatisticsKl
from remix.inversion.targets import (
    Targets,
    balanced_labels,
    feature_targets,
    random_labels,
)
from remix.inversion.terms import Average, BatchAverage, Boost, Loss, Seen, Term
from remix.inversion.variables import Augmentation, TensorVariable
from remix.inversion.watch import frozen

__all__ = [
    "Augmentation",
    "Average",
    "BatchAverage",
    "Boost",
    "Checkpoint",
    "ClassBalance",
    "ConditionalGenerator",
    "CovariancePrior",
    "Critic",
    "Dream",
    "FeatureMatch",
    "Form",
    "GeneratorSettings",
    "GeneratorSource",
    "ImageGenerator",
    "ImageNorm",
    "InversionStoppedError",
    "Knowledge",
    "LabelMatch",
    "LayerwiseSettings",
    "LoopState",
    "Loss",
    "MomentDistance",
    "Optimisation",
    "Phase",
    "PixelSettings",
    "PriorKind",
    "PriorSettings",
    "Progress",
    "PyramidSettings",
    "Scale",
    "Schedule",
    "Seen",
    "SelfConfidence",
    "Smoothness",
    "StatisticsKl",
    "StepReport",
    "Targets",
    "TensorVariable",
    "Term",
    "TotalVariation",
    "balanced_labels",
    "doublings_to",
    "feature_targets",
    "frozen",
    "gradient_penalty",
    "invert_layerwise",
    "invert_pixels",
    "invert_pyramid",
    "optimise",
    "random_labels",
    "run_phases",
    "train_generator",
]
