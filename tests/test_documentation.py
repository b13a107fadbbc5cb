"""What people can be asked to read: how many words there are, and that blocks can be copied."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
IN_ALL, ON_A_PAGE, ON_A_PAGE_OF_REFERENCE = 15_000, 900, 1_500
REFERENCE = {"api.md", "artefact.md", "extend.md", "learn.md", "mathematics.md", "methods.md", "security.md"}


def words(page: Path) -> int:
    """As `wc -w` counts them."""
    return len(page.read_text(encoding="utf-8").split())


def test_the_documentation_can_be_read_to_its_end():
    """Sub-folders of docs/ hold the details of the evidence and do not count."""
    assert sum(map(words, PAGES)) <= IN_ALL, "cut what nobody needs: wc -w README.md docs/*.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_read_in_five_minutes(page):
    assert words(page) <= (ON_A_PAGE_OF_REFERENCE if page.name in REFERENCE else ON_A_PAGE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_can_be_copied_as_they_stand(page):
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.M | re.S)
    assert not [line for block in blocks for line in block.splitlines() if re.match(r"\s*(\$|>>>) ", line)]
