"""What a claim is, and what can be said about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from benchmarks.claims.files import Missing, Results


class Verdict(Enum):
    HOLDS = "holds"
    HOLDS_AT_MINI_SCALE = "holds at mini scale"
    NOT_SHOWN = "not shown"
    WRONG_AS_STATED = "wrong as stated"


# What was looked at, in the words of the page.
ANY_SIZE = "mathematics"
PAPER = "paper"
PAPER_SIZES = "the paper's sizes"
MINI = "mini"
PUBLISHED_NUMBERS = "the paper's own numbers"
NOTHING = "nothing run"


@dataclass(frozen=True)
class Finding:
    """What was measured, as a list of sentences, and what follows from it."""

    measured: tuple[str, ...]
    verdict: Verdict
    because: str
    scale: str


@dataclass(frozen=True)
class Claim:
    """One statement of the paper in our words.

    Args:
        name: short, unique, the anchor of its section.
        title: heading of its section.
        statement: from the published numbers to what the paper says.
        place: where the paper says it.
        command: what makes the result files; None when they are the published numbers alone.
        needs: data and time of that command.
        files: result files below docs/, "claims/published.json" excepted: every claim may read that one.
        examine: from the results to the finding; raises `Missing` for what is not there yet.
    """

    name: str
    title: str
    statement: Callable[[Results], str]
    place: str
    command: str | None
    needs: str | None
    files: tuple[str, ...]
    examine: Callable[[Results], Finding]

    def finding(self, results: Results) -> Finding:
        """The finding; "not shown" where a result file is missing or says too little."""
        try:
            return self.examine(results)
        except Missing as reason:
            return Finding((), Verdict.NOT_SHOWN, str(reason), NOTHING)
