"""Names are given once, and a mistyped one is answered with what to type."""

import pytest

from remix.support.registry import Registry


def test_a_name_is_found_taken_once_and_mistyped_names_are_answered():
    found: Registry[type] = Registry("thing")
    found.register("number", int)
    found.register("number", int)
    found.register("text", str)
    assert found.find("number") is int
    assert list(found) == ["number", "text"]
    with pytest.raises(ValueError, match="there is a thing 'number' already: int"):
        found.register("number", float)
    with pytest.raises(
        ValueError, match=r"there is no thing 'numbr' \(did you mean 'number'\?\); there are: number, text"
    ):
        found.find("numbr")
