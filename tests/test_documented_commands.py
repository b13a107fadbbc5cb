"""Every command in README.md, docs/ and the help: understood, and either run here or marked with what it needs."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess

import docstring_parser
import pytest
from accepted_commands import check_accepted
from documented_commands import COMMANDS, PAGES, ROOT, Command, commands_of, hidden_commands
from tiny_world import PLACEHOLDERS, in_world, make_world, shortened

from remix.cli import COMMANDS as SUBCOMMANDS
from remix.cli import main
from remix.experiments.config import list_presets

WHOLE = [command for command in COMMANDS if command.whole]
LEFT_OUT = [command for command in COMMANDS if not command.whole and not command.name]
NAMES = [command for command in COMMANDS if command.name]
FOLLOWED = [command.text for command in COMMANDS if command.place.startswith("docs/tutorial.md")]  # by test_tutorial.py
ELSEWHERE = {"remix reproduce memory": 'main(["reproduce", "memory", "--out"'}  # and a test that runs the same line
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
RECIPES = [
    Command("Makefile", re.sub(r"^\t@?\$\(BIN\)/", "", line).replace("-$$(($(SEEDS) - 1))", ""), False)
    for line in MAKEFILE.splitlines()
    if re.match(r"\t@?\$\(BIN\)/remix ", line)
]
EXAMPLES = [
    Command(f"remix {name} --help", line.strip(), False)
    for name, function in SUBCOMMANDS.items()
    for example in docstring_parser.parse(inspect.getdoc(function) or "").examples
    for line in (example.description or "").splitlines()
]


def needs_nothing(name: str) -> bool:
    """Whether a sub-command can be typed without any argument."""
    parameters = inspect.signature(SUBCOMMANDS[name]).parameters.values()
    return all(parameter.default is not inspect.Parameter.empty for parameter in parameters)


def runnable() -> list[Command]:
    """Each once: what is not marked, not followed by the test of the tutorial, and no mere name of a command."""
    alone = [command for command in NAMES if command.words[0] == "remix" and needs_nothing(command.words[1])]
    typed = [command for command in WHOLE if not command.marked and command.text not in FOLLOWED]
    typed = [command for command in typed if " ".join(filled(command)) not in ELSEWHERE]
    return list({_seen_from_the_world(command): command for command in (*alone, *RECIPES, *typed)}.values())


def _seen_from_the_world(command: Command) -> str:
    """Commands that differ only in what files are called are the same there."""
    return re.sub(r"--out \S+?(\.\w+)?( |$)", r"--out \1\2", " ".join(in_world(command.words, ROOT)))


def filled(command: Command) -> list[str]:
    """Its words with names of things instead of M, S, NAME, ..."""
    return [PLACEHOLDERS.get(word, word) for word in command.words]


@pytest.mark.parametrize("command", [*WHOLE, *LEFT_OUT, *EXAMPLES, *RECIPES], ids=lambda command: command.place)
def test_a_command_is_understood(command):
    check_accepted(filled(command), ROOT)


@pytest.mark.parametrize("command", NAMES, ids=lambda command: f"{command.place} {command.text}")
def test_a_named_command_exists(command):
    program, name = command.words[:2]
    if program == "remix":
        assert name in SUBCOMMANDS
    else:
        check_accepted(command.words, ROOT)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_option_in_a_sentence_exists(page):
    keys = {key for function in SUBCOMMANDS.values() for key in inspect.signature(function).parameters}
    known = {f"--{key.replace('_', '-')}" for key in keys}
    for typed in re.findall(r"(?<!`)`(--[^`]+)`(?!`)", page.read_text("utf-8")):
        words = typed.split()
        assert {word for word in words if word.startswith("--")} <= known, typed
        if "--set" in words[:-1]:
            check_accepted(["remix", "run", "cifar100-mini", *words], ROOT)


def test_every_preset_is_explained():
    text = (ROOT / "docs" / "runs.md").read_text("utf-8")
    for name in list_presets():
        stem, _, number = name.rpartition("-")
        assert f"`{name}`" in text or (f"`{stem}-5`" in text and f"`-{number}`" in text), name


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.mark.slow
@pytest.mark.parametrize("command", runnable(), ids=lambda command: command.place)
def test_a_command_that_is_not_marked_runs(command, world, tmp_path, monkeypatch):
    words = command.words
    assert words[0] == "remix", f"no test can run this: say in {command.place} what it needs, such as # needs a GPU"
    monkeypatch.chdir(tmp_path)
    if words[1] == "report" and words[2].startswith("demo-output"):
        shutil.copytree(world / "runs", "demo-output")
    main(shortened(in_world(words, world))[1:])  # a command that fails raises SystemExit


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_command_hides_in_another_kind_of_block(page):
    """Commands in plain or indented blocks would not be looked at: mark the block as sh."""
    assert hidden_commands(page.read_text("utf-8")) == []


def test_make_help_runs():
    if shutil.which("make") is None:
        pytest.skip("needs make")
    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "make demo" in said


def test_most_commands_about_models_and_runs_are_run():
    """A mark that is found where none was meant would leave a command out unseen."""
    assert {command.words[1] for command in runnable()} == set(SUBCOMMANDS)
    assert ELSEWHERE["remix reproduce memory"] in (ROOT / "tests/reproduce/test_memory.py").read_text("utf-8")


PAGE = """# A page

`remix doctor` is a name, `remix run digits --seed 1` a command. So is

```sh
remix run digits --set a=1 \\
    b=2                      # a comment
remix run cifar100-mini      # needs CIFAR-100, half an hour
# needs a GPU
remix run cifar100-5
remix run cifar100-10

remix run "a # b"
```

## Here it is `remix export m.remix`, which needs a GPU

The other one, `remix run
tiny-5`, needs hours. | `remix run tiny-10`

*Needs a GPU.*

- `remix run ... --seed 1`
"""


def test_how_a_page_is_read():
    found = [(command.text, command.marked) for command in commands_of("page", PAGE)]
    assert found == [
        ("remix doctor", False),
        ("remix run digits --seed 1", False),
        ("remix run digits --set a=1 b=2", False),
        ("remix run cifar100-mini", True),
        ("remix run cifar100-5", True),
        ("remix run cifar100-10", True),
        ('remix run "a # b"', False),
        ("remix export m.remix", True),
        ("remix run tiny-5", True),
        ("remix run tiny-10", True),
        ("remix run ... --seed 1", True),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "remix run no-such-preset",
        "remix run digits --method nothing",
        "remix run digits --set settings.epoch=1",
        "remix dreams m.remix --out a.png",
        "remix dream m.remix --out a.png --prior smooth",
        "remix predict m.remix a.jpg --no-such-option",
        "remix learn photos/ --backbone resnet35 --out m.remix",
        "remix reproduce everything",
        "remix run ... --sead 1",
        "python -m benchmarks.fit_times",
        "python -m benchmarks.train_vit --data DIR --out DIR --minuets 3",
        "python examples/none.py",
        "make coffee",
        "source .venv/bin/activat",
        "rmm -r digits/first",
        "pip install 'remix-dfcil[nothing]'",
    ],
)
def test_a_wrong_command_is_noticed(text, capsys):
    with pytest.raises((SystemExit, AssertionError, ValueError)):
        check_accepted(Command("here", text, False).words, ROOT)
