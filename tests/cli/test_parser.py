"""The command line: help at once, and what is mistyped is said in words."""

import subprocess
import sys

import pytest

from remix import __version__, cli
from remix.cli import main


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("run digits --seed x", "argument --seed: must be a whole number, got 'x'"),
        ("run digits --devices 1.5", "argument --devices: must be a whole number, got '1.5'"),
        ("learn m.remix images --lr fast", "argument --lr: must be a number, got 'fast'"),
        ("data check cifar100", "invalid choice: 'check'"),
        ("docter", "there is no command 'docter' (did you mean 'doctor'?)"),
        ("run digits --mthod lda", "remix run: there is no option --mthod (did you mean '--method'?)"),
        ("report runs --ot page.html", "there is no option --ot (did you mean '--out'?)"),
        ("run digits --task=5", "there is no option --task (did you mean '--tasks'?)"),
        ("run digits lda", "'lda' is one word too many"),
        ("learn photos", "the following arguments are required: --out (remix learn --help says more)"),
    ],
)
def test_a_mistyped_value(typed, said, capsys):
    with pytest.raises(SystemExit) as stop:
        main(typed.split())
    assert stop.value.code == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert "<class" not in errors
    assert "usage" not in errors
    if "invalid choice" not in said:
        assert errors.count("\n") == 1


def test_help_and_version_do_not_import_torch():
    code = (
        "import sys; from remix import cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    for words, expected in (("--help", "doctor"), ("--version", __version__), ("run --help", "--validation")):
        run = subprocess.run([sys.executable, "-c", code, *words.split()], capture_output=True, text=True, check=True)
        assert expected in run.stdout


def test_no_arguments_shows_help(capsys):
    with pytest.raises(SystemExit):
        cli.main([])
    assert "doctor" in capsys.readouterr().out


def test_unknown_command_lists_what_exists(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["docter"])
    assert stop.value.code == 2
    message = capsys.readouterr().err
    assert "docter" in message
    assert "doctor" in message


def test_every_command_explains_itself(capsys):
    for name, function in cli.COMMANDS.items():
        assert function.__doc__
        with pytest.raises(SystemExit):
            cli.main([name, "--help"])
        shown = " ".join(capsys.readouterr().out.split())
        assert function.__doc__.splitlines()[0].split(",")[0] in shown
