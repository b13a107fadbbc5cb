"""Many runs: on this machine, on a cluster, and what is tried again."""

import os
import sys

import pytest
from rich.console import Console

from remix.experiments import sweep_runners
from remix.experiments.sweep import Job, finish_jobs, sweep_jobs
from remix.experiments.sweep_runners import run_locally
from remix.support.display import say
from remix.support.settings import SettingError

TINY = ["data.classes=4", "data.tasks=2", "method=finetune,lwf", "settings.first.epochs=1", "settings.later.epochs=1"]


def script(tmp_path, name, body):
    """A job that runs Python instead of a training; `folder` is its folder."""
    folder = tmp_path / name
    start = f"import os, sys, time, pathlib\nfolder = pathlib.Path({str(folder)!r})\nfolder.mkdir(exist_ok=True)\n"
    end = "\ndef finish(): (folder / 'summary.json').write_text('{}')\n"
    return Job(folder, ("-c", start + end + body))


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.setattr(sweep_runners, "_command", lambda job: [sys.executable, *job.words])


def test_a_crashed_run_is_tried_again_one_that_failed_by_itself_or_was_refused_is_not(tmp_path, scripts):
    second = "again = folder / 'again'\nif again.exists(): finish()\nelse: again.touch(); os.abort()"
    jobs = [
        script(tmp_path, "good", "finish()"),
        script(tmp_path, "second", second),
        script(tmp_path, "never", "sys.exit(1)"),
        script(tmp_path, "refused", "print('no such data'); sys.exit(2)"),
    ]
    told = []
    ends = run_locally(jobs, 2, lambda job, status: told.append((job.name, status)))
    assert ends == {"good": "finished", "second": "finished", "never": "failed", "refused": "refused"}
    assert told.count(("second", "runs")) == 2
    assert told.count(("never", "runs")) == 1
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


@pytest.mark.slow
def test_the_path_of_a_cluster_finishes_the_same_runs(tmp_path):
    """The same jobs through submitit's local executor: the cluster itself is not to be had in a test."""
    pytest.importorskip("submitit", reason="submitit is an optional extra: pip install 'remix-dfcil[slurm]'")
    from remix.experiments.sweep_runners import run_on_slurm

    jobs = sweep_jobs("digits", [*TINY[:2], "method=finetune", *TINY[3:]], [0], tmp_path, None)
    ends = run_on_slurm(jobs, 1, lambda job, status: None, cluster="local", options=["timeout_min=5"])
    assert ends == {jobs[0].name: "finished"}
    with pytest.raises(SettingError, match="timeout_min=600"):
        run_on_slurm(jobs, 1, lambda job, status: None, cluster="local", options=["nonsense"])
