"""Reports of runs that are not finished, not whole, or do not belong together."""

import json
import os

import pytest
import yaml
from PIL import Image
from written_runs import write_run

from remix.cli import main

MINUTES = '{"matrix": {"counts": [2], "correct": [[1]]}, "minutes": {"dream": NaN}}'


@pytest.fixture
def made(tmp_path, capsys):
    """The page about folders, and what was printed."""

    def run(*folders) -> tuple[str, str]:
        main(["report", *map(str, folders), "--out", str(tmp_path / "report.html")])
        return (tmp_path / "report.html").read_text(), capsys.readouterr().out

    return run


def test_an_empty_folder_is_refused(tmp_path, refusal):
    (tmp_path / "empty").mkdir()
    message = refusal("report", tmp_path / "empty", "--out", tmp_path / "report.html")
    assert "holds no run" in message
    assert not (tmp_path / "report.html").exists()
    assert "there is no folder" in refusal("report", tmp_path / "nowhere", "--out", tmp_path / "report.html")


def test_an_empty_folder_among_others_is_named(tmp_path, made):
    (tmp_path / "empty").mkdir()
    page, said = made(tmp_path / "empty", write_run(tmp_path / "run"))
    for text in (page, said):
        assert f"left out: {tmp_path / 'empty'} holds no run" in text


def test_a_run_that_is_not_finished(tmp_path, made):
    page, said = made(write_run(tmp_path / "run", learned=2))
    assert "not finished: 2 of 3 tasks learned" in said
    assert "No run is finished yet" in page
    assert "not finished: 2 of 3 tasks learned" in page
    assert "78.50" in page  # its accuracy so far


def test_a_run_that_has_only_begun(tmp_path, made):
    run = write_run(tmp_path / "run", learned=0)
    page, _ = made(run)
    assert "No task has been learned yet" in page
    (run / "metrics.jsonl").unlink()
    assert "nothing has been written down yet" in made(run)[0]


def test_unfinished_runs_do_not_count_in_means(tmp_path, made):
    for seed, learned in ((0, 3), (1, 2)):
        write_run(tmp_path / "runs" / str(seed), seed=seed, learned=learned, right=80 + 10 * seed)
    page, _ = made(tmp_path / "runs")
    assert "not finished, so not part of the means" in page
    assert "remix 77.0 %;" in page.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"matrix": 3}', MINUTES, '{"matrix": {"counts": [1], "correct": []}}']
)
def test_a_half_written_summary_is_an_unfinished_run(tmp_path, made, content):
    run = write_run(tmp_path / "run")
    (run / "summary.json").write_text(content)
    page, said = made(run)
    assert f"{run / 'summary.json'}" in said
    assert "not finished: 3 of 3 tasks learned" in page


@pytest.mark.parametrize("content", ["", "method: [", "method: remix", "data: {name: digits, tasks: many}"])
def test_a_damaged_configuration_is_left_out_by_name(tmp_path, made, refusal, content):
    run = write_run(tmp_path / "run")
    (run / "config.yaml").write_text(content)
    assert str(run / "config.yaml") in refusal("report", run, "--out", tmp_path / "report.html")
    _, said = made(run, write_run(tmp_path / "other", seed=1))
    assert f"left out: {run / 'config.yaml'}" in said


def test_damaged_lines_of_metrics_are_named_and_skipped(tmp_path, made):
    run = write_run(tmp_path / "run")
    lines = (run / "metrics.jsonl").read_bytes().splitlines()
    bad = [
        b"not json", b"\xff\xfe", b"[1]", b'{"event": 3}', b'{"event": "epoch", "task": 1}',
        b'{"event": "epoch", "task": 1, "stage": "a", "epoch": 1, "rate": 0.1, "terms": {"x": "<b>"}}',
        b'{"event": "likelihood", "task": 1, "layers": [3]}', b'{"event": "phase", "task"',
        b'{"event": "phase", "task": 1, "phase": "dream", "seconds": NaN}',
    ]  # fmt: skip
    (run / "metrics.jsonl").write_bytes(b"\n".join([*lines[:2], *bad, *lines[2:]]))
    page, said = made(run)
    for number in range(3, 3 + len(bad)):
        assert f"{run / 'metrics.jsonl'}, line {number}: damaged, skipped" in said
        assert f"line {number}: damaged, skipped" in page
    assert said.count(": damaged, skipped") == len(bad)


def test_numbers_that_are_not_finite(tmp_path, made):
    run = write_run(tmp_path / "run")
    text = (run / "metrics.jsonl").read_text().replace('"distillation": 0.2', '"distillation": NaN')
    (run / "metrics.jsonl").write_text(text)
    page, _ = made(run)
    assert "NaN" not in page.split('id="content-data"')[1].split("</script>")[0]


