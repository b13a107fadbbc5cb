"""Many runs: what is run, what is kept, what is tried again."""

import os
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from remix.cli import main
from remix.experiments import sweep_runners
from remix.experiments.sweep import Job, finish_jobs, parse_seeds, sweep_jobs
from remix.experiments.sweep_runners import run_locally
from remix.support.display import say
from remix.support.settings import SettingError

TINY = ["data.classes=4", "data.tasks=2", "method=finetune,lwf", "settings.first.epochs=1", "settings.later.epochs=1"]


def test_seeds():
    assert parse_seeds("0-4") == [0, 1, 2, 3, 4]
    assert parse_seeds("3, 7") == [3, 7]
    for wrong in ("", "a", "3-1", "1-", "-1"):
        with pytest.raises(SettingError):
            parse_seeds(wrong)


def test_every_combination_has_its_own_folder(tmp_path):
    jobs = sweep_jobs("digits", ["method=pmi,remix", "settings.samples=20,40"], [0, 1], tmp_path, None)
    assert len(jobs) == 8
    assert jobs[0].name == "digits-pmi-samples=20-seed0"
    assert len({job.folder for job in jobs}) == 8
    assert jobs[0].words[:2] == ("run", "digits")
    listed = sweep_jobs("digits", ["settings.first.milestones=[1,2]"], [0], tmp_path, None)
    assert "settings.first.milestones=[1,2]" in listed[0].words


@pytest.mark.parametrize(
    ("sets", "said"),
    [(["method=remx"], "did you mean 'remix'"), (["samples"], "key=value"), (["method=pmi,"], "value is missing"),
     (["method=pmi,pmi"], "given twice"), (["settings.smples=3"], "did you mean 'samples'")],
)  # fmt: skip
def test_mistakes_are_found_before_anything_runs(tmp_path, sets, said):
    with pytest.raises(SettingError, match=said):
        sweep_jobs("digits", sets, [0], tmp_path, None)


@pytest.fixture
def sweep(tmp_path, capsys, monkeypatch):
    """The command on tiny runs: its status and what it printed."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words, sets=TINY):
        try:
            main(["sweep", "digits", "--out", str(tmp_path), "--set", *sets, *words])
            status = 0
        except SystemExit as end:
            status = end.code
        return status, capsys.readouterr().out

    return run


def test_runs_are_made_kept_and_compared(tmp_path, sweep):
    status, text = sweep("--jobs", "2")
    assert status == 0
    assert "finetune" in text
    assert "lwf minus finetune" in text
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/summary.json")}
    assert len(before) == 2
    status, text = sweep("--dry-run")
    assert text.count("finished ") == 2
    status, text = sweep("--jobs", "2")
    assert status == 0
    assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/summary.json")} == before


def script(tmp_path, name, body):
    """A job that runs Python instead of a training; `folder` is its folder."""
    folder = tmp_path / name
    start = f"import os, sys, time, pathlib\nfolder = pathlib.Path({str(folder)!r})\nfolder.mkdir(exist_ok=True)\n"
    end = "\ndef finish(): (folder / 'summary.json').write_text('{}')\n"
    return Job(folder, ("-c", start + end + body))


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.setattr(sweep_runners, "_command", lambda job: [sys.executable, *job.words])


def test_a_crashed_run_is_tried_again_a_refused_one_is_not(tmp_path, scripts):
    second = "again = folder / 'again'\nif again.exists(): finish()\nelse: again.touch(); os.abort()"
    jobs = [
        script(tmp_path, "good", "finish()"),
        script(tmp_path, "second", second),
        script(tmp_path, "never", "sys.exit(1)"),
        script(tmp_path, "refused", "print('no such data'); sys.exit(2)"),
    ]
    told = []
    ends = run_locally(jobs, 2, lambda job, status: told.append((job.name, status)))
    assert ends == {"good": "finished", "second": "finished", "never": "crashed", "refused": "refused"}
    assert told.count(("second", "runs")) == 2
    assert told.count(("never", "runs")) == 2
    assert told.count(("refused", "runs")) == 1
    assert "no such data" in jobs[3].log.read_text()


def test_no_more_than_so_many_at_a_time(tmp_path, scripts):
    jobs = [script(tmp_path, f"job{i}", "time.sleep(0.3); finish()") for i in range(4)]
    now, most = set(), 0

    def watch(job, status):
        nonlocal most
        (now.add if status == "runs" else now.discard)(job.name)
        most = max(most, len(now))

    run_locally(jobs, 2, watch)
    assert most == 2


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_runs_save_themselves_and_end_with_their_sweep_however_it_ends(tmp_path, ending):
    command = [sys.executable, "-m", "remix.cli", "sweep", "digits", "--out", str(tmp_path), "--set", "method=remix"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = tmp_path / "digits-remix-seed0.log"
    wait_for(log, "task 1")
    process.send_signal(ending)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[ending]
    assert "the same command" in said or ending == signal.SIGKILL
    wait_for(log, "interrupted; all but the last minute or epoch is saved")


def wait_for(log, words):
    limit = time.monotonic() + 600
    while not (log.exists() and words in log.read_text()):
        assert time.monotonic() < limit, log.read_text()
        time.sleep(0.2)


def test_a_log_that_cannot_be_written_ends_the_runs_that_were_begun(tmp_path, scripts):
    jobs = [script(tmp_path, name, "time.sleep(600)") for name in ("first", "second")]
    os.mkfifo(jobs[1].log)
    told = []
    with pytest.raises(OSError, match="a pipe, not a file"):
        run_locally(jobs, 2, lambda job, status: told.append((job.name, status)))
    assert told == [("first", "runs"), ("first", "interrupted")]


def test_what_a_run_said_last_is_shown_as_it_is(tmp_path, scripts, capsys):
    job = script(tmp_path, "bad", "print('[/red] \\x1b[2J'); sys.exit(2)")
    say(Console(width=300), *finish_jobs([job], 1, lambda line: None, run_locally))
    assert "bad refused: [/red] \\x1b[2J" in capsys.readouterr().out


def test_the_path_of_a_cluster(tmp_path):
    """The same jobs through submitit's local executor: the cluster itself is not to be had in a test."""
    pytest.importorskip("submitit", reason="submitit is an optional extra: pip install 'remix-dfcil[slurm]'")
    from remix.experiments.sweep_runners import run_on_slurm

    jobs = sweep_jobs("digits", [*TINY[:2], "method=finetune", *TINY[3:]], [0], tmp_path, None)
    ends = run_on_slurm(jobs, 1, lambda job, status: None, cluster="local", options=["timeout_min=5"])
    assert ends == {jobs[0].name: "finished"}
    with pytest.raises(SettingError, match="timeout_min=600"):
        run_on_slurm(jobs, 1, lambda job, status: None, cluster="local", options=["nonsense"])
