"""`remix sweep`: what is run and kept, and how it ends."""

import signal
import subprocess
import sys
import time

import pytest

from remix.cli import main

TINY = ["data.classes=4", "data.tasks=2", "method=finetune,lwf", "settings.first.epochs=1", "settings.later.epochs=1"]


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_runs_save_themselves_and_end_with_their_sweep_however_it_ends(tmp_path, ending):
    command = [sys.executable, "-m", "remix", "sweep", "digits", "--out", str(tmp_path), "--set", "method=remix"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    log = tmp_path / "digits-remix-seed0.log"
    wait_for(log, "task 1")
    process.send_signal(ending)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[ending]
    assert ("the same command" in said) == (ending != signal.SIGKILL)
    wait_for(log, "interrupted; all but the last minute or epoch is saved")


def wait_for(log, words):
    limit = time.monotonic() + 600
    while not (log.exists() and words in log.read_text()):
        assert time.monotonic() < limit, log.read_text()
        time.sleep(0.2)
