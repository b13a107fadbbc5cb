"""Targets of `remix reproduce` that are made of runs: the plan, what is shared, what is written."""

import csv
import io
import json

import pytest
from rich.console import Console
from tiny_runs import remix_run, tiny
from written_runs import write_run

from remix.cli.reproduce import Printer
from remix.methods import list_methods, method_class
from remix.reproduce import Listener, efficiency, needed_runs, retention, sensitivity, table1
from remix.reproduce.needed_runs import Variant, need_runs
from remix.reproduce.targets import Reproduction, reproduce_target

QUICK = "settings.first.epochs=1", "settings.later.epochs=1", "data.classes=4", "data.tasks=2"


@pytest.fixture
def preset(tmp_path) -> str:
    """The settings of `write_run`."""
    path = tmp_path / "small.yaml"
    path.write_text("base: digits\nabout: three tasks\ndata: {tasks: 3, classes: 9}\n")
    return str(path)


def make(target, out, **options):
    console = Console(record=True, width=200, file=io.StringIO())
    complete = reproduce_target(target, Reproduction(out, **options), Printer(console))
    return complete, console.export_text()


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_plan_comes_first_and_changes_nothing(tmp_path):
    complete, text = make("lambda", tmp_path / "reproduce" / "lambda", dry_run=True, seeds="0-1", jobs=2)
    assert complete
    assert "14 runs to do" in text
    assert "2 at a time: about" in text
    assert "weight 0.25" in text
    assert not list(tmp_path.iterdir())


def test_every_run_has_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(needed_runs, "finish_jobs", lambda jobs, parallel, tell, start: seen.extend(jobs) or [])
    seen = []
    variants = [Variant("digits", "remix", (f"settings.inversion.prior.weight={w}",)) for w in (0.0, 0.01, 0.1, 1.0)]
    need_runs(Reproduction(tmp_path / "out", seeds="0-1"), variants, Listener())
    assert len({job.folder for job in seen}) == 8
    assert seen[0].name == "digits-remix-weight=0.0-seed0"


def test_the_paper_s_plan_needs_no_data(tmp_path, monkeypatch):
    monkeypatch.delenv("REMIX_DATA", raising=False)
    monkeypatch.setattr(needed_runs, "seconds_per_image", lambda config: 1e-3)
    _, text = make("table1", tmp_path / "t", scale="paper", dry_run=True)
    methods = [name for name in list_methods() if not method_class(name).exact]
    assert f"{6 * len(methods) * 5} runs to do" in text
    assert "tiny-20" in text
    assert "1 2 3 4 5" in text


@pytest.mark.slow
def test_runs_are_made_and_then_shared_between_targets(tmp_path, monkeypatch):
    small = [Variant("digits", method, QUICK) for method in ("finetune", "lwf")]
    monkeypatch.setattr(table1, "variants", lambda scale: small)
    complete, text = make("table1", tmp_path / "table1", seeds="0", jobs=2)
    assert complete
    assert "2 runs to do" in text
    assert {row["method"] for row in rows_of(tmp_path / "table1" / "table1.csv")} == {"finetune", "lwf"}
    for name in ("table1.md", "table1.png", "report.html"):
        assert (tmp_path / "table1" / name).stat().st_size > 100
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").glob("*/summary.json")}
    assert len(before) == 2
    monkeypatch.setattr(retention, "Variant", lambda preset, method: Variant("digits", method, QUICK))
    monkeypatch.setattr(retention, "_METHODS", ("finetune", "lwf"))
    complete, text = make("retention", tmp_path / "retention", seeds="0")
    assert complete
    assert "to do" not in text
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").glob("*/summary.json")} == before
    rows = rows_of(tmp_path / "retention" / "retention.csv")
    assert [row["after_task"] for row in rows if row["method"] == "lwf"] == ["1", "2"]
    assert rows[0]["old_task_accuracy"] == ""  # there is none after the first task


def test_a_run_of_another_command_is_found_by_its_settings(tmp_path):
    typed = tiny("finetune", tmp_path / "runs" / "by-hand")
    assert remix_run(typed) == 0
    variant = Variant("digits", "finetune", tuple(typed["set"]))
    runs, complete = need_runs(Reproduction(tmp_path / "out", seeds="0"), [variant], Listener())
    assert complete
    assert [run.job.folder.name for run in runs] == ["by-hand"]


def test_what_is_finished_can_be_shown_before_the_rest_is(tmp_path, monkeypatch, preset):
    monkeypatch.setattr(retention, "_PRESET", {"mini": preset})
    for seed, right in ((0, 80), (1, 90)):
        write_run(tmp_path / "runs" / f"a{seed}", "remix", seed, right=right)
    write_run(tmp_path / "runs" / "half", "pmi", 0, learned=1)
    complete, text = make("retention", tmp_path / "retention", finished=True)
    assert not complete
    assert "2 of 12 runs are finished" in text
    assert "| remix | 0 1 | 80.00" not in text  # a mean
    assert "| remix | 0 1 | 85.00 ± 7.07" in text
    with pytest.raises(ValueError, match="none of the 14 runs that this needs is finished"):
        make("lambda", tmp_path / "lambda", finished=True, runs=str(tmp_path / "runs"), seeds="0-1")


