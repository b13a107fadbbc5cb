"""Losses, training stages, replay, the learner and its file, metrics."""

from remix.learning.best_epoch import BestEpoch
from remix.learning.class_names import check_class_names
from remix.learning.frozen_trunk import FrozenTrunk
from remix.learning.history import LearnStep, check_step_name
from remix.learning.learner import InterruptedInversion, Learner
from remix.learning.method import Method
from remix.learning.metrics import AccuracyMatrix
from remix.learning.model_file import Model, load_model, save_model
from remix.learning.monitor import EpochReport, Monitor
from remix.learning.replay import Replay, TensorReplay
from remix.learning.scaling import LossScales
from remix.learning.sgd import Sgd
from remix.learning.stage import Batch, Objective, Stage
from remix.learning.team import Team
from remix.learning.trainer import TrainingStoppedError

__all__ = [
    "AccuracyMatrix",
    "Batch",
    "BestEpoch",
    "EpochReport",
    "FrozenTrunk",
    "InterruptedInversion",
    "LearnStep",
    "Learner",
    "LossScales",
    "Method",
    "Model",
    "Monitor",
    "Objective",
    "Replay",
    "Sgd",
    "Stage",
    "Team",
    "TensorReplay",
    "TrainingStoppedError",
    "check_class_names",
    "check_step_name",
    "load_model",
    "save_model",
]
