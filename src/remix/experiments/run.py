"""A run: every task of a stream learned with a method, evaluated, written down; goes on after any interruption."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from rich.console import Console

from remix.data import TaskStream
from remix.deploy.figures import GridRow, save_grid
from remix.experiments.config import RunConfig
from remix.experiments.events import Event, MetricsFile, read_events
from remix.experiments.plan import check_run, create_run_head, method_of, plan_run
from remix.experiments.run_directory import RunDirectory
from remix.experiments.run_monitor import RunMonitor
from remix.experiments.run_state import RunState, Saving, check_place
from remix.inversion import Progress
from remix.learning.engine import Engine, InterruptedInversion
from remix.learning.metrics import AccuracyMatrix
from remix.learning.model_file import Model, save_model
from remix.learning.team import Team, full_precision
from remix.learning.trainer import EpochReport
from remix.methods.solved_heads import last_block, linear_head
from remix.networks import Classifier, ExactHead, FeatureMap, OpenedNetwork
from remix.networks.probe import evaluating
from remix.statistics import Laplace, Memory
from remix.support.clock import RunClock
from remix.support.display import Display
from remix.support.files import write_text
from remix.support.machine import command_line, describe_machine

__all__ = ["execute", "grid_of"]

_PREVIEW = 400  # pseudo-samples looked through for a picture
_PER_CLASS, _MOST_CLASSES = 12, 20  # of them shown


def execute(
    config: RunConfig,
    stream: TaskStream,
    directory: RunDirectory,
    *,
    team: Team | None = None,
    display: Display | None = None,
    saving: Saving | None = None,
    log: Callable[[Event], None] | None = None,
    test_every: int = 0,
) -> dict[str, Any]:
    """Run, or go on with, what `RunDirectory.check` allowed.

    Args:
        config: the run.
        stream: its tasks.
        directory: its folder; what is there of the same run is gone on with.
        team: device, precision and processes.
        display: where progress is shown; by default nowhere.
        saving: how often it is saved.
        log: told of every event that is written to ``metrics.jsonl``, those of an earlier process included.
        test_every: test after every so many epochs of a stage and after its last one, for curves; 0 for never.

    Returns:
        the content of ``summary.json``.

    Raises:
        SettingError, DataError: if this run could not come to its end.
        TrainingStoppedError, InversionStoppedError: if numbers are not finite any more.
        OSError: if files cannot be written. What was saved before is whole.
        KeyboardInterrupt: after Ctrl-C; an inversion under way was saved.

    """
    network = check_run(config, stream)
    team = team or Team()
    display = display or Display(Console(quiet=True))
    with directory.open(config) if team.first else nullcontext():
        run = _Run(config, stream, network, directory, team, display, saving or Saving(), log, test_every)
        return run.finish()


@dataclass
class _Run:
    config: RunConfig
    stream: TaskStream
    network: OpenedNetwork
    directory: RunDirectory
    team: Team
    display: Display
    saving: Saving
    log: Callable[[Event], None] | None
    test_every: int = 0

    def __post_init__(self) -> None:
        config, directory = self.config, self.directory
        self.engine = Engine(
            Classifier(self.network.backbone, create_run_head(config, self.network.backbone)),
            method_of(config),
            self.network.preprocessing.normalisation,
            config.augment,
            batch_size=config.batch_size,
            seed=config.seed,
            team=self.team,
        )
        self.state = RunState(directory.checkpoints, self.saving)
        found = self.state.load(self.engine) or {}
        found |= self.state.load_inversion(self.engine)
        self.team.fabric.barrier()  # nobody may write before everybody has read
        told: dict[str, Any] = {"metrics": 0, "seconds": {}, "processor": 0.0, "peak": 0, "peak_gpu": 0} | found
        self.matrix = AccuracyMatrix.from_dict(told["matrix"]) if "matrix" in told else AccuracyMatrix()
        plan, first = plan_run(config, self.stream), self.team.first
        check_place(self.engine, self.matrix, plan)
        metrics = MetricsFile(directory.metrics if first else None, told["metrics"], self.log)
        self.monitor = RunMonitor(
            plan,
            self.display,
            directory.log if first else None,
            metrics,
            RunClock(told["seconds"], told["processor"], told["peak"], told["peak_gpu"]),
            self._inversion_step,
            self._test_after_epoch,
            # What goes on within an inversion was saved before it, and comes to where it stood once more.
            read_events(directory.metrics).events if first and self.engine.inversion else (),
        )
        self.engine.monitor = self.monitor
        if len(self.matrix):
            self.monitor.accuracy = f"{self.matrix.accuracy(average='macro'):.1f} %"
        if self.log is not None:
            for event in read_events(directory.metrics).events:
                self.log(event)
        self.monitor.metrics.write("start", tasks=len(self.stream), command=command_line(), **describe_machine())
        if found and told["threads"] != torch.get_num_threads():
            self.monitor.say(
                f"note: this run began with {told['threads']} thread(s) and goes on with {torch.get_num_threads()}; "
                "its last digits may differ from those of an unbroken run"
            )

    def finish(self) -> dict[str, Any]:
        monitor, engine = self.monitor, self.engine
        goes_on = bool(engine.done or engine.inversion)
        try:
            with monitor.display:
                for index in range(engine.tasks, len(self.stream)):
                    monitor.start_task(index, goes_on)
                    goes_on = False
                    self._learn(index)
            return self._summarise()
        finally:
            monitor.close()

    def _learn(self, index: int) -> None:
        engine, monitor, stream = self.engine, self.monitor, self.stream
        task = stream.seen(index) if engine.method.keeps_images else stream[index]
        try:
            engine.learn(task, self._safe_point)
        except InterruptedInversion as stop:
            if stop.checkpoint is not None and self.team.first:
                stop.saved = self.state.write_inversion(index, stop.checkpoint, self._about())
            raise
        monitor.likelihood(layer_likelihoods(engine.memory))
        monitor.begin_phase(0, "evaluate")
        self.matrix.add_row(*self._test(index))
        monitor.end_phase()
        if self.team.first:
            self.matrix.write(self.directory.matrix)
        micro = self.matrix.accuracy(average="micro")
        monitor.result(self.matrix.row(), self.matrix.accuracy(average="macro"), micro)
        if self.config.data.validation:
            monitor.oracle(oracle_accuracy(engine, stream, index))
        self._save()

    def _test(self, index: int) -> tuple[list[int], list[int]]:
        return self.engine.evaluate_tasks([self.stream.test(before) for before in range(index + 1)])

    def _test_after_epoch(self, report: EpochReport) -> float | None:
        done = report.epoch + 1
        if not self.test_every or (done % self.test_every and done < report.epochs):
            return None
        return fmean(100 * right / count for right, count in zip(*self._test(self.monitor.task), strict=True))

    # --- saving ---

    def _safe_point(self) -> None:
        engine, monitor = self.engine, self.monitor
        within = engine.stage_state.epoch > 0
        if self.team.first and engine.done == 2 and not within and engine.replay is not None:
            grid_of(engine, self.directory, monitor.task)
        if monitor.phase == "remember":
            return  # the task is as good as learned: it is saved with its evaluation
        if not within:
            monitor.end_phase()  # before it is saved: who goes on from there does not come here again
        if self.state.due(None if within else monitor.phase_seconds):
            self._save()

    def _inversion_step(self, progress: Progress, began: float) -> None:
        if self.team.first:
            self.state.save_inversion(self.monitor.task, progress, began, self._about)

    def _save(self) -> None:
        if self.team.first:
            self.state.save(self.engine, {"matrix": self.matrix.to_dict(), **self._about()})

    def _about(self) -> dict[str, Any]:
        """What happened so far, apart from results."""
        clock = self.monitor.clock
        return {
            "metrics": self.monitor.metrics.length,
            "seconds": clock.seconds,
            "processor": clock.processor,
            "peak": clock.peak,
            "peak_gpu": clock.peak_gpu,
            "threads": torch.get_num_threads(),
        }

    # --- the end ---

    def _oracle(self) -> list[float]:
        """After every task, as it was written down; the last time where a task was gone through again."""
        found = {event["task"]: event["accuracy_micro"] for event in read_events(self.directory.metrics).of("oracle")}
        return [found[task] for task in sorted(found)]

    def _summarise(self) -> dict[str, Any]:
        clock, config, engine = self.monitor.clock, self.config, self.engine
        if self.team.first and not self.directory.model.is_file():
            model = Model(
                engine.student,
                self.network.name,
                self.network.options,
                self.stream.classes,
                self.network.preprocessing,
                engine.memory,
                {"method": config.method, "data": config.data.name, "seed": str(config.seed)},
            )
            save_model(self.directory.model, model)
        summary = {
            "method": config.method,
            "data": config.data.name,
            "seed": config.seed,
            "tasks": len(self.stream),
            "tested_on": config.data.tested_on,
            "metrics": self.matrix.summary(),
            "matrix": self.matrix.to_dict(),
            **({"oracle_micro": self._oracle()} if config.data.validation else {}),
            "minutes": {name: round(seconds / 60, 3) for name, seconds in clock.seconds.items()},
            "minutes_in_all": round(clock.total / 60, 3),
            "processor_minutes": round(clock.processor / 60, 3),
            "peak_memory_mib": round(clock.peak / 2**20),
            **({"peak_gpu_mib": round(clock.peak_gpu / 2**20)} if clock.peak_gpu else {}),
            **describe_machine(),
            "command": command_line(),
        }
        if self.team.first:
            write_text(self.directory.summary, json.dumps(summary, indent=2) + "\n")
        return summary


def oracle_accuracy(engine: Engine, stream: TaskStream, index: int) -> float:
    """Percent of the tested images of all tasks so far that a head fitted on real features of their classes gets right.

    Only an experiment may have that: it reads the training images of old tasks again. What such a head gets wrong was
    lost by the network, the rest by what is kept of the old classes.
    """
    features, labels = [], []
    with evaluating(engine.student), engine.team.precision():
        for task in range(index + 1):
            for items, known in engine.images(stream[task].train):
                features.append(full_precision(engine.student.pooled(*items)))
                labels.append(known)
    rows, known = torch.cat(features), torch.cat(labels)
    own, sizes = engine.student.head, engine.student.head.task_sizes
    map = (
        FeatureMap(own.map.blocks, own.map.sizes, detail=own.map.detail)
        if isinstance(own, ExactHead)
        else last_block(engine.backbone)
    )
    head = engine.method.refitted(engine, rows, known) or linear_head(map, sizes, rows, known)
    try:
        engine.student.head = head.to(engine.team.device)
        right, counts = engine.evaluate_tasks([stream.test(task) for task in range(index + 1)])
    finally:
        engine.student.head = own
    return 100 * sum(right) / sum(counts)


def grid_of(engine: Engine, directory: RunDirectory, task: int) -> None:
    """Write a picture of the present pseudo-samples, by class. The engine's random numbers are left alone."""
    assert engine.replay is not None
    generator = torch.Generator().manual_seed(task)
    found = engine.replay.preview(_PREVIEW, generator)
    if found is None:
        return
    images, labels = found
    names = [record.name for record in engine.memory.classes]
    rows = []
    for label, name in list(enumerate(names))[:_MOST_CLASSES]:
        shown = images[labels == label][:_PER_CLASS]
        if len(shown):
            rows.append(GridRow(name, engine.normalisation.denormalise(shown).float().cpu() / 255))
    if rows:
        title = f"what {engine.method.name} dreams of the old classes before task {task + 1}"
        save_grid(directory.dreams / f"task-{task + 1}.png", rows, title)


def layer_likelihoods(memory: Memory) -> list[dict[str, Any]]:
    """For every layer whose covariance was just fitted, in nats per coordinate, as plain JSON.

    ``gain`` is that over the diagonal Gaussian on what was fitted to, so in-sample; ``validation_gain`` that on rows
    left out of the fit, or None: a fit to the moments of several tasks has no rows to leave out.
    """
    found = []
    for key, layer in memory.layers.items():
        fits = [one.normal.report for one in layer.covariances.values() if isinstance(one, Laplace)]
        for report in filter(None, fits):
            found.append(
                {
                    "layer": key,
                    "coordinates": report.dim,
                    "samples": report.samples,
                    "log_likelihood": report.train_log_likelihood,
                    "diagonal": report.diagonal_train_log_likelihood,
                    "gain": report.train_gain,
                    "validation_gain": report.validation_gain,
                }
            )
    return found
