"""The commands that README.md and docs/ tell people to type, and what the pages say they need.

A page marks a command that a test cannot run in seconds with what it needs: in the comment behind it
(``# needs ...``), in a comment line above it in its block, in the paragraph of an inline command, or in a line
``*Needs ...*`` of its own, which counts up to the next heading.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = r"(?:remix |python -m |python examples/|make |pip install |tensorboard )"
SCALES = r"(?:minutes?|hours?|seconds|GPU|Slurm|internet|browser|packages?|compiler|data|photographs|python3?)"
DATA_SETS = r"(?:CIFAR-100|Imagenette|ImageNet|Fashion-MNIST|Tiny-ImageNet)"
MARK = re.compile(rf"\bneeds?\b[^.;|]*?\b(?:{SCALES}|{DATA_SETS})\b", re.I | re.S)

COMMENTED = re.compile(r"""((?:"[^"]*"|'[^']*'|[^"'#]|(?<=\S)#)*)#?(.*)""")  # a command, and what follows a free #


@dataclass(frozen=True)
class Command:
    """A command as a page has it, without its comment.

    Attributes:
        place: page and line.
        text: the words, as typed.
        marked: whether the page says what it needs.
        inline: whether it stands in a sentence.

    """

    place: str
    text: str
    marked: bool
    inline: bool = False

    @property
    def words(self) -> list[str]:
        """As the shell splits them, up to a pipe or a redirection."""
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars="|>")
        lexer.whitespace_split, lexer.commenters = True, ""
        words: list[str] = []
        for word in lexer:
            if word == "|":
                words = []
            elif word == ">":
                break
            else:
                words.append(word)
        return words

    @property
    def name(self) -> bool:
        """Whether it only names a command in a sentence: `remix dream`, `remix data prepare`, `make demo`."""
        return self.inline and (len(self.words) == 2 or self.words == ["remix", "data", "prepare"])

    @property
    def whole(self) -> bool:
        """Whether a reader can type it as it stands: no mere name, and nothing left out (...)."""
        return not self.name and "..." not in self.words


def commands_of(page: str, text: str) -> list[Command]:
    """Every command in the blocks and the sentences of a page."""
    found: list[Command] = []
    section, block, kind = False, [], None
    paragraph: list[tuple[int, str]] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        fence = re.match(r"^ *```(\w*)", line)
        if fence and kind is None:
            found += _in_paragraph(page, paragraph, section)
            kind, block, paragraph = fence[1], [], []
        elif fence:
            found += _in_block(page, block, section) if kind in ("sh", "bash", "console") else []
            kind = None
        elif kind is not None:
            block.append((number, line.strip()))
        elif not line.strip() or line.startswith(("#", "|", "- ", "*")):  # a row of a table stands for itself
            found += _in_paragraph(page, paragraph, section)
            if line.startswith("#"):
                section = False
            elif line.startswith("*Needs "):
                section = True
            paragraph = [(number, line)]
        else:
            paragraph.append((number, line))
    return found


def hidden_commands(text: str) -> list[str]:
    """Lines that look like commands in blocks where nobody looks for them: other languages, indented text."""
    shown = re.sub(r"^ *```(?:sh|bash|console|python|py)\n.*?^ *```", "", text, flags=re.M | re.S)
    return re.findall(rf"^(?: {{4,}}|\t|)(?:\$ )?{PROGRAMS}.*--.*$", shown, re.M)


def _in_block(page: str, lines: list[tuple[int, str]], section: bool) -> list[Command]:
    found, above, begun = [], False, ""
    for number, line in lines:
        joined = f"{begun} {line}".strip().removeprefix("$ ")
        if joined.endswith("\\"):
            begun = joined[:-1].strip()
            continue
        begun = ""
        typed, comment = COMMENTED.fullmatch(joined).groups()  # type: ignore[union-attr]
        if not joined:
            above = False
        elif not typed.strip():
            above = bool(MARK.search(comment))
        else:
            marked = section or above or bool(MARK.search(comment))
            found.append(Command(f"{page}:{number}", typed.strip(), marked))
    return found


def _in_paragraph(page: str, lines: list[tuple[int, str]], section: bool) -> list[Command]:
    text = "\n".join(line for _, line in lines)
    marked = section or bool(MARK.search(re.sub(r"`[^`]*`", "", text)))
    found = []
    for code in re.finditer(r"(?<!`)`([^`]+)`(?!`)", text):
        typed = " ".join(code[1].split())
        if re.match(PROGRAMS, typed):
            number = lines[0][0] + text[: code.start()].count("\n")
            found.append(Command(f"{page}:{number}", typed, marked, inline=True))
    return found


COMMANDS = [
    command for path in PAGES for command in commands_of(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
]
