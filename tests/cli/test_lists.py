"""Commands that list what there is, and tell all about one."""

import dataclasses

import pytest

from remix.cli import main
from remix.cli.described import field_settings
from remix.data import list_datasets
from remix.experiments.config import list_presets
from remix.methods import list_methods, method_class
from remix.networks import list_backbones

NAMES = {
    "methods": list(list_methods()),
    "presets": list(list_presets()),
    "backbones": list_backbones(),
    "datasets": [entry.name for entry in list_datasets()],
}


@pytest.mark.parametrize("command", NAMES)
def test_every_name_has_a_line_about_it(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    main([command])
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert set(NAMES[command]) <= {words[0] for words in lines if len(words) == 2}


@pytest.mark.parametrize(("command", "name"), [(command, name) for command, names in NAMES.items() for name in names])
def test_every_name_has_a_page_that_fits_a_terminal(command, name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    main([command, name])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == name
    assert lines[1]
    assert max(map(len, lines)) <= 80
    assert "`" not in "".join(lines)


@pytest.mark.parametrize("name", list_methods())
def test_every_setting_of_a_method_has_a_meaning(name):
    found = field_settings(method_class(name))
    assert [one.name for one in found[""]] == [field.name for field in dataclasses.fields(method_class(name))]
    assert not [one.name for settings in found.values() for one in settings if not one.meaning]


def test_settings_have_their_defaults_and_what_is_kept_is_said(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    main(["methods", "remix"])
    shown = capsys.readouterr().out
    for line in (
        "It keeps what pmi keeps, and a Laplace covariance of the input of every BatchNorm layer.",
        "  first  {epochs: 200, lr: 0.1, milestones: [80, 120]}",
        "  spread  1",
        "  clip  null",
        "within first, head, last_block, network, balance",
        "within inversion.prior",
        "  form  nll",
    ):
        assert line in shown.splitlines()


@pytest.mark.parametrize(
    ("command", "typed", "meant"),
    [
        ("methods", "rmix", "remix"),
        ("presets", "cifar100mini", "cifar100-mini"),
        ("backbones", "resnet3", "resnet3"),
        ("datasets", "cifar-100", "cifar100"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(refusal, command, typed, meant):
    assert f"(did you mean '{meant}" in refusal(command, typed)


def test_options_of_networks_and_data_sets_have_meanings(capsys):
    main(["backbones", "resnet32"])
    assert "  width  16" in capsys.readouterr().out
    main(["datasets", "folder"])
    assert "  holdout  0.2" in capsys.readouterr().out
    main(["backbones", "resnet[25]0"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["resnet20", "resnet50"]
