"""The curves of a first task come from what its run wrote down."""

import json
import sys

import pytest

from benchmarks import first_task


def write(folder, **more):
    events = [
        {"event": "epoch", "task": task, "stage": "first task", "epoch": epoch, "epochs": 4,
         "rate": 0.1 if epoch < 3 else 0.01, "terms": {"cross-entropy": 1 / epoch}, **more}
        for task in (1, 2)
        for epoch in range(1, 5)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


def test_picture_and_table_of_the_first_task(tmp_path, monkeypatch, capsys):
    write(tmp_path, accuracy_macro=50.5)
    monkeypatch.setattr(sys, "argv", ["first_task", str(tmp_path), "--out", str(tmp_path / "out")])
    first_task.main()
    lines = (tmp_path / "out/first_task.csv").read_text().splitlines()
    assert lines[0] == "epoch,rate,cross-entropy,test_accuracy"
    assert lines[3] == "3,0.01,0.3333,50.5"
    assert len(lines) == 5
    assert (tmp_path / "out/first_task.png").stat().st_size > 5000
    assert "epoch 4 of 4: cross-entropy 0.250, accuracy 50.5 %" in capsys.readouterr().out


def test_a_run_that_was_not_tested_is_refused(tmp_path, monkeypatch, capsys):
    write(tmp_path)
    monkeypatch.setattr(sys, "argv", ["first_task", str(tmp_path)])
    with pytest.raises(SystemExit):
        first_task.main()
    assert "--test-every 1" in capsys.readouterr().err
