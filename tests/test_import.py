"""What `import remix` gives: every room and the learner, each loaded when it is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_house import PACKAGE, ROOMS

import remix

PUBLIC = [room for room in ROOMS if room not in ("support", "cli")]


def in_a_new_process(code: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_importing_remix_loads_no_torch_and_no_room():
    loaded = "sorted(name for name in sys.modules if name.partition('.')[0] in ('remix', 'torch', 'numpy'))"
    assert in_a_new_process(f"import sys, remix; dir(remix); print({loaded})") == "['remix', 'remix._version']"


@pytest.mark.slow
@pytest.mark.parametrize("room", PUBLIC)
def test_a_room_is_there_without_an_import_of_its_own(room):
    path = in_a_new_process(f"import remix; print(remix.{room}.__file__)")
    assert Path(path) == PACKAGE / room / "__init__.py"


def test_names_of_a_room_are_reached_through_it():
    assert in_a_new_process("import remix; print(remix.laplace.fit.__module__)") == "remix.laplace.fitting.api"


def test_rooms_and_learner_are_listed():
    assert {*PUBLIC, "Learner", "load", "__version__", "__doc__"} <= set(dir(remix))
    assert set(remix.__all__) == {*PUBLIC, "Learner", "load", "__version__"}


@pytest.mark.parametrize(("typed", "meant"), [("lapace", "laplace"), ("network", "networks"), ("learner", "Learner")])
def test_a_mistyped_name_is_answered_with_the_nearest(typed, meant):
    with pytest.raises(AttributeError, match=rf"no attribute '{typed}' \(did you mean '{meant}'\?\)$"):
        getattr(remix, typed)


def test_a_name_like_no_other_is_refused_without_a_guess():
    with pytest.raises(AttributeError, match=r"no attribute 'zzz'$"):
        remix.zzz  # noqa: B018
