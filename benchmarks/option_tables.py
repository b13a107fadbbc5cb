"""Tables of options in docs/, with the words of the commands' own help: python -m benchmarks.option_tables

A page says which it wants in a comment, `<!-- python -m benchmarks.option_tables COMMAND: OPTION OPTION ... -->`, and
the table follows. A test fails when a page has another table than this makes.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import docstring_parser

from remix.cli import COMMANDS
from remix.support.files import write_text

DOCS = Path(__file__).resolve().parent.parent / "docs"
END = "<!-- end of the table -->"
WANTED = re.compile(rf"(<!-- python -m benchmarks\.option_tables (\w+): ([a-z_ ]+) -->\n).*?({END})", re.S)


def table(command: str, options: list[str]) -> str:
    """Options of a command, as they are typed, and what its help says of each.

    Raises:
        KeyError: for an option that the command does not have, or that its help does not describe.

    """
    said = docstring_parser.parse(inspect.getdoc(COMMANDS[command]) or "").params
    meanings = {parameter.arg_name: " ".join((parameter.description or "").split()) for parameter in said}
    rows = [f"| `--{name.replace('_', '-')}` | {meanings[name].removesuffix('.')} |" for name in options]
    return "\n".join(["| option | meaning |", "|---|---|", *rows]) + "\n"


def page(text: str) -> str:
    """The text of a page, its tables made anew."""
    return WANTED.sub(lambda found: found[1] + table(found[2], found[3].split()) + found[4], text)


def main() -> None:
    """Write the tables into the pages that want them."""
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if WANTED.search(text):
            write_text(path, page(text))
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
