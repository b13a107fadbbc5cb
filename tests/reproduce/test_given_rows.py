"""Rows of an earlier table in place of runs."""

from pathlib import Path

import pytest
import yaml
from made_targets import make, rows_of
from written_runs import write_run

from remix.experiments.config import resolve
from remix.reproduce import table1
from remix.reproduce.given_rows import RUN_COLUMNS, read_rows
from remix.reproduce.needed_runs import Variant

DOCS = Path(__file__).parents[2] / "docs" / "reproduce"


@pytest.mark.parametrize("target", ["table1", "efficiency", "retention", "lambda"])
def test_a_table_is_made_again_of_its_own_rows(tmp_path, target):
    _, text = make(target, tmp_path / "out", rows=str(DOCS / f"{target}.csv"), finished=True, seeds="0-2")
    kept = (DOCS / f"{target}.csv").read_text()
    assert (tmp_path / "out" / f"{target}.csv").read_text() == kept
    assert "runs are rows of an earlier table" in text
    assert not (tmp_path / "out" / "report.html").exists()  # there is no run to show


def test_a_run_goes_before_a_row_and_both_stand_in_one_table(tmp_path, monkeypatch, preset):
    ours = Variant(preset, "remix", (), "remix-ours")
    monkeypatch.setattr(table1, "variants", lambda scale: [Variant(preset, "finetune"), ours])
    for seed, right in ((0, 60), (1, 70)):
        write_run(tmp_path / "first" / f"f{seed}", "finetune", seed, right=right)
        write_run(tmp_path / "first" / f"r{seed}", "remix", seed, right=right + 20)
    make("table1", tmp_path / "a", runs=str(tmp_path / "first"), seeds="0-1")
    write_run(tmp_path / "second" / "r0", "remix", 0, right=100)
    rows = str(tmp_path / "a" / "table1.csv")
    complete, text = make("table1", tmp_path / "b", runs=str(tmp_path / "second"), rows=rows, seeds="0-1")
    assert complete
    assert "3 of 4 runs are rows of" in text
    assert "to do" not in text
    assert "remix-ours minus finetune: +30.00 points of last accuracy on average over 2 paired seeds" in text
    assert (tmp_path / "b" / "report.html").exists()


def test_rows_of_another_preset_or_of_validation_images_stand_for_nothing(tmp_path, preset):
    for row in ("other,weight 0,0.0,0,test", "small,weight 0,0.0,0,test", "small,weight 0,0.0,1,10% of the training"):
        rows = tmp_path / "rows.csv"
        names = "last_accuracy_macro,average_incremental_accuracy_macro,forgetting"
        rows.write_text(f"preset,method,weight,seed,tested_on,{names}\n{row},80,90,5\n")
        _, text = make("lambda", tmp_path / "out", rows=str(rows), preset=preset, dry_run=True)
        assert "7 runs to do" in text


def test_retention_of_tiny_imagenet_takes_its_runs_and_rows(tmp_path):
    for seed in (0, 1):
        folder = write_run(tmp_path / "runs" / f"remix{seed}", "remix", seed, right=80 + seed)
        config = resolve("tiny-mini", method="remix", seed=seed).to_plain()
        (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    rows = tmp_path / "rows.csv"
    line = "tiny-mini,pmi,0,{},{},{}\n"
    steps = line.format(1, 60, "") + line.format(2, 50, 40) + line.format(3, 45, 30)
    rows.write_text(f"preset,method,seed,after_task,new_task_accuracy,old_task_accuracy\n{steps}")
    out = tmp_path / "retention"
    _, text = make("retention", out, preset="tiny-mini", rows=str(rows), runs=str(tmp_path / "runs"), finished=True)
    assert "3 of 12 runs are finished" in text
    assert "| pmi | 0 | 60.00 | 50.00 | 45.00 |" in text
    assert "| pmi | 0 |  | 40.00 | 30.00 |" in text
    assert "| remix | 0 1 | 80.50 ± 0.71" in text
    assert {row["preset"] for row in rows_of(out / "retention.csv")} == {"tiny-mini"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lacks the column preset"),
        ("preset,method,seed\ndigits,pmi,0\n", "lacks the column last_accuracy_macro"),
        ("preset,method,seed,last_accuracy_macro\ndigits,pmi,zero,80\n", "line 2: seed must be a number, got 'zero'"),
        ("preset,method,seed,last_accuracy_macro\ndigits,pmi,0,nan\n", "last_accuracy_macro must be a number"),
        ("preset,method,seed,last_accuracy_macro\ndigits,pmi,0\n", "last_accuracy_macro must be a number, got None"),
        (f"preset,method,seed,last_accuracy_macro\ndigits,pmi,0,1{'0' * 400}\n", "must be a number, got '1000"),
        ("\udcff", "not text in UTF-8"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused(tmp_path, text, message):
    (tmp_path / "rows.csv").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=message):
        read_rows(tmp_path / "rows.csv", ["last_accuracy_macro"])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read .*rows.csv: No such file"):
        read_rows(tmp_path / "rows.csv", RUN_COLUMNS)
