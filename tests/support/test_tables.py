"""Tables as text."""

from remix.support.tables import as_csv


def test_numbers_stay_numbers_in_csv():
    assert as_csv([{"a": -1.5, "b": "-2", "c": "+x", "d": None, "e": "@y"}]) == "a,b,c,d,e\n-1.5,-2,'+x,,'@y\n"
