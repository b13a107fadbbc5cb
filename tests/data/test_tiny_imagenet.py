"""Tiny-ImageNet-200, written here in miniature."""

import dataclasses
import shutil

import pytest

from remix.data import DataError, MissingData, load
from remix.data.registry import find_dataset
from tests.data.samples import save_picture

IDS = ("n02", "n01", "n03")


@pytest.fixture
def tiny(tmp_path):
    """Three classes, listed out of alphabetical order; two of them share a word."""
    folder = tmp_path / "tiny-imagenet-200"
    for label, wnid in enumerate(IDS):
        for k in range(4):
            save_picture(folder / "train" / wnid / "images" / f"{wnid}_{k}.JPEG", (50 * label, 0, 0), (64, 64))
    lines = []
    for k, wnid in enumerate(("n03", "n01", "n02", "n01")):
        save_picture(folder / "val" / "images" / f"val_{k}.JPEG", size=(64, 64))
        lines.append(f"val_{k}.JPEG\t{wnid}\t0\t0\t62\t62")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (folder / "wnids.txt").write_text("\n".join(IDS) + "\n")
    (folder / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tcrane\nn03\tcrane, bird\nn99\tother\n")
    return folder


@pytest.mark.parametrize("lazy", [True, False])
def test_classes_are_in_the_order_of_the_list_with_their_words(tiny, lazy):
    splits = load("tiny-imagenet", tiny.parent, lazy=lazy)
    assert splits.classes == ("crane (n02)", "goldfish", "crane (n03)")
    assert splits.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert splits.test.labels.tolist() == [2, 1, 0, 1]
    assert splits.train.input_shape == (3, 64, 64)
    assert splits.train.batch([0, 4, 8])[0][:, 0, 5, 5].tolist() == pytest.approx([0, 50, 100], abs=3)
    assert splits.normalisation.mean == (0.4803, 0.4481, 0.3976)


def test_without_words_classes_have_their_ids(tiny):
    (tiny / "words.txt").unlink()
    assert load("tiny-imagenet", tiny).classes == IDS


def test_an_image_that_is_missing_is_listed(tiny):
    (tiny / "val" / "images" / "val_1.JPEG").unlink()
    splits = load("tiny-imagenet", tiny)
    assert splits.test.labels.tolist() == [2, 0, 1]
    assert [(one.path.name, one.reason) for one in splits.skipped] == [("val_1.JPEG", "no such file")]


@pytest.mark.parametrize("line", ["../../x.JPEG\tn01", "val_0.JPEG\tn77", "val_0.JPEG"])
def test_annotations_that_cannot_be_are_named(tiny, line):
    (tiny / "val" / "val_annotations.txt").write_text(line + "\n")
    with pytest.raises(DataError, match=r"val_annotations\.txt"):
        load("tiny-imagenet", tiny)


def test_missing_annotations_are_named(tiny):
    (tiny / "val" / "val_annotations.txt").unlink()
    with pytest.raises(MissingData, match=r"val_annotations\.txt is missing"):
        load("tiny-imagenet", tiny)


def test_some_of_the_classes_keep_their_numbers_and_the_others_have_no_images(tiny):
    shutil.rmtree(tiny / "train" / "n01")
    splits = load("tiny-imagenet", tiny)
    assert splits.classes == ("crane (n02)", "goldfish", "crane (n03)")
    assert splits.here == ("crane (n02)", "crane (n03)")
    assert splits.train.labels.tolist() == [0] * 4 + [2] * 4
    assert splits.test.labels.tolist() == [2, 0]  # nothing to test of a class that cannot be learned
    assert splits.skipped == ()


def test_the_folder_is_counted_without_opening_an_image(tiny):
    entry = dataclasses.replace(find_dataset("tiny-imagenet"), classes=3)
    assert entry.part_here(tiny.parent) == ""  # all are there
    shutil.rmtree(tiny / "train" / "n01")
    assert entry.part_here(tiny.parent) == entry.part_here(tiny) == "2 of 3"
    assert entry.part_here(tiny / "train") == ""  # nothing is there
