"""The page in a real browser: Debian's chromium, driven by playwright."""

import os
import shutil
from collections.abc import Iterator

import pytest
from written_runs import write_run

from remix.cli import main

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (Debian: apt install chromium)"),
]
HOSTILE = ["</script><script>document.title = 'taken'</script>", "<img src=x onerror=\"document.title = 'taken'\">"]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A page about two methods by two seeds, with class names that would like to be more."""
    folder = tmp_path_factory.mktemp("browser")
    for seed, remix, finetune in ((0, 80, 40), (1, 84, 42)):
        write_run(folder / "runs" / f"remix-{seed}", "remix", seed, right=remix, names=["0", "1", *HOSTILE])
        write_run(folder / "runs" / f"finetune-{seed}", "finetune", seed, right=finetune)
    main(["report", str(folder / "runs"), "--out", str(folder / "report.html")])
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        sandbox = [] if os.getuid() else ["--no-sandbox"]
        running = started.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield running
        running.close()


@pytest.fixture
def opened(browser, report) -> Iterator:
    """Opens the page; at the end nothing may have been complained of or fetched."""
    complaints, contexts = [], []

    def open_page(**options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if _outside(request.url) else None)
        page.goto(report)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def _outside(url: str) -> bool:
    return not url.startswith(("data:", "file:")) or url.endswith((".js", ".css"))


def inked(page, chart: str) -> int:
    """Pixels of a chart that something was drawn on."""
    return page.evaluate(
        """name => {
            const canvas = document.querySelector(`figure[data-chart="${name}"] canvas`);
            if (!canvas) return 0;
            const copy = new OffscreenCanvas(canvas.width, canvas.height)
                .getContext("2d", { willReadFrequently: true });
            copy.drawImage(canvas, 0, 0);
            const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
            let count = 0;
            for (let i = 3; i < data.length; i += 4) count += data[i] > 0;
            return count;
        }""",
        chart,
    )


def test_loads_without_a_complaint_and_draws_every_figure(opened):
    page = opened()
    for name in ("accuracy", "new", "forgetting", "training", "inversion", "likelihood", "seconds"):
        assert inked(page, f"{name}-0") > 1000, name
    assert page.title() == "REMIX report: digits"  # no class name took it
    broken = "() => [...document.images].filter(image => !image.naturalWidth).length"
    assert page.evaluate(broken) == 0


def test_a_chart_tells_its_values_by_mouse_and_by_keyboard(opened):
    page = opened()
    figure = page.locator('figure[data-chart="accuracy-0"]')
    legend = figure.locator(".u-legend")
    plot = figure.locator(".plot")
    plot.focus()
    page.keyboard.press("ArrowRight")
    assert "82.0 ± 2.8" in legend.inner_text()
    page.keyboard.press("ArrowRight")
    assert "80.5 ± 2.8" in legend.inner_text()
    box = figure.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + 20)
    assert "82.0 ± 2.8" in legend.inner_text()


def test_a_method_is_hidden_and_shown_from_the_keyboard(opened):
    page = opened()
    before = inked(page, "accuracy-0")
    label = page.locator('figure[data-chart="accuracy-0"] .u-series th', has_text="remix").first
    label.focus()
    page.keyboard.press("Enter")
    hidden = inked(page, "accuracy-0")
    assert hidden < before
    page.keyboard.press("Enter")
    assert inked(page, "accuracy-0") == pytest.approx(before, rel=0.01)


def test_method_and_task_of_losses_can_be_chosen(opened):
    page = opened()
    figure = page.locator('figure[data-chart="training-0"]')
    page.locator("#losses-0 summary").first.click()
    figure.locator("select[data-choice=method]").select_option(label="finetune")
    figure.locator("select[data-choice=task]").select_option(label="task 1")
    assert inked(page, "training-0") > 1000
    assert "cross-entropy" in figure.locator(".u-legend").inner_text()


def test_losses_and_likelihood_are_folded_and_opened_charts_have_their_width(opened):
    page = opened()
    assert page.locator("details.fold").count() == 2
    figure = page.locator('figure[data-chart="training-0"]')
    assert not figure.is_visible()
    page.locator("#losses-0 summary").first.click()
    page.wait_for_function("""() => {
        const plot = document.querySelector('figure[data-chart="training-0"] .plot');
        return Math.abs(plot.querySelector(".uplot").clientWidth - plot.clientWidth) < 2 && plot.clientWidth > 400;
    }""")


def test_lines_are_named_at_their_ends(opened):
    """Something is drawn right of the axes, in the colour of the line; hidden lines lose their name."""
    right = """() => {
        const figure = document.querySelector('figure[data-chart="accuracy-0"]');
        const canvas = figure.querySelector("canvas"), over = figure.querySelector(".u-over");
        const from = (over.offsetLeft + over.offsetWidth + 6) * devicePixelRatio;
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        const { data } = copy.getImageData(from, 0, canvas.width - from, canvas.height);
        let count = 0;
        for (let i = 3; i < data.length; i += 4) count += data[i] > 0;
        return count;
    }"""
    page = opened()
    both = page.evaluate(right)
    assert both > 100
    page.locator('figure[data-chart="accuracy-0"] .u-series th', has_text="remix").first.click()
    assert 50 < page.evaluate(right) < both


def test_the_seed_of_the_matrices_can_be_chosen(opened):
    page = opened()
    first = page.locator("table.heat td").first
    assert first.inner_text() == "41.0"
    page.locator("select.seed").select_option("1")
    assert first.inner_text() == "42.0"
    page.locator("select.seed").select_option("mean")
    assert first.inner_text() == "41.0"


def test_task_and_class_of_dreams_can_be_chosen(opened):
    page = opened()
    shown = page.locator("section.dreams details.grid:visible")
    assert shown.count() == 1
    page.locator("select[data-pick=task]").select_option(label="all")
    assert shown.count() == 2
    page.locator("select[data-pick=class]").select_option(label="1")
    assert page.locator("section.dreams .strip[data-class]:visible").count() == 2
    page.locator("select[data-pick=class]").select_option(label=HOSTILE[0])
    assert page.locator("section.dreams .strip[data-class]:visible").count() == 2


def test_a_button_changes_between_light_and_dark(opened):
    background = "() => getComputedStyle(document.body).backgroundColor"
    page = opened(color_scheme="dark")
    dark = page.evaluate(background)
    button = page.locator("#theme")
    assert button.inner_text() == "Light"
    button.focus()
    page.keyboard.press("Enter")
    light = page.evaluate(background)
    assert light != dark
    assert button.inner_text() == "Dark"
    assert opened(color_scheme="light").evaluate(background) == light


def test_the_page_fits_a_phone(opened):
    page = opened(viewport={"width": 360, "height": 740})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert inked(page, "accuracy-0") > 1000


def test_can_be_printed_from_the_dark(opened, tmp_path):
    page = opened(color_scheme="dark")
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000
    assert page.evaluate("() => document.documentElement.dataset.theme") is None  # as it was before


def test_without_javascript_the_tables_are_readable(opened):
    page = opened(java_script_enabled=False)
    assert page.get_by_text("The charts need JavaScript").is_visible()
    assert page.locator("table.heat td", has_text="82.0").first.is_visible()
    assert page.locator("details.numbers td", has_text="82.0 ± 2.8").first.is_visible()
    assert not page.locator("select").first.is_visible()
    assert page.locator("section.dreams img").last.is_visible()
