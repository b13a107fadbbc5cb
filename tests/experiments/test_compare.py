"""Runs side by side."""

import csv
import io
import json

import pytest
import yaml
from rich.console import Console

from remix.cli import main
from remix.cli.output import show_comparison
from remix.experiments.compare import compare_by_data, compare_runs, format_comparison, variant_names
from remix.experiments.config import resolve
from remix.experiments.run_directory import RunDirectoryError
from remix.learning.metrics import AccuracyMatrix
from remix.support.settings import SettingError


def finished(folder, method, seed, last, on="digits", **config):
    """A run of two tasks that ended with ``last`` of 100 images of both tasks right."""
    folder.mkdir(parents=True)
    matrix = AccuracyMatrix()
    matrix.add_row([90], [100])
    matrix.add_row([last, last], [100, 100])
    summary = {
        "method": method, "data": on, "tested_on": "test", "seed": seed, "tasks": 2,
        "metrics": matrix.summary(), "matrix": matrix.to_dict(),
        "minutes": {}, "minutes_in_all": 2.0, "processor_minutes": 2.0, "peak_memory_mib": 100,
    }  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary))
    values = resolve("digits", method=method, seed=seed).to_plain() | config
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    return folder


@pytest.fixture
def runs(tmp_path):
    for seed, remix, finetune in ((0, 80, 40), (1, 84, 42), (2, 82, 47)):
        finished(tmp_path / f"remix-{seed}", "remix", seed, remix)
        finished(tmp_path / f"finetune-{seed}", "finetune", seed, finetune)
    return tmp_path


def test_mean_deviation_and_paired_difference(runs):
    found = compare_runs([runs])
    assert list(found.summaries) == ["finetune", "remix"]
    assert str(found.spread("remix", "last_accuracy_macro")) == "82.00 ± 2.00"
    assert str(found.spread("remix", "forgetting")) == "8.00 ± 2.00"
    (sentence,) = found.sentences()
    assert sentence.startswith("remix minus finetune: +39.00 points of last accuracy on average over 3 paired seeds")
    assert found.remarks == ()


def test_markdown_latex_and_csv_hold_the_same_numbers(runs):
    found = compare_runs([runs / "remix-0", runs / "remix-1", runs / "finetune-0"])
    lines = format_comparison({"digits": found}, "markdown").splitlines()
    assert lines[0].startswith("| method | seeds | last accuracy |")
    assert lines[3].startswith("| remix | 0 1 | 82.00 ± 2.83 |")
    assert r"82.00 $\pm$ 2.83" in format_comparison({"digits": found}, "latex")
    rows = list(csv.DictReader(io.StringIO(format_comparison({"digits": found}, "csv"))))
    assert [(row["method"], row["seed"], float(row["last_accuracy_micro"])) for row in rows] == [
        ("finetune", "0", 40.0), ("remix", "0", 80.0), ("remix", "1", 84.0),
    ]  # fmt: skip
    with pytest.raises(SettingError, match="format must be one of"):
        format_comparison({"digits": found}, "html")


def test_the_numbers_of_single_seeds_are_not_taken_for_how_many(runs):
    lines = format_comparison(
        {"digits": compare_runs([runs / "remix-0", runs / "finetune-0"])}, "markdown"
    ).splitlines()
    assert lines[0].startswith("| method | seed | last accuracy |")
    assert lines[2].startswith("| finetune | 0 | 40.00 |")


def test_a_quoted_glob_is_that_of_the_shell(runs, monkeypatch):
    (runs / "remix-0.log").write_text("a log")
    monkeypatch.chdir(runs.parent)
    found = compare_runs([f"{runs.name}/remix-*"])
    assert {name: list(seeds) for name, seeds in found.summaries.items()} == {"remix": [0, 1, 2]}
    with pytest.raises(RunDirectoryError, match="there is no folder"):
        compare_runs([f"{runs.name}/*.log"])


