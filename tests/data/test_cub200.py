"""CUB-200-2011, written here in miniature; its lists are sound, hostile or cut off."""

import dataclasses
import os
import shutil

import pytest

from remix.data import DataError, MissingData, load
from remix.data.registry import find_dataset
from tests.data.samples import save_picture


@pytest.fixture
def cub(tmp_path):
    folder = tmp_path / "CUB_200_2011"
    classes = ["001.Black_footed_Albatross", "002.Laysan_Albatross"]
    files = {"images": [], "image_class_labels": [], "train_test_split": []}
    for number in range(1, 9):
        kind, training = number % 2, number <= 5
        name = f"{classes[kind]}/bird_{number:04d}.jpg"
        save_picture(folder / "images" / name, (0, 100 * kind, 0), (40, 30))
        files["images"].append(f"{number} {name}")
        files["image_class_labels"].append(f"{number} {kind + 1}")
        files["train_test_split"].append(f"{number} {int(training)}")
    for name, lines in files.items():
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    (folder / "classes.txt").write_text("\n".join(f"{k + 1} {name}" for k, name in enumerate(classes)) + "\n")
    return folder


@pytest.mark.parametrize("inside", [True, False])
def test_classes_parts_and_pixels_are_those_of_the_lists(cub, inside):
    splits = load("cub200", cub if inside else cub.parent, size=16)
    assert splits.classes == ("Black_footed_Albatross", "Laysan_Albatross")
    assert splits.train.labels.tolist() == [1, 0, 1, 0, 1]
    assert splits.test.labels.tolist() == [0, 1, 0]
    assert splits.train.batch([0, 1])[0][:, 1, 8, 8].tolist() == pytest.approx([100, 0], abs=3)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("images.txt", "1 ../../../etc/passwd\n", r"images\.txt"),
        ("images.txt", "1 /etc/passwd\n", r"images\.txt"),
        ("images.txt", "99 a.jpg\n", "image 99 of .* has no class or no part"),
        ("images.txt", "1\n", r"images\.txt"),
        ("image_class_labels.txt", "1 77\n", "image 1 of .* has no class or no part"),
        ("train_test_split.txt", "1 2\n", "image 1 of .* has no class or no part"),
    ],
)
def test_lists_that_cannot_be_are_refused_with_what_is_wrong(cub, file, text, said):
    (cub / file).write_text(text)
    with pytest.raises(DataError, match=said):
        load("cub200", cub, size=16)


def test_a_list_that_is_not_text_is_refused(cub):
    (cub / "classes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"classes\.txt is not text in UTF-8; unpack"):
        load("cub200", cub, size=16)


@pytest.mark.parametrize("text", ["1 a\0b", "1 \x1b[31mname", "1 " + "x" * 5000])
def test_a_line_that_no_list_has_is_refused(cub, text):
    (cub / "classes.txt").write_text(text)
    with pytest.raises(DataError, match=r"classes\.txt has a line that no list of names has"):
        load("cub200", cub)


def test_a_list_that_has_no_end_is_refused(cub):
    (cub / "classes.txt").write_bytes(b"1 name\n" * 2_500_000)
    with pytest.raises(DataError, match=r"classes\.txt has more than 16,777,216 bytes"):
        load("cub200", cub)


def test_a_pipe_for_a_list_is_refused(cub):
    (cub / "classes.txt").unlink()
    os.mkfifo(cub / "classes.txt")
    with pytest.raises(DataError, match=r"classes\.txt is a pipe, not a file"):
        load("cub200", cub)


def test_many_classes_of_one_name_are_refused_at_once(cub):
    (cub / "classes.txt").write_text("".join(f"{k} same\n" for k in range(200_000)))
    with pytest.raises(DataError, match="these come twice: same"):
        load("cub200", cub)


@pytest.mark.parametrize("split", ["0", "1"])
def test_a_part_without_images_is_no_data_set(cub, split):
    lines = (cub / "train_test_split.txt").read_text().splitlines()
    (cub / "train_test_split.txt").write_text("".join(f"{line.split()[0]} {split}\n" for line in lines))
    with pytest.raises(MissingData, match="cub200 was not found"):
        load("cub200", cub)


def test_a_part_of_which_nothing_can_be_used_is_refused(cub):
    for path in (cub / "images").rglob("*.jpg"):
        path.write_text("no image")
    with pytest.raises(DataError, match=r"none of the \d+ images of the train part .* can be used; .*not an image"):
        load("cub200", cub)


def test_classes_without_a_folder_keep_their_numbers_and_are_not_looked_for(cub):
    shutil.rmtree(cub / "images" / "001.Black_footed_Albatross")
    splits = load("cub200", cub, size=16)
    assert splits.classes == ("Black_footed_Albatross", "Laysan_Albatross")
    assert splits.here == ("Laysan_Albatross",)
    assert (splits.train.labels.tolist(), splits.test.labels.tolist()) == ([1, 1, 1], [1])
    assert splits.skipped == ()
    assert dataclasses.replace(find_dataset("cub200"), classes=2).part_here(cub.parent) == "1 of 2"
