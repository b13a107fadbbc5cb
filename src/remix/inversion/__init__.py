"""From a frozen network and its statistics to pseudo-samples."""

from remix.inversion.augment import Augmentation
from remix.inversion.checkpoint import Checkpoint
from remix.inversion.dream import Dream
from remix.inversion.gaussian_forms import FORMS, Form
from remix.inversion.generator import GeneratorSource, train_generator
from remix.inversion.generator_network import ImageGenerator, doublings_to
from remix.inversion.image_priors import ImageNorm, Smoothness, TotalVariation
from remix.inversion.knowledge import Knowledge
from remix.inversion.layerwise import invert_layerwise
from remix.inversion.loop import InversionStoppedError, StepReport, Task, optimise
from remix.inversion.loop_state import LoopState
from remix.inversion.observed import Observed, Section, frozen
from remix.inversion.phases import Phase, Progress, run_phases
from remix.inversion.pixels import invert_pixels
from remix.inversion.priors import PRIORS, CovariancePrior, PriorKind
from remix.inversion.pyramid import invert_pyramid
from remix.inversion.schedule import Schedule
from remix.inversion.settings import (
    GeneratorSettings,
    LayerwiseSettings,
    PixelSettings,
    PriorSettings,
    PyramidSettings,
    Scale,
)
from remix.inversion.statistics_penalties import MomentDistance, StatisticsKl
from remix.inversion.target_penalties import ClassBalance, FeatureMatch, LabelMatch, SelfConfidence
from remix.inversion.targets import (
    Targets,
    balanced_labels,
    feature_targets,
    label_targets,
    random_labels,
)
from remix.inversion.term import Boost, Penalty, Term
from remix.inversion.variables import TensorVariable, Variable

__all__ = [
    "FORMS",
    "PRIORS",
    "Augmentation",
    "Boost",
    "Checkpoint",
    "ClassBalance",
    "CovariancePrior",
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
    "MomentDistance",
    "Observed",
    "Penalty",
    "Phase",
    "PixelSettings",
    "PriorKind",
    "PriorSettings",
    "Progress",
    "PyramidSettings",
    "Scale",
    "Schedule",
    "Section",
    "SelfConfidence",
    "Smoothness",
    "StatisticsKl",
    "StepReport",
    "Targets",
    "Task",
    "TensorVariable",
    "Term",
    "TotalVariation",
    "Variable",
    "balanced_labels",
    "doublings_to",
    "feature_targets",
    "frozen",
    "invert_layerwise",
    "invert_pixels",
    "invert_pyramid",
    "label_targets",
    "optimise",
    "random_labels",
    "run_phases",
    "train_generator",
]