def test_two_matrices_fit_side_by_side(runs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    main(["compare", str(runs), "--matrices"])
    lines = capsys.readouterr().out.splitlines()
    assert any("finetune, seed 0" in line and "remix, seed 0" in line for line in lines)


def test_what_cannot_be_compared_is_refused(runs, tmp_path):
    with pytest.raises(RunDirectoryError, match="there is no folder"):
        compare_runs([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunDirectoryError, match="holds no run"):
        compare_runs([tmp_path / "empty"])
    finished(tmp_path / "again" / "remix", "remix", 0, 50)
    with pytest.raises(SettingError, match="are both remix with seed 0"):
        compare_runs([runs / "remix-0", tmp_path / "again"])
    (runs / "remix-0" / "summary.json").unlink()
    assert "not finished, left out" in compare_runs([runs]).remarks[0]
    with pytest.raises(SettingError, match="no finished run"):
        compare_runs([runs / "remix-0"])


def test_unequal_runs_are_pointed_out(runs, tmp_path):
    other = finished(tmp_path / "other" / "run", "pmi", 0, 60, batch_size=32)
    assert "batch_size" in compare_runs([runs / "remix-0", other]).remarks[0]


def test_runs_on_other_data_are_another_line_and_no_difference_is_taken(runs):
    for seed in (0, 5):
        typed = resolve("digits", method="remix", seed=seed, assignments=["data.tasks=2"]).to_plain()
        finished(runs / f"two-{seed}", "remix", seed, 50, "two tasks", data=typed["data"])
    found = compare_runs([runs])
    assert list(found.summaries) == ["finetune", "remix (data.tasks=2)", "remix (data.tasks=5)"]
    assert list(found.summaries["remix (data.tasks=2)"]) == [0, 5]
    assert [sentence.partition(":")[0] for sentence in found.sentences()] == ["remix (data.tasks=5) minus finetune"]


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("summary.json", "{}"),
        ("summary.json", "[1]"),
        ("summary.json", '{"matrix": {"correct": [[1]]}}'),
        ("config.yaml", "method: remix\n"),
        ("config.yaml", "method: remix\nseed: 0\ndata: {name: digits, tasks: 5}\nsettings: 3\n"),
    ],
)
def test_a_damaged_file_is_a_sentence(runs, capsys, file, content):
    (runs / "remix-0" / file).write_text(content)
    with pytest.raises(SystemExit) as stop:
        main(["compare", str(runs)])
    assert stop.value.code == 2
    assert str(runs / "remix-0" / file) in capsys.readouterr().err


def test_one_seed_is_compared_with_a_warning(runs, capsys):
    main(["compare", str(runs / "remix-0"), str(runs / "finetune-0"), "--format", "markdown"])
    shown = capsys.readouterr().out
    assert "| remix | 0 | 80.00 |" in shown
    assert "One seed says nothing about chance" in " ".join(shown.split())


def test_one_method_with_two_settings_is_compared_with_itself(runs):
    typed = resolve("digits", method="remix", seed=0, assignments=["settings.inversion.prior.form=typical"]).to_plain()
    for seed, last in ((0, 85), (1, 88)):
        finished(runs / f"typical-{seed}", "remix", seed, last, settings=typed["settings"])
    found = compare_runs([runs])
    assert list(found.summaries) == ["finetune", "remix (prior.form=nll)", "remix (prior.form=typical)"]
    assert list(found.summaries["remix (prior.form=typical)"]) == [0, 1]
    assert any(
        line.startswith("remix (prior.form=typical) minus remix (prior.form=nll): +4.50") for line in found.sentences()
    )


def test_settings_that_a_name_has_no_room_for_still_tell_runs_apart(runs):
    other = ["settings.first.epochs=3", "settings.head.epochs=3", "settings.last_block.epochs=3", "settings.samples=9"]
    for number, words in enumerate((other, *([f"settings.inversion.prior.weight={w}"] for w in (0.1, 0.2, 0.3)))):
        typed = resolve("digits", method="remix", seed=0, assignments=[*words, "settings.network.epochs=4"]).to_plain()
        finished(runs / f"other-{number}", "remix", 0, 50 + number, settings=typed["settings"])
    names = [name for name in compare_runs([runs]).summaries if name.startswith("remix")]
    assert len(names) == 5
    assert sum("prior.weight=0.2" in name for name in names) == 1


def test_latex_can_be_compiled_and_holds_nothing_but_a_table_and_comments(runs, capsys):
    typed = resolve("digits", method="remix", seed=0, assignments=["settings.last_block.epochs=0"]).to_plain()
    finished(runs / "other", "remix", 0, 70, settings=typed["settings"])
    main(["compare", str(runs), "--format", "latex"])
    lines = capsys.readouterr().out.splitlines()
    end = lines.index(r"\end{tabular}")
    assert any(r"last\_block.epochs=0" in line for line in lines[:end])
    assert len(lines) > end + 1
    assert all(line.startswith("% ") for line in lines[end + 1 :])


def test_names_are_whole_in_a_narrow_terminal(runs):
    text = io.StringIO()
    show_comparison("digits", compare_runs([runs]), Console(file=text, width=80))
    assert "…" not in text.getvalue().split("┡")[1]


HOSTILE = "=cmd|' /C calc'!A0 \\input{a_b} `x` <script> [c](http://d) \x1b[2J\n| ~^"


