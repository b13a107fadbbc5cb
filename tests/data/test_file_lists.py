"""Data sets that list single image files: Tiny-ImageNet-200 and CUB-200-2011."""

import os

import pytest

from remix.data import DataError, MissingData, load
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
def test_tiny_imagenet(tiny, lazy):
    splits = load("tiny-imagenet", tiny.parent, lazy=lazy)
    assert splits.classes == ("crane (n02)", "goldfish", "crane (n03)")
    assert splits.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert splits.test.labels.tolist() == [2, 1, 0, 1]
    assert splits.train.input_shape == (3, 64, 64)
    assert splits.train.batch([0, 4, 8])[0][:, 0, 5, 5].tolist() == pytest.approx([0, 50, 100], abs=3)
    assert splits.normalisation.mean == (0.4803, 0.4481, 0.3976)


def test_tiny_imagenet_without_words(tiny):
    (tiny / "words.txt").unlink()
    assert load("tiny-imagenet", tiny).classes == IDS


def test_an_image_of_tiny_imagenet_that_is_missing_is_listed(tiny):
    (tiny / "val" / "images" / "val_1.JPEG").unlink()
    splits = load("tiny-imagenet", tiny)
    assert splits.test.labels.tolist() == [2, 0, 1]
    assert [(one.path.name, one.reason) for one in splits.skipped] == [("val_1.JPEG", "no such file")]


@pytest.mark.parametrize("line", ["../../x.JPEG\tn01", "val_0.JPEG\tn77", "val_0.JPEG"])
def test_annotations_that_cannot_be(tiny, line):
    (tiny / "val" / "val_annotations.txt").write_text(line + "\n")
    with pytest.raises(DataError, match=r"val_annotations\.txt"):
        load("tiny-imagenet", tiny)


def test_missing_annotations_are_named(tiny):
    (tiny / "val" / "val_annotations.txt").unlink()
    with pytest.raises(MissingData, match=r"val_annotations\.txt is missing"):
        load("tiny-imagenet", tiny)


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
def test_cub(cub, inside):
    splits = load("cub200", cub if inside else cub.parent, size=16)
    assert splits.classes == ("Black_footed_Albatross", "Laysan_Albatross")
    assert splits.train.labels.tolist() == [1, 0, 1, 0, 1]
    assert splits.test.labels.tolist() == [0, 1, 0]
    assert splits.train.batch([0, 1])[0][:, 1, 8, 8].tolist() == pytest.approx([100, 0], abs=3)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("images.txt", "1 ../../../etc/passwd\n"),
        ("images.txt", "1 /etc/passwd\n"),
        ("images.txt", "99 a.jpg\n"),
        ("images.txt", "1\n"),
        ("image_class_labels.txt", "1 77\n"),
        ("train_test_split.txt", "1 2\n"),
    ],
)
def test_lists_of_cub_that_cannot_be(cub, file, text):
    (cub / file).write_text(text)
    with pytest.raises(DataError):
        load("cub200", cub, size=16)


def test_a_list_that_is_not_text(cub):
    (cub / "classes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"classes\.txt is not text in UTF-8; unpack"):
        load("cub200", cub, size=16)


@pytest.mark.parametrize("text", ["1 a\0b", "1 \x1b[31mname", "1 " + "x" * 5000])
def test_lines_that_no_list_has(cub, text):
    (cub / "classes.txt").write_text(text)
    with pytest.raises(DataError, match=r"classes\.txt has a line that no list of names has"):
        load("cub200", cub)


def test_a_list_that_has_no_end(cub):
    (cub / "classes.txt").write_bytes(b"1 name\n" * 2_500_000)
    with pytest.raises(DataError, match=r"classes\.txt has more than 16,777,216 bytes"):
        load("cub200", cub)


def test_a_pipe_for_a_list(cub):
    (cub / "classes.txt").unlink()
    os.mkfifo(cub / "classes.txt")
    with pytest.raises(DataError, match=r"classes\.txt is a pipe, not a file"):
        load("cub200", cub)


def test_many_classes_of_one_name_are_refused_at_once(cub):
    (cub / "classes.txt").write_text("".join(f"{k} same\n" for k in range(200_000)))
    with pytest.raises(DataError, match="these come twice: same"):
        load("cub200", cub)


@pytest.mark.parametrize("split", ["0", "1"])
def test_a_part_without_images(cub, split):
    lines = (cub / "train_test_split.txt").read_text().splitlines()
    (cub / "train_test_split.txt").write_text("".join(f"{line.split()[0]} {split}\n" for line in lines))
    with pytest.raises(MissingData, match="cub200 was not found"):
        load("cub200", cub)


def test_a_part_of_which_nothing_can_be_used(cub):
    for path in (cub / "images").rglob("*.jpg"):
        path.write_text("no image")
    with pytest.raises(DataError, match=r"none of the \d+ images of the train part .* can be used; .*not an image"):
        load("cub200", cub)