def test_runs_of_different_presets_are_kept_apart(tmp_path, made):
    runs = [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", assignments=["data.classes=6"]),
        write_run(tmp_path / "c", assignments=["network.options={width: 4}"]),
    ]
    page, said = made(*runs)
    assert "these runs are of 3 different presets" in said
    assert "Numbers of one cannot be compared with those of another" in page
    assert page.count("<article ") == 3
    assert "digits (data.classes=6)" in page


def test_a_missing_seed_is_said(tmp_path, made):
    for seed in (0, 1):
        write_run(tmp_path / "runs" / f"remix-{seed}", seed=seed)
    write_run(tmp_path / "runs" / "finetune-0", "finetune")
    page, said = made(tmp_path / "runs")
    assert "finetune was not run with seed 1, which other methods were" in said
    assert "finetune was not run with seed 1" in page
    assert "with the one seed that both have" in page


def test_the_same_run_twice(tmp_path, made, refusal):
    run = write_run(tmp_path / "runs" / "a")
    page, _ = made(run, tmp_path / "runs", run)
    assert page.count(">finished</td>") == 1
    again = write_run(tmp_path / "again")
    message = refusal("report", run, again, "--out", tmp_path / "other.html")
    assert "both remix with seed 0; name one" in message


def test_damaged_pictures_are_named(tmp_path, made):
    run = write_run(tmp_path / "run")
    file = run / "dreams" / "task-2.png"
    file.write_bytes(file.read_bytes()[:200])
    (run / "dreams" / "task-3.png").write_text("no picture")
    page, _ = made(run)
    assert "task-2.png cannot be read" in page
    assert "task-3.png cannot be read" in page


def test_a_picture_without_layout_is_shown_whole(tmp_path, made):
    from PIL import Image

    run = write_run(tmp_path / "run")
    Image.new("RGB", (300, 100), "red").save(run / "dreams" / "task-3.png")
    assert made(run)[0].count('class="whole"') == 1


def test_a_damaged_matrix_is_said(tmp_path, made):
    run = write_run(tmp_path / "run", learned=2)
    (run / "matrix.csv").write_text("after_task,task_1\nrubbish")
    page, said = made(run)
    assert "its accuracies are left out" in said
    assert "not finished: 0 of 3 tasks learned" in page


@pytest.mark.parametrize("out", ["report.pdf", "."])
def test_where_a_page_cannot_go(tmp_path, refusal, out):
    run = write_run(tmp_path / "run")
    assert "--out must name a page that ends with .html" in refusal("report", run, "--out", tmp_path / out)


def test_a_folder_that_cannot_be_written(tmp_path, refusal):
    run = write_run(tmp_path / "run")
    (tmp_path / "file").write_text("")
    assert refusal("report", run, "--out", tmp_path / "file" / "report.html")


def test_old_runs_have_neither_machine_nor_phases_memory(tmp_path, made):
    run = write_run(tmp_path / "run")
    summary = json.loads((run / "summary.json").read_text())
    del summary["hardware"]
    (run / "summary.json").write_text(json.dumps(summary))
    kept = [line for line in (run / "metrics.jsonl").read_text().splitlines() if '"epoch"' in line or '"task",' in line]
    (run / "metrics.jsonl").write_text("\n".join(kept))
    assert "the hardware was not written down" in made(run)[0]


@pytest.mark.parametrize("change", [{"order": {}}, {"first": {"a": 1}}, {"options": 1.5}, {"tasks": 3, "classes": "x"}])
def test_data_that_cannot_be_understood_have_no_real_images(tmp_path, made, change):
    folder = write_run(tmp_path / "run")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["data"] |= change
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert "beside real images" not in made(folder)[0]


def test_pictures_that_are_none_or_too_large_are_named(tmp_path, made, monkeypatch):
    folder = write_run(tmp_path / "run")
    os.remove(folder / "dreams" / "task-3.png")
    os.mkfifo(folder / "dreams" / "task-3.png")
    Image.new("L", (12_000, 10_000)).save(folder / "dreams" / "task-2.png")
    page, _ = made(folder)
    assert "task-3.png cannot be read" in page
    assert "a pipe, not a file" in page
    assert "task-2.png cannot be read" in page
    assert "120000000 pixels" in page


def test_a_name_of_data_that_is_no_text_is_left_out(tmp_path, refusal):
    folder = write_run(tmp_path / "run")
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("name: digits", "name: [1]"))
    assert "is not the configuration of a run" in refusal("report", folder, "--out", tmp_path / "report.html")


def test_times_without_end_are_damage(tmp_path, made):
    folder = write_run(tmp_path / "run")
    event = {"event": "phase", "task": 1, "phase": "dream", "seconds": 1e308}
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(f"{json.dumps(event)}\n" * 20)
    assert "10 more lines are damaged" in made(folder)[1]
