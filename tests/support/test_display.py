"""What a person sees of a long run."""

from __future__ import annotations

from io import StringIO

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
