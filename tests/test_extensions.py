"""Data sets, networks and methods of one's own, in the command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remix.cli import main

ROOT = Path(__file__).parents[1]


def test_a_run_with_everything_of_ones_own(tmp_path):
    words = ["run", "digits", "--method", "feature-replay", "--out", str(tmp_path / "run"), "--set"]
    words += ["data.name=mirrored-digits", "network.backbone=two-convolutions", "data.tasks=2", "data.classes=4"]
    command = [sys.executable, "-m", "remix.cli", *words, "settings.first.epochs=1", "settings.later.epochs=1"]
    environment = {**os.environ, "REMIX_IMPORT": str(ROOT / "examples" / "extend.py")}
    for resume in ([], ["--resume"]):
        done = subprocess.run([*command, *resume], capture_output=True, text=True, env=environment, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "run" / "model.remix").is_file()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("nowhere.py", None, "FileNotFoundError"),
        ("no_such_module", None, "ModuleNotFoundError"),
        ("broken.py", "def", "SyntaxError"),
        ("failing.py", "raise RuntimeError('not today')", "RuntimeError: not today"),
    ],
)
def test_what_cannot_be_imported_is_a_sentence(tmp_path, monkeypatch, capsys, name, content, said):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("REMIX_IMPORT", name)
    with pytest.raises(SystemExit) as stop:
        main(["methods"])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert f"REMIX_IMPORT names {name}, which cannot be imported ({said}" in error
    assert error.count("\n") == 1


def test_a_file_is_imported_once(tmp_path, monkeypatch, capsys):
    (tmp_path / "once.py").write_text("print('imported')")
    monkeypatch.setenv("REMIX_IMPORT", f"json,{tmp_path / 'once.py'}")
    main(["methods"])
    main(["presets"])
    assert capsys.readouterr().out.count("imported") == 1


def test_two_files_of_one_name_are_both_imported_and_a_pipe_is_not(tmp_path, monkeypatch, capsys):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(f"print('imported {folder}')")
    monkeypatch.setenv("REMIX_IMPORT", f"{tmp_path}/a/mine.py,{tmp_path}/b/mine.py")
    main(["presets"])
    shown = capsys.readouterr().out
    assert "imported a" in shown
    assert "imported b" in shown
    os.mkfifo(tmp_path / "pipe.py")
    monkeypatch.setenv("REMIX_IMPORT", f"{tmp_path}/pipe.py")
    with pytest.raises(SystemExit):
        main(["presets"])
    assert "a pipe, not a file" in capsys.readouterr().err
