"""Losses, stages and training, replay, the engine and its state, the model file, metrics."""

from remix.learning.engine import Engine, InterruptedInversion
from remix.learning.history import LearnStep, check_class_names, check_step_name
from remix.learning.items import Replay, TensorReplay
from remix.learning.losses import LossScales
from remix.learning.method import Method, Step
from remix.learning.metrics import AccuracyMatrix
from remix.learning.model_file import Model, load_model, save_model
from remix.learning.stage import Batch, Losses, Stage, Training, Work
from remix.learning.team import Team
from remix.learning.trainer import BestEpoch, EpochReport, Monitor, TrainingStoppedError

__all__ = [
    "AccuracyMatrix",
    "Batch",
    "BestEpoch",
    "Engine",
    "EpochReport",
    "InterruptedInversion",
    "LearnStep",
    "LossScales",
    "Losses",
    "Method",
    "Model",
    "Monitor",
    "Replay",
    "Stage",
    "Step",
    "Team",
    "TensorReplay",
    "Training",
    "TrainingStoppedError",
    "Work",
    "check_class_names",
    "check_step_name",
    "load_model",
    "save_model",
]
