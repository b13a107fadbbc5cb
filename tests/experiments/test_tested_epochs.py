"""`remix run --test-every`: accuracy within a stage, without any effect on the run."""

import json

import pytest
from tiny_runs import remix_run, tiny

from remix.experiments.events import read_events
from remix.report import write_report
from remix.support.settings import SettingError


def go(method, out, *more, **options):
    return remix_run(tiny(method, out, *more), **options)


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    out = tmp_path_factory.mktemp("tested") / "pmi"
    assert go("pmi", out, "settings.first.epochs=5", test_every=2) == 0
    return out


def test_epochs_are_tested_and_the_last_one_is_the_result(tested):
    events = read_events(tested / "metrics.jsonl")
    epochs = events.of("epoch")
    assert [e["epoch"] for e in epochs if e["task"] == 1 and "accuracy_macro" in e] == [2, 4, 5]
    for result in events.of("task"):
        last = [event for event in epochs if event["task"] == result["task"]][-1]
        assert last["accuracy_macro"] == pytest.approx(result["accuracy_macro"])


def test_testing_changes_nothing(tmp_path):  # both runs here, with the threads of this test
    folders = tmp_path / "tested", tmp_path / "plain"
    for folder, every in zip(folders, (1, 0), strict=True):
        assert go("pmi", folder, test_every=every) == 0
    assert len({(folder / "matrix.csv").read_bytes() for folder in folders}) == 1
    events = [read_events(folder / "metrics.jsonl").of("epoch") for folder in folders]
    assert [event["terms"] for event in events[0]] == [event["terms"] for event in events[1]]
    assert not any("accuracy_macro" in event for event in events[1])


def test_the_report_draws_it(tested, tmp_path):
    write_report([str(tested)], str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "Accuracy while training" in page
    assert '"places":["first task, 2","first task, 4","first task, 5"]' in page


def test_the_report_of_other_runs_has_no_room_for_it(tmp_path):
    assert go("finetune", tmp_path / "run") == 0
    write_report([str(tmp_path / "run")], str(tmp_path / "page.html"))
    assert "Accuracy while training" not in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("accuracy", ["high", None, float("nan")])
def test_an_accuracy_that_is_no_number_is_damage(tmp_path, accuracy):
    event = {"event": "epoch", "task": 1, "stage": "a", "epoch": 1, "rate": 0.1, "terms": {}}
    lines = [json.dumps(event), json.dumps({**event, "accuracy_macro": accuracy})]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    found = read_events(tmp_path / "metrics.jsonl")
    assert len(found.events) == 1
    assert "line 2" in found.damages[0]


def test_a_negative_number_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(SettingError, match="--test-every"):
        go("finetune", tmp_path / "run", test_every=-1)
    assert not (tmp_path / "run").exists()
