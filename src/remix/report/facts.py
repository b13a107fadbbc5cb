"""What it takes to repeat a run: settings, versions, machine, command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from remix.learning.metrics import METRICS
from remix.report.groups import Group
from remix.report.reading import RunFacts

__all__ = ["RunRow", "VariantFacts", "run_rows", "variant_facts"]


@dataclass(frozen=True)
class RunRow:
    """A run in the table of runs: texts."""

    name: str
    seed: int
    folder: str
    state: str
    numbers: list[str]
    minutes: str
    memory: str


def run_rows(group: Group) -> list[RunRow]:
    """Every run, also those that are not finished, with its numbers so far."""
    rows = []
    for name, runs in group.variants.items():
        for seed, run in runs.items():
            found = run.matrix.summary() if run.matrix is not None and run.learned else {}
            numbers = [_number(found.get(metric)) for metric in METRICS]
            minutes = f"{run.summary['minutes_in_all']:.1f}" if run.summary else ""
            memory = f"{run.summary['peak_memory_mib']:,}" if run.summary else ""
            rows.append(RunRow(name, seed, str(run.folder), run.state, numbers, minutes, memory))
    return rows


@dataclass(frozen=True)
class VariantFacts:
    """How the runs of a method were made.

    Attributes:
        name: of the method.
        seeds: that it was run with.
        config: settings of the first run, as YAML.
        commands: what was typed, run by run; and what repeats the first run whatever was typed.
        machines: hardware and versions in words, each once.

    """

    name: str
    seeds: list[int]
    config: str
    commands: list[str]
    again: str
    machines: list[str]


def variant_facts(group: Group) -> list[VariantFacts]:
    """Of every method."""
    found = []
    for name, runs in group.variants.items():
        first = next(iter(runs.values()))
        commands = [str(run.start["command"]) for run in runs.values() if run.start.get("command")]
        machines = list(dict.fromkeys(_machine(run) for run in runs.values()))
        text = yaml.safe_dump(first.config, sort_keys=False, allow_unicode=True)
        config = shlex.quote(str(first.folder / "config.yaml"))
        again = f"remix run {config} --seed {first.seed} --out again"
        found.append(VariantFacts(name, list(runs), text, list(dict.fromkeys(commands)), again, machines))
    return found


def _machine(run: RunFacts) -> str:
    told = run.start
    versions = _words(told.get("versions"))
    hardware: Any = told.get("hardware")
    parts = []
    if isinstance(hardware, Mapping):
        size = hardware.get("memory_bytes")
        memory = f"{size / 2**30:.0f} GiB of memory" if isinstance(size, int) else ""
        known = ("processor", "processors", "memory_bytes", "system")
        more = [f"{key} {value}" for key, value in hardware.items() if key not in known]
        cores = f"{hardware.get('processors')} processors" if hardware.get("processors") else ""
        parts = [str(hardware.get("processor", "")), cores, memory, str(hardware.get("system", "")), *more]
    threads = f"{told['threads']} thread{'s' * (told['threads'] != 1)} used" if told.get("threads") else ""
    words = ", ".join(part for part in [*parts, threads, versions] if part)
    return words if hardware else f"{words or 'nothing'}; the hardware was not written down"


def _words(values: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items()) if isinstance(values, Mapping) else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
