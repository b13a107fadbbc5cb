"""How commands print: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from remix.data import Skipped

__all__ = ["Format", "as_json", "check_format", "note", "note_left_out", "show"]

Format = Literal["table", "json", "csv"]


def check_format(name: str, known: Collection[str] = get_args(Format)) -> None:
    """Check the name of a format. Raises ValueError that lists the known ones."""
    if name not in known:
        raise ValueError(f"--format knows {', '.join(known)}, got {name!r}")


def as_json(content: Any) -> str:
    """Indented JSON; letters of every script stay letters."""
    return json.dumps(content, indent=2, ensure_ascii=False)


def show(text: str) -> None:
    """Print a result. A reader that has had enough (``| head``) ends the command quietly."""
    try:
        print(_encodable(text, sys.stdout), flush=True)
    except BrokenPipeError:
        # Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + 13)


def note(text: str) -> None:
    """Print what is not a result, where it does not get into a pipe."""
    print(_encodable(text, sys.stderr), file=sys.stderr, flush=True)


def note_left_out(skipped: Sequence[Skipped]) -> None:
    """Say what was left out and why, if anything was."""
    from remix.data.errors import left_out

    if skipped:
        note(f"left out {len(skipped):,}:")
    for line in left_out(skipped):
        note(f"  {line}")


def _encodable(text: str, stream: Any) -> str:
    """The text, with escapes for letters that the stream cannot show."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
