"""The documentation as a site, built and opened from the disk in a real browser."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (Debian: apt install chromium)"),
    pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="mkdocs is not installed: make docs"),
]
CUT = """() => [...document.querySelectorAll(".md-content pre, .md-content pre code, .md-typeset__scrollwrap")]
    .filter(part => part.scrollWidth > part.clientWidth + 1).map(part => part.textContent.slice(0, 80))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    subprocess.run(words, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return folder


@pytest.fixture
def page(site):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=[] if os.getuid() else ["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1280, "height": 900})
        opened.set_default_timeout(60_000)
        yield opened
        browser.close()


def test_search_works_from_a_file_and_nothing_is_fetched(site, page):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "bench" / "speed.html").as_uri())
    box = page.locator("input.md-search__input")
    for _ in range(60):  # typed again until the page listens
        box.fill("")
        box.press_sequentially("rebalancing")
        page.wait_for_timeout(1000)
        if page.locator(".md-search-result__item").count():
            break
    found = [link.get_attribute("href") or "" for link in page.locator(".md-search-result__link").all()]
    assert any("methods.html" in link for link in found)
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


def test_no_table_and_no_block_of_code_is_cut_at_1280_pixels(site, page):
    cut = {}
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        if found := page.evaluate(CUT):
            cut[path.relative_to(site).as_posix()] = found
    assert not cut
