"""Tables of options in docs/ are what the commands' help says."""

import pytest

from benchmarks.option_tables import DOCS, WANTED, page, table

PAGES = [path for path in sorted(DOCS.glob("*.md")) if "benchmarks.option_tables" in path.read_text(encoding="utf-8")]


def test_there_are_pages_with_such_tables():
    assert {path.name for path in PAGES} >= {"learn.md", "dreams.md"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_has_the_options_as_they_are_now(path):
    text = path.read_text(encoding="utf-8")
    assert len(WANTED.findall(text)) == text.count("benchmarks.option_tables")
    assert page(text) == text, "run: python -m benchmarks.option_tables"


def test_an_option_that_a_command_does_not_have_is_an_error():
    with pytest.raises(KeyError):
        table("learn", ["colour"])
