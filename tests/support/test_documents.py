import json
import os

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from remix.support.documents import DocumentError, parse_json, parse_yaml, read_yaml

# Every level names the one before it ten times: nine levels are a thousand million nodes.
BOMB = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_sound_documents_come_back(value):
    assert parse_json(json.dumps(value)) == value
    assert parse_yaml(yaml.safe_dump(value)) == value


def test_a_few_aliases_are_read():
    assert parse_yaml("base: &b {lr: 1}\nnow: {<<: *b, steps: 2}") == {"base": {"lr": 1}, "now": {"lr": 1, "steps": 2}}


def test_an_alias_bomb_is_refused_before_it_is_unfolded():
    with pytest.raises(DocumentError, match="too large once its aliases"):
        parse_yaml(BOMB)


def test_an_alias_of_what_it_stands_in_is_refused():
    with pytest.raises(DocumentError, match="an alias of what it stands in"):
        parse_yaml("&a [*a]")


@pytest.mark.parametrize("parse", [parse_json, parse_yaml])
@pytest.mark.parametrize("text", ["[" * 5000, "[" * 100 + "]" * 100, '{"a":' * 5000, "[" * 200_000 + "]" * 200_000])
def test_deep_nesting_is_refused(parse, text):
    with pytest.raises(DocumentError):
        parse(text)


@pytest.mark.parametrize("parse", [parse_json, parse_yaml])
@pytest.mark.parametrize("text", [r'{"a": "\ud800"}', r'{"\udfff": 1}', '{"a": 1e', '"' + "x" * 10, "9" * 10_000])
def test_what_is_not_sound_is_refused(parse, text):
    with pytest.raises(DocumentError):
        parse(text)


@pytest.mark.parametrize("text", ["2020-13-45", "!!python/object:os.system x", "a: b: c", "\0", "{[1]: 2}"])
def test_yaml_that_only_looks_like_it_is_refused(text):
    with pytest.raises(DocumentError):
        parse_yaml(text)


def test_a_name_that_comes_twice_is_refused():
    with pytest.raises(DocumentError, match="'a' twice"):
        parse_json('{"a": 1, "a": 2}')


def test_files_are_named_in_the_sentence_and_pipes_do_not_hang(tmp_path):
    (tmp_path / "x.yaml").write_text("a: [1\n")
    with pytest.raises(DocumentError, match=r"x\.yaml is not YAML in line 2"):
        read_yaml(tmp_path / "x.yaml")
    (tmp_path / "y.yaml").write_bytes(b"\xff")
    with pytest.raises(DocumentError, match="not text in UTF-8"):
        read_yaml(tmp_path / "y.yaml")
    os.mkfifo(tmp_path / "z.yaml")
    with pytest.raises(OSError, match="a pipe"):
        read_yaml(tmp_path / "z.yaml")