@pytest.mark.parametrize(
    ("form", "cell"),
    [
        ("csv", r"""'=cmd|' /C calc'!A0 \input{a_b} `x` <script> [c](http://d) \x1b[2J\n| ~^,"""),
        ("markdown", r"""| =cmd\|' /C calc'!A0 \\input{a_b} \`x\` \<script\> \[c\](http://d) \\x1b\[2J\\n\| ~^ |"""),
        (
            "latex",
            r"""=cmd|' /C calc'!A0 \textbackslash{}input\{a\_b\} `x` <script> [c](http://d) \textbackslash{}x1b[2J"""
            r"""\textbackslash{}n| \textasciitilde{}\textasciicircum{} &""",
        ),
    ],
)
def test_whatever_a_method_is_called_stays_text(tmp_path, capsys, form, cell):
    values = yaml.safe_load((finished(tmp_path / "run", "remix", 0, 80) / "config.yaml").read_text())
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(values | {"method": HOSTILE}))
    for other in (form, "table"):
        main(["compare", str(tmp_path / "run"), "--format", other, "--matrices"])
        shown = capsys.readouterr().out
        assert "\x1b" not in shown
        if other == form:
            assert cell in shown


def test_thousands_of_runs_are_named_in_time_for_each():
    """Ten times the runs took a hundred times as long."""
    settings = resolve("digits", method="remix").to_plain()["settings"]
    names = variant_names([("remix", settings | {"samples": number % 7}) for number in range(5000)])
    assert names[8] == "remix (samples=1)"
    assert len(set(names)) == 7


def test_runs_of_which_one_lacks_a_setting_have_names():
    assert variant_names([("a", {"x": 1, "y": 2}), ("a", {"x": 1})]) == ["a (y=2)", "a"]
    assert len(variant_names([("a", {"b.b.b": 1, "c.b.b": 2}), ("a", {"c.b.b": 1}), ("a", {"b.b.b": 1})])) == 3


def test_loops_of_links_are_no_runs(tmp_path):
    finished(tmp_path / "run", "remix", 0, 80)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "up").symlink_to(tmp_path)
    assert list(compare_runs([tmp_path]).summaries) == ["remix"]


def test_pictures_that_are_not_of_a_task_are_passed_over(tmp_path, capsys):
    (finished(tmp_path / "run", "remix", 0, 80) / "dreams").mkdir()
    for name in ("task-x.png", "task-2.png"):
        (tmp_path / "run" / "dreams" / name).touch()
    main(["compare", str(tmp_path / "run"), "--matrices"])
    assert "dreams/task-2.png" in capsys.readouterr().out


def test_settings_that_have_a_name_are_told_apart_by_it():
    paper, code = {"setting": "paper", "x": 1, "y": {"z": 2}}, {"setting": "code", "x": 3, "y": {"z": 4}}
    assert variant_names([("remix", paper), ("remix", code), ("pmi", paper)]) == ["remix-paper", "remix-code", "pmi"]
    heavier = code | {"x": 5}
    names = variant_names([("remix", paper), ("remix", code), ("remix", heavier)])
    assert names == ["remix-paper", "remix-code (x=3)", "remix-code (x=5)"]


def test_an_interval_of_the_mean_is_that_of_student(runs):
    found = compare_runs([runs])
    # 80, 84 and 82: a mean of 82, a deviation of 2, and 4.3027 for two degrees of freedom
    low, high = found.spread("remix", "last_accuracy_macro").interval
    assert (low, high) == pytest.approx((82 - 4.3027 * 2 / 3**0.5, 82 + 4.3027 * 2 / 3**0.5), abs=1e-3)
    assert found.interval("remix") == "77.0 to 87.0"
    assert compare_runs([runs / "remix-0"]).interval("remix") == ""


def test_every_data_set_has_a_table_of_its_own(runs, capsys, monkeypatch):
    data = resolve("fashion-5").to_plain()["data"]
    finished(runs / "fashion", "lwf", 0, 60, "fashion-mnist", data=data)
    groups = compare_by_data([runs])
    assert {name: list(found.summaries) for name, found in groups.items()} == {
        "fashion-mnist": ["lwf"], "digits": ["finetune", "remix"],
    }  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    main(["compare", str(runs)])
    shown = capsys.readouterr().out
    assert shown.index("fashion-mnist: percent") < shown.index("digits: percent")
    assert "77.0 to 87.0" in shown
    assert "…" not in shown
    rows = list(csv.DictReader(io.StringIO(format_comparison(groups, "csv"))))
    assert [row["data"] for row in rows] == ["fashion-mnist", *["digits"] * 6]
    assert "**digits**" in format_comparison(groups, "markdown")


def test_other_files_that_a_glob_matches_are_left_out(runs):
    (runs / "remix-0.log").write_text("said")
    (runs / "slurm").mkdir()
    everything = sorted(runs.iterdir())
    assert list(compare_runs(everything).summaries) == ["finetune", "remix"]
    with pytest.raises(RunDirectoryError, match="there is no folder"):
        compare_runs([*everything, runs / "nowhere"])
    with pytest.raises(RunDirectoryError, match=r"there is no folder .*remix-0\.log"):
        compare_runs([runs / "remix-0.log"])
