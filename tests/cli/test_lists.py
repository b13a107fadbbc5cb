"""Commands that list what there is."""

import pytest

from remix.cli import main
from remix.experiments.config import list_presets
from remix.methods import list_methods
from remix.networks import list_backbones


@pytest.mark.parametrize(
    ("command", "names"),
    [("methods", list_methods()), ("presets", list_presets()), ("backbones", list_backbones())],
)
def test_every_name_has_a_line_about_it(command, names, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    main([command])
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert set(names) <= {words[0] for words in lines if len(words) == 2}
