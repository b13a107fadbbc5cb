"""A network that a run has trained on all classes at once, with what it remembers of them."""

from __future__ import annotations

from remix.experiments.run_directory import RunDirectory
from remix.learning import Model, load_model
from remix.learning.team import as_device
from remix.reproduce.needed_runs import NeededRun, Variant

__all__ = ["one_task", "open_trained"]


def one_task(preset: str) -> Variant:
    """The first task of REMIX, which is all: training, class Gaussians and covariances."""
    return Variant(preset, "remix", ("data.tasks=1",), "all classes at once")


def open_trained(run: NeededRun, device: str = "cpu") -> Model:
    """What a finished run has left. Raises OSError or DamagedFileError."""
    return load_model(RunDirectory(run.job.folder).model).to(as_device(device))
