"""What a person sees of a long run."""

from __future__ import annotations

import sys
from io import StringIO
from types import ModuleType

import pytest
from rich.console import Console

from remix.support.display import Display, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (61, "1 min 01 s"), (700, "12 min"), (3600, "1 h 0 min"), (7500, "2 h 5 min")],
)
def test_durations_have_two_units_at_most(seconds, text):
    assert duration(seconds) == text


def test_plain_lines_are_few_and_the_last_is_always_there():
    out = StringIO()
    with Display(Console(file=out, width=200)) as display:
        for step in range(1000):
            display.show(f"step {step}", step / 1000, {"features": 0.12345})
        display.show("end", 1.0, {"features": 0.1}, last=True)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert "features 0.1235" in lines[0]
    assert lines[-1].startswith("100 %  end")


def test_in_a_terminal_the_bar_shows_phase_and_terms():
    out = StringIO()
    with Display(Console(file=out, width=100, force_terminal=True)) as display:
        display.show("refine, step 3 of 10", 0.3, {"prior": 0.25})
        display._live.refresh()
        display.say("a note")
    shown = out.getvalue()
    assert "refine, step 3 of 10" in shown
    assert "prior 0.25" in shown
    assert "a note" in shown


class Notebook:
    """Stands for IPython: what a cell shows, by place, and how often it changed."""

    def __init__(self):
        self.shown, self.changes = [], 0

    def display(self, data, raw, display_id):
        assert raw
        assert display_id
        self.shown.append(data["text/plain"])
        return self

    def update(self, data, raw):
        self.shown[-1], self.changes = data["text/plain"], self.changes + 1


@pytest.fixture
def notebook(monkeypatch):
    made = Notebook()
    module = ModuleType("IPython.display")
    module.display = made.display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return made


def test_in_a_notebook_one_line_changes(notebook):
    with Display(Console(force_jupyter=True)) as display:
        for step in range(1000):
            display.show(f"step {step}", step / 1000, {"loss": 0.5})
        assert "░░░   0 %  step 0  loss 0.5" in notebook.shown[0]
        display.show("end", 1.0, {}, last=True)
        assert notebook.shown[0].endswith("██ 100 %  end")
    assert notebook.shown == ["done in 0 s"]
    assert notebook.changes < 10


def test_in_a_notebook_what_was_stopped_says_so(notebook):
    with pytest.raises(KeyError), Display(Console(force_jupyter=True)):
        raise KeyError
    assert notebook.shown == ["stopped after 0 s"]


def test_a_narrow_terminal_cuts_no_number_and_the_last_line_stays():
    out = StringIO()
    with Display(Console(file=out, width=40, force_terminal=True)) as display:
        display.show("task 4 of 5, accuracy 32.8 %: train, epoch 47 of 60", 0.7, {"cross-entropy": 0.2991})
        display._live.refresh()
        display.show("end", 1.0, {"cross-entropy": 0.1234}, last=True)
    shown = out.getvalue()
    assert "…" not in shown
    assert all(number in shown for number in ("32.8", "47 of", "60", "0.2991"))
    assert "100 %  end  cross-entropy 0.1234" in shown
