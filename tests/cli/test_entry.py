"""The command: data sets, networks and methods of one's own in it; how it ends when it is ended from outside, has no
memory, or no letters.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from remix.cli import main

ROOT = Path(__file__).parents[2]

WRITING = """
import time
from remix.support.files import written_whole
with written_whole("model.remix") as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    time.sleep(600)
"""


def started(folder, code, **more):
    """The command in the middle of something that an extension does."""
    (folder / "extension.py").write_text(code)
    environment = {**os.environ, "REMIX_IMPORT": "extension.py", **more.pop("env", {})}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [sys.executable, "-m", "remix", "run", "none"], cwd=folder, env=environment, **pipes, **more
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_leaves_no_half_written_file(number, tmp_path):
    with started(tmp_path, WRITING) as process:
        assert process.stdout.readline() == "writing\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert said == f"remix run: ended by {number.name}; no file is left half written; " \
        "the same command with --resume goes on\n"  # fmt: skip
    assert os.listdir(tmp_path) == ["extension.py"]


@pytest.mark.slow
def test_who_ignores_that_the_terminal_is_closed_goes_on(tmp_path):
    ignored = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}  # as nohup does
    with started(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGHUP)", **ignored) as process:
        _, said = process.communicate(timeout=60)
    assert "ended by" not in said
    assert "preset" in said


@pytest.mark.parametrize(
    "error",
    [
        "MemoryError()",
        "RuntimeError('DefaultCPUAllocator: can\\'t allocate memory: you tried to ...')",
        "ImportError('x.so: failed to map segment from shared object')",
    ],
)
def test_no_memory_is_told_in_a_sentence(error, monkeypatch, capsys):
    import remix.cli

    def full() -> None:
        """Nothing."""
        raise eval(error)

    monkeypatch.setitem(remix.cli.COMMANDS, "methods", full)
    with pytest.raises(SystemExit) as stop:
        main(["methods"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("remix methods: there is not enough memory")
    assert len(said.splitlines()) == 1


def test_too_little_memory_to_load_anything_is_told_before(tmp_path):
    command = f"ulimit -v 640000; exec {sys.executable} -m remix run digits --out {tmp_path / 'run'}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 2
    assert ended.stderr.startswith("remix run: there is not enough memory")
    assert not list(tmp_path.iterdir())


def test_an_error_in_the_package_itself_is_not_hidden(monkeypatch):
    import remix.cli

    def wrong() -> None:
        """Nothing."""
        raise RuntimeError("a fault of ours")

    monkeypatch.setitem(remix.cli.COMMANDS, "methods", wrong)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        main(["methods"])


def test_every_text_can_be_printed(tmp_path):
    code = "print('g\\u00fcte \\udcff'); raise ValueError('g\\u00fcte \\udcff \\x1b[2J')"
    with started(tmp_path, code, env={"PYTHONIOENCODING": "ascii"}) as process:
        shown, said = process.communicate(timeout=60)
    assert shown == "g\\xfcte \\udcff\n"
    assert "g\\xfcte \\xff \\x1b[2J" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_run_with_everything_of_ones_own(tmp_path):
    words = ["run", "digits", "--method", "feature-replay", "--out", str(tmp_path / "run"), "--set"]
    words += ["data.name=mirrored-digits", "network.backbone=two-convolutions", "data.tasks=2", "data.classes=4"]
    command = [sys.executable, "-m", "remix", *words, "settings.first.epochs=1", "settings.later.epochs=1"]
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
