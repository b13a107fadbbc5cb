"""Data sets by name."""

import pytest

from remix.data import DataError, MissingData, dataset, list_datasets, load, registry
from tests.data.samples import make_folder, make_splits


def test_every_data_set_is_listed_in_order():
    names = [entry.name for entry in list_datasets()]
    assert names[:7] == ["digits", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet", "cub200", "folder"]


@pytest.mark.parametrize("entry", list_datasets(), ids=lambda entry: entry.name)
def test_each_has_one_line_about_it(entry):
    assert 20 < len(entry.about) < 100
    assert "\n" not in entry.about


@pytest.mark.parametrize("entry", [e for e in list_datasets() if e.place], ids=lambda entry: entry.name)
def test_what_is_not_there_is_said_with_what_to_put_where(entry, tmp_path, monkeypatch):
    monkeypatch.delenv("REMIX_DATA", raising=False)
    with pytest.raises(MissingData, match="REMIX_DATA"):
        load(entry.name)
    with pytest.raises(MissingData, match="no folder"):
        load(entry.name, tmp_path / "gone")
    with pytest.raises(MissingData) as caught:
        load(entry.name, tmp_path)
    assert str(tmp_path) in str(caught.value)
    if entry.downloads:
        assert f"remix data prepare {entry.name} --data {tmp_path}" in str(caught.value)


def test_the_environment_names_the_data_folder(tmp_path, monkeypatch):
    make_folder(tmp_path / "photos")
    monkeypatch.setenv("REMIX_DATA", str(tmp_path))
    assert load("photos", size=8).classes == ("cat", "dog")


def test_a_name_that_is_not_known_gets_a_suggestion(tmp_path):
    with pytest.raises(DataError, match="did you mean 'cifar100'"):
        load("cifar-100", tmp_path)


def test_an_option_that_is_not_known_is_refused_with_those_that_are(tmp_path):
    with pytest.raises(DataError, match="no option 'colour'; it takes: holdout, seed"):
        load("digits", colour=True)


def test_a_data_set_of_ones_own(monkeypatch):
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))

    @dataset("toy")
    def toy(classes: int = 2):
        """Random images to try things with.

        More about it.
        """
        return make_splits(classes=classes)

    assert len(load("toy", classes=3).classes) == 3
    assert registry.find_dataset("toy").about == "Random images to try things with"
    with pytest.raises(ValueError, match="registered already"):
        dataset("toy")(toy)
