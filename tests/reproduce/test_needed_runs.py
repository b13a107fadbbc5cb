"""Targets of `remix reproduce` that are made of runs: the plan, what is shared, what is written."""

import copy

import pytest
from made_targets import make, rows_of
from tiny_runs import remix_run, tiny
from written_runs import write_run

from remix.experiments import estimate
from remix.experiments.config import differences, resolve
from remix.methods import list_methods, method_class
from remix.reproduce import Listener, needed_runs, retention, table1
from remix.reproduce.needed_runs import Variant, need_runs
from remix.reproduce.targets import Reproduction

QUICK = "settings.first.epochs=1", "settings.later.epochs=1", "data.classes=4", "data.tasks=2"


def test_the_plan_comes_first_and_changes_nothing(tmp_path):
    complete, text = make("lambda", tmp_path / "reproduce" / "lambda", dry_run=True, seeds="0-1", jobs=2)
    assert complete
    assert "14 runs to do" in text
    assert "2 at a time: about" in text
    assert "weight 0.25" in text
    assert "then, of every seed, one run on the test images" in text
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
    monkeypatch.setattr(estimate, "seconds_per_image", lambda config: 1e-3)
    _, text = make("table1", tmp_path / "t", scale="paper", dry_run=True)
    kinds = {name: method_class(name) for name in list_methods()}
    methods = [name for name, kind in kinds.items() if not kind.exact and not kind.transformers]
    assert f"{6 * (len(methods) + 3) * 5} runs to do" in text
    assert "pmi without selection" in text
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


@pytest.mark.slow
def test_a_run_that_fails_is_told_and_the_rest_is_shown(tmp_path, monkeypatch, preset):
    (tmp_path / "runs").mkdir()
    write_run(tmp_path / "runs" / "good", "finetune")
    bad = Variant("digits", "finetune", ("settings.first.lr=1e30", *QUICK), "wild")  # its loss is not finite
    monkeypatch.setattr(table1, "variants", lambda scale: [Variant(preset, "finetune"), bad])
    complete, text = make("table1", tmp_path / "t", seeds="0")
    assert not complete
    assert "failed" in text
    assert [row["method"] for row in rows_of(tmp_path / "t" / "table1.csv")] == ["finetune"]


def test_a_run_of_a_version_with_fewer_settings_is_known_again(tmp_path):
    def known(values):
        return not differences(needed_runs._completed(values), config)

    config = resolve("digits", method="remix").to_plain()
    fewer = copy.deepcopy(config)
    del fewer["settings"]["first"]["betas"]
    assert known(fewer)
    fewer["settings"]["first"]["epochs"] += 1
    assert not known(fewer)
    before_names = copy.deepcopy(config)
    del before_names["settings"]["setting"]
    assert not known(before_names)
    assert needed_runs._completed({"method": "none of ours"}) == {"method": "none of ours"}
