"""Text fit to be shown, and tables of it."""

import os
from pathlib import Path

from remix.support.text import as_csv, as_table, printable


def test_letters_of_every_script_stay():
    assert printable("Grüße 猫.jpg") == "Grüße 猫.jpg"


def test_control_characters_and_half_characters_are_escaped():
    assert printable("a\x1b[31m\n\u202e\ud800") == "a\\x1b[31m\\n\\u202e\\ud800"


def test_bytes_of_file_names_that_are_not_utf8_are_shown_as_bytes():
    assert printable(Path(os.fsdecode(b"a\xff.jpg"))) == "a\\xff.jpg"


def test_numbers_stay_numbers_in_csv():
    assert as_csv([{"a": -1.5, "b": "-2", "c": "+x", "d": None, "e": "@y"}]) == "a,b,c,d,e\n-1.5,-2,'+x,,'@y\n"


def test_lines_of_a_table_break_between_words_in_a_terminal_and_not_in_a_pipe():
    head, rows = ("stored", "bytes", "what it is"), [["weights of the head", "1,234", "a row per class, or a matrix"]]
    assert as_table(head, rows, right=(1,)).splitlines() == [
        "stored               bytes  what it is",
        "weights of the head  1,234  a row per class, or a matrix",
    ]
    broken = as_table(head, rows, right=(1,), width=34).splitlines()
    assert max(map(len, broken)) <= 34
    assert "".join("".join(broken).split()) != ""
    assert sorted(" ".join(broken).split()) == sorted(" ".join([*head, *rows[0]]).split())
    assert as_table(head, rows, width=3) == as_table(head, rows)  # nothing would fit
