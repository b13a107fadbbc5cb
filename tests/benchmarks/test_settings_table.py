"""The table of settings in docs/reproduce/settings.md."""

import pytest

from benchmarks.settings_table import BEGIN, END, PAGE, ROWS, SETTINGS, page, table, value
from remix.methods import create_method
from remix.support.settings import plain


def paths(values, at=""):
    found = []
    for key, below in values.items():
        path = f"{at}.{key}" if at else key
        found += paths(below, path) if isinstance(below, dict) else [path]
    return found


@pytest.mark.parametrize("method", ["pmi", "remix"])
def test_the_settings_differ_in_exactly_the_fields_that_the_table_lists(method):
    every = [plain(create_method(method, setting=name)) for name in SETTINGS]
    differ = {path for path in paths(every[0]) if any(value(one, path) != value(every[0], path) for one in every)}
    listed = {path for row in ROWS for path in row.fields}
    of_remix = {f"inversion.prior.{name}" for name in ("kind", "form", "weight", "summed")} | {
        "inversion.statistics_form"
    }
    assert differ - {"setting"} == (listed if method == "remix" else listed - of_remix)


def test_every_word_of_the_table_stands_for_a_value():
    every = [plain(create_method("remix", setting=name)) for name in SETTINGS]
    for row in ROWS:
        values = {str(value(one, path)) for one in every for path in row.fields}
        assert set(row.words) <= values, row.element


def test_the_page_has_the_table_as_it_is_now():
    text = PAGE.read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1
    assert table() in text
    assert page() == text, "run: python -m benchmarks.settings_table"