def test_efficiency_compares_seed_by_seed(tmp_path, monkeypatch, preset):
    monkeypatch.setattr(efficiency, "_PRESET", {"mini": preset})
    for seed in (0, 1):
        for method in ("pmi", "remix"):
            folder = write_run(tmp_path / "runs" / f"{method}{seed}", method, seed)
            summary = json.loads((folder / "summary.json").read_text())
            summary["processor_minutes"] = {"pmi": 10.0, "remix": 11.0}[method] * (seed + 1)
            (folder / "summary.json").write_text(json.dumps(summary))
            lines = (
                (folder / "metrics.jsonl").read_text().replace('"seconds": 240.0', '"seconds": 240.0, "processor": 90')
            )
            (folder / "metrics.jsonl").write_text(lines)
    _, text = make("efficiency", tmp_path / "efficiency", seeds="0-1")
    assert "paired seeds 0, 1: minutes 1.00 ± 0.00, processor minutes 1.10 ± 0.00" in text
    assert "| processor minutes: dream | 4.5 ± 0.0 | 4.5 ± 0.0 |" in text
    assert float(rows_of(tmp_path / "efficiency" / "efficiency.csv")[0]["processor minutes: dream"]) == 4.5


def test_sensitivity_says_what_may_be_said(tmp_path, monkeypatch, preset):
    monkeypatch.setattr(sensitivity, "_PRESET", {"mini": preset})
    monkeypatch.setattr(sensitivity, "_WEIGHTS", (0.0, 0.5))
    for seed in (0, 1):
        for weight, right in ((0.0, 60 + seed), (0.5, 80 - seed)):
            words = [f"settings.inversion.prior.weight={weight}"]
            write_run(tmp_path / "runs" / f"{weight}-{seed}", "remix", seed, right=right, assignments=words)
    _, text = make("lambda", tmp_path / "lambda", seeds="0,1")
    assert "differ by 19.00 points between weights; the highest is that of 0.5" in text
    assert "Choosing it here would be choosing on test images" in text
    assert "weight 0.5 minus weight 0: +19.00 points" in text
    assert [row["weight"] for row in rows_of(tmp_path / "lambda" / "lambda.csv")] == ["0.0", "0.0", "0.5", "0.5"]


def test_table1_names_the_paper_s_numbers_and_keeps_the_improved_one_apart(tmp_path, monkeypatch, preset):
    changed = ("settings.together=true",)
    improved = [Variant(preset, method, changed, f"{method}-improved") for method in ("pmi", "remix")]
    small = [Variant(preset, method) for method in ("finetune", "remix")]
    monkeypatch.setattr(table1, "variants", lambda scale: [*small, *improved])
    monkeypatch.setattr(table1, "_PUBLISHED", {"small": {"remix": 45.38}})
    write_run(tmp_path / "runs" / "f", "finetune", right=30)
    write_run(tmp_path / "runs" / "r", "remix", right=70)
    write_run(tmp_path / "runs" / "i", "remix", right=80, assignments=changed)
    write_run(tmp_path / "runs" / "p", "pmi", right=75, assignments=changed)
    _, text = make("table1", tmp_path / "t", seeds="0", finished=True)
    assert "Last accuracy in the paper: remix 45.38." in text
    assert "remix minus finetune: +40.00" in text
    assert "remix-improved minus remix: +10.00" in text
    assert "remix-improved minus pmi-improved: +5.00" in text
    assert "remix-improved minus finetune" not in text
    assert "pmi-improved minus pmi" not in text  # that has no runs
    columns = rows_of(tmp_path / "t" / "table1.csv")[-1]
    assert (columns["preset"], columns["data"], columns["tasks"]) == ("small", "digits", "3")
    assert columns["method"] == "remix-improved"
    assert "processor_minutes" in columns


@pytest.mark.slow
def test_a_run_that_fails_is_told_and_the_rest_is_shown(tmp_path, monkeypatch, preset):
    (tmp_path / "runs").mkdir()
    write_run(tmp_path / "runs" / "good", "finetune")
    bad = Variant("digits", "finetune", ("settings.first.lr=1e30", *QUICK), "wild")  # its loss is not finite
    monkeypatch.setattr(table1, "variants", lambda scale: [Variant(preset, "finetune"), bad])
    complete, text = make("table1", tmp_path / "t", seeds="0")
    assert not complete
    assert "crashed" in text
    assert [row["method"] for row in rows_of(tmp_path / "t" / "table1.csv")] == ["finetune"]
