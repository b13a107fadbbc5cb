"""The folder of a run: what lies where, and whether a run may go into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from remix.experiments.config import RunConfig, build_config, differences
from remix.learning.metrics import AccuracyMatrix
from remix.support.documents import DocumentError, read_json, read_yaml
from remix.support.files import is_temporary, open_appending, remove_temporary, why_unreadable, write_text
from remix.support.settings import SettingError, plain
from remix.support.text import printable, shown

__all__ = ["RunDirectory", "RunDirectoryError"]


_LONGEST = 1e9  # minutes
_EARLY = {"checkpoints", "dreams", "tensorboard", "lock"}  # what is there before the configuration is


class RunDirectoryError(ValueError):
    """A folder that this run must not go into, or that holds no run; the message says why and what to do."""


class RunDirectory:
    """Where the files of a run are.

    ``config.yaml`` every setting; ``metrics.jsonl`` one event per line; ``matrix.csv`` accuracies; ``summary.json`` the
    result, there when the run is finished; ``log.txt``; ``dreams/``; ``checkpoints/``; ``model.remix`` the classifier;
    ``tensorboard/`` if that was asked for.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.matrix = self.path / "matrix.csv"
        self.summary = self.path / "summary.json"
        self.log = self.path / "log.txt"
        self.model = self.path / "model.remix"
        self.dreams = self.path / "dreams"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tensorboard"

    def __str__(self) -> str:
        """Its path, fit to be shown."""
        return printable(self.path)

    @property
    def finished(self) -> bool:
        """Whether a run came to its end here."""
        return self.summary.is_file()

    def pictures(self) -> dict[int, Path]:
        """Of the dreams before a task, by its number."""
        files = self.dreams.glob("task-*.png")
        numbered = {int(number): file for file in files if (number := file.stem.partition("-")[2]).isdecimal()}
        return dict(sorted(numbered.items()))

    def check(self, config: RunConfig, resume: bool) -> None:
        """Whether a run of this configuration may go into this folder. Changes nothing.

        Raises:
            RunDirectoryError: if there is something here and ``resume`` is False, or it is of another configuration.

        """
        if self.path.exists() and not self.path.is_dir():
            raise RunDirectoryError(f"{self} is a file; name a folder for the run: --out DIR")
        used = self.path.is_dir() and any(self.path.iterdir())
        if not used:
            return
        if not self.config.is_file():
            if resume and {file.name for file in self.path.iterdir() if not is_temporary(file)} <= _EARLY:
                return  # killed before it began
            raise RunDirectoryError(f"{self} is not empty and holds no run; name another folder: --out DIR")
        if not resume:
            state = "a finished run" if self.finished else "an unfinished run"
            raise RunDirectoryError(
                f"{self} holds {state} already; add --resume to go on with it, or name another folder: --out DIR"
            )
        changed = differences(self.read_config(), config.to_plain())
        if changed:
            shown = "; ".join(changed[:5]) + (f"; and {len(changed) - 5} more" if len(changed) > 5 else "")
            raise RunDirectoryError(f"{self} holds a run of other settings ({shown}); name another folder: --out DIR")

    def read_config(self) -> dict[str, Any]:
        """The settings of the run here. Raises RunDirectoryError if they cannot be read.

        A setting that did not exist when the run was made has its default, which is what was done before it existed.
        """
        values = plain(_read(read_yaml, self.config))
        if not isinstance(values, dict):
            raise RunDirectoryError(f"{self}/{self.config.name} holds no settings")
        if not values.keys() >= {"data", "network", "method", "settings", "seed"}:
            return values  # cut short: what is missing is not known
        try:
            return build_config(values).to_plain()
        except SettingError:  # of a method that is not known here, or edited by hand
            return values

    def read_whole_config(self) -> dict[str, Any]:
        """As `read_config`. Raises RunDirectoryError also if something is missing in it."""
        config = self.read_config()
        try:
            int(config["seed"])
            if not 0 < int(config["data"]["tasks"]) < 10_000:
                raise ValueError("data.tasks")
            names = config["method"], config["data"]["name"]
            if not all(isinstance(name, str) for name in names) or not isinstance(config["settings"], dict):
                raise TypeError("method, data.name or settings")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise RunDirectoryError(
                f"{self}/{self.config.name} is not the configuration of a run (see {error})"
            ) from error
        return config

    def read_summary(self) -> dict[str, Any]:
        """The result of the run here. Raises RunDirectoryError if there is none, or not all of it."""
        if not self.finished:
            raise RunDirectoryError(f"{self} holds no finished run (there is no {self.summary.name})")
        found = _read(read_json, self.summary)
        try:
            found["metrics"] = AccuracyMatrix.from_dict(found["matrix"]).summary()
            found["minutes"] = {str(phase): _finite(value) for phase, value in found["minutes"].items()}
            for key in ("minutes_in_all", "processor_minutes"):
                found[key] = _finite(found[key])
            for key in ("seed", "tasks", "peak_memory_mib", *(["peak_gpu_mib"] if "peak_gpu_mib" in found else [])):
                found[key] = int(found[key])
            found["method"], found["data"] = str(found["method"]), str(found["data"])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RunDirectoryError(f"{self}/{self.summary.name} is damaged ({error})") from error
        return dict(found)

    @contextmanager
    def open(self, config: RunConfig) -> Iterator[None]:
        """Make the folder, write the settings, and keep other processes out meanwhile.

        Raises:
            RunDirectoryError: if another process works in it, or has left a run of other settings since `check`.
            OSError: if it cannot be written.

        """
        for folder in (self.path, self.dreams, self.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            for folder in (self.path, self.dreams, self.checkpoints):
                remove_temporary(folder)  # of processes that were killed
            self.check(config, resume=True)
            if not self.config.is_file():
                write_text(self.config, yaml.safe_dump(config.to_plain(), sort_keys=False))
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep others out. The file stays: who has opened one that is then removed would lock what nobody else sees."""
        with open_appending(self.checkpoints / "lock") as file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # a system without it: two processes in one folder are not noticed
                pass
            except BlockingIOError as error:
                raise RunDirectoryError(f"another process is at work in {self}") from error
            yield


def _finite(value: Any) -> float:
    number = float(value)
    if not 0 <= number < _LONGEST:
        raise ValueError(f"{shown(value)} minutes")
    return number


def _read(read: Callable[[Path], Any], path: Path) -> Any:
    try:
        return read(path)
    except (OSError, DocumentError) as error:
        raise RunDirectoryError(why_unreadable(path, error)) from error
