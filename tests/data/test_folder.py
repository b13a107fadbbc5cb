"""Folders of images: layouts, the seeded split, and everything that is wrong with folders of real people."""

import os
import unicodedata
import warnings
from pathlib import Path

import pytest
import torch
from PIL import Image

from remix.data import DataError, MissingData, Skipped, load
from remix.data.errors import left_out
from tests.data.samples import make_folder, save_picture
from tests.data.test_decode import KINDS, damaged


def test_class_per_folder_is_split_by_seed(tmp_path):
    root = make_folder(tmp_path / "photos", classes=("cat", "dog", "ant"), each=10)
    splits = load(root, size=8)
    assert splits.classes == ("ant", "cat", "dog")
    assert splits.name == "photos"
    assert splits.train.counts() == {"ant": 8, "cat": 8, "dog": 8}
    assert splits.test.counts() == {"ant": 2, "cat": 2, "dog": 2}
    again, other = load(root, size=8), load(root, size=8, seed=1)
    assert torch.equal(splits.test.images, again.test.images)
    assert not torch.equal(splits.test.images, other.test.images)


def test_no_image_is_in_both_parts(tmp_path):
    splits = load(make_folder(tmp_path / "photos", each=10), size=8, lazy=True, holdout=0.3)
    train, test = set(splits.train.images.paths), set(splits.test.images.paths)
    assert len(train) == 14
    assert len(test) == 6
    assert not train & test


@pytest.mark.parametrize(
    ("folders", "validation"),
    [(("train", "test"), False), (("train", "val"), False), (("Training", "valid", "testing"), True)],
)
def test_split_folders_are_the_parts(tmp_path, folders, validation):
    for count, folder in enumerate(folders, start=2):
        make_folder(tmp_path / "photos" / folder, each=count)
    splits = load(tmp_path / "photos", size=8)
    assert splits.train.counts() == {"cat": 2, "dog": 2}
    assert splits.test.counts() == dict.fromkeys(("cat", "dog"), len(folders) + 1)
    assert (splits.validation is not None) == validation


def test_a_train_folder_alone_is_split(tmp_path):
    make_folder(tmp_path / "photos" / "train", each=5)
    assert load(tmp_path / "photos", size=8).test.counts() == {"cat": 1, "dog": 1}


def test_a_class_may_be_called_train(tmp_path):
    assert load(make_folder(tmp_path, classes=("car", "test", "train")), size=8).classes == ("car", "test", "train")


def test_a_class_of_the_test_part_needs_training_images(tmp_path):
    make_folder(tmp_path / "train", classes=("cat",))
    make_folder(tmp_path / "test", classes=("cat", "emu"))
    with pytest.raises(DataError, match=r"classes that .* has not: emu"):
        load(tmp_path, size=8)


def test_a_class_without_test_images_is_kept(tmp_path):
    make_folder(tmp_path / "train", classes=("cat", "dog"))
    make_folder(tmp_path / "test", classes=("cat",))
    assert load(tmp_path, size=8).test.counts() == {"cat": 5, "dog": 0}


def test_images_in_deeper_folders_belong_to_the_class(tmp_path):
    root = make_folder(tmp_path / "photos")
    save_picture(root / "cat" / "holiday" / "2024" / "x.JPG")
    assert load(root, size=8, holdout=0).train.counts() == {"cat": 6, "dog": 5}


def test_one_level_too_many_is_explained(tmp_path):
    make_folder(tmp_path / "photos" / "animals")
    make_folder(tmp_path / "photos" / "plants", classes=("oak",))
    with pytest.raises(DataError, match="one level deeper"):
        load(tmp_path / "photos", size=8)


def test_an_empty_class_is_refused(tmp_path):
    root = make_folder(tmp_path / "photos")
    (root / "emu").mkdir()
    (root / "emu" / "notes.txt").write_text("to do")
    with pytest.raises(DataError, match=r"no usable training image of emu .*notes\.txt: not an image"):
        load(root, size=8)
    (root / "emu" / "notes.txt").unlink()
    with pytest.raises(DataError, match=r"class folder emu of .*add images or remove"):
        load(root, size=8)


@pytest.mark.parametrize("content", ["nothing", "files"])
def test_a_folder_without_classes_is_explained(tmp_path, content):
    if content == "files":
        save_picture(tmp_path / "a.png")
    with pytest.raises(MissingData, match="one per class"):
        load(tmp_path, size=8)


def test_images_beside_the_class_folders_are_not_lost_silently(tmp_path):
    root = make_folder(tmp_path / "photos")
    save_picture(root / "stray.png")
    with pytest.raises(DataError, match=r"beside its class folders \(stray.png\)"):
        load(root, size=8)


def test_one_image_per_class_is_training_data(tmp_path):
    splits = load(make_folder(tmp_path, each=1), size=8)
    assert len(splits.train) == 2
    assert len(splits.test) == 0


@pytest.mark.parametrize("lazy", [True, False])
def test_unusable_files_are_left_out_and_listed(tmp_path, lazy):
    root = make_folder(tmp_path / "photos")
    for kind in KINDS:
        damaged(kind, root / "cat" / f"{kind}.jpg")
    splits = load(root, size=8, lazy=lazy, holdout=0)
    assert splits.train.counts() == {"cat": 5, "dog": 5}
    assert {one.path.stem: one.reason for one in splits.skipped}.keys() == KINDS.keys()
    assert all(KINDS[one.path.stem] in one.reason for one in splits.skipped)
    assert splits.train.batch(range(10))[0].shape == (10, 3, 8, 8)


def test_a_class_of_which_nothing_is_usable_is_refused(tmp_path):
    root = make_folder(tmp_path / "photos")
    (root / "emu").mkdir()
    damaged("empty", root / "emu" / "a.jpg")
    with pytest.raises(DataError, match=r"no usable training image of emu .*a\.jpg: the file is empty"):
        load(root, size=8)


def test_hidden_files_and_litter_are_passed_over(tmp_path):
    root = make_folder(tmp_path / "photos")
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", ".hidden.png"):
        (root / "cat" / name).write_bytes(b"x")
    make_folder(root / ".thumbnails")
    make_folder(root / "__MACOSX")
    splits = load(root, size=8, holdout=0)
    assert splits.train.counts() == {"cat": 5, "dog": 5}
    assert not splits.skipped


def test_photographs_are_known_by_what_they_hold_and_all_else_is_listed(tmp_path):
    root = make_folder(tmp_path / "photos")
    save_picture(root / "cat" / "IMG_0001", format="JPEG")
    save_picture(root / "cat" / "a.jfif", format="JPEG")
    save_picture(root / "cat" / "b.avif")
    save_picture(root / "cat" / "c.backup", format="PNG")
    (root / "cat" / "labels.csv").write_text("a,b\n")
    (root / "dog" / "README").write_text("dogs\n")
    (root / "dog" / "more").symlink_to(root / "cat", target_is_directory=True)
    (root / "about.txt").write_text("beside the classes, in none of them")
    splits = load(root, size=8, holdout=0)
    assert splits.train.counts() == {"cat": 9, "dog": 5}
    assert {one.path.name: one.reason for one in splits.skipped} == {
        "labels.csv": "not an image that can be read",
        "README": "not an image that can be read",
        "more": "a folder, not an image",
    }


def test_a_photograph_without_ending_beside_the_class_folders_is_not_lost_silently(tmp_path):
    root = make_folder(tmp_path / "photos")
    save_picture(root / "IMG_0001", format="JPEG")
    with pytest.raises(DataError, match=r"beside its class folders \(IMG_0001\)"):
        load(root, size=8)


def test_notes_do_not_hide_that_classes_are_one_level_deeper(tmp_path):
    make_folder(tmp_path / "photos" / "animals")
    (tmp_path / "photos" / "animals" / "README.txt").write_text("animals\n")
    with pytest.raises(DataError, match="one level deeper"):
        load(tmp_path / "photos", size=8)


def test_folders_beside_the_parts_are_listed(tmp_path):
    make_folder(tmp_path / "train")
    save_picture(tmp_path / "test" / "1.png")
    make_folder(tmp_path / "extra")
    found = {one.path.name: one.reason for one in load(tmp_path, size=8).skipped}
    assert found == dict.fromkeys(("extra", "test"), "a folder beside train is not read")


def test_one_part_in_two_folders_is_refused(tmp_path):
    for name in ("train", "val", "valid"):
        make_folder(tmp_path / name)
    with pytest.raises(DataError, match=r"has val and valid, the same part twice; merge them"):
        load(tmp_path, size=8)


def test_why_a_class_cannot_be_used_is_about_that_class(tmp_path):
    root = make_folder(tmp_path / "photos")
    for k in range(9):
        (root / "cat" / f"{k}.txt").write_text("x")
        damaged("empty", root / "dog" / f"{k}.png")
    with pytest.raises(DataError) as caught:
        load(root, size=8)
    assert "no usable training image of dog" in str(caught.value)
    assert "9 files: the file is empty" in str(caught.value)
    assert ".txt" not in str(caught.value)


def test_files_that_are_left_out_are_counted_by_reason():
    empty = [Skipped(Path(f"{k}.jpg"), "the file is empty") for k in range(1000)]
    assert left_out([*empty, Skipped(Path("a\x1b[2J\n.jpg"), "damaged")], names=3) == [
        "1,000 files: the file is empty (0.jpg, 1.jpg, 2.jpg, ...)",
        "a\\x1b[2J\\n.jpg: damaged",
    ]
    many = [Skipped(Path("a"), f"{k} x 1 pixels") for k in range(50)]
    assert left_out(many)[-1] == "... and 30 more"
    assert len(left_out(many)) == 21


def test_names_of_any_language_and_length(tmp_path):
    names = ("Käse", "猫", "عصفور", "x" * 200)
    splits = load(make_folder(tmp_path, classes=names, each=2), size=8)
    assert set(splits.classes) == set(names)


def test_a_name_is_the_same_however_it_is_composed(tmp_path):
    make_folder(tmp_path / "a", classes=(unicodedata.normalize("NFD", "Käse"), "dog"))
    assert "Käse" in load(tmp_path / "a", size=8).classes


def test_a_name_that_is_not_text_is_refused(tmp_path):
    root = make_folder(tmp_path / "photos")
    try:
        os.mkdir(os.fsencode(root) + b"/\xff\xfe")
    except OSError:
        pytest.skip("this file system has only names that are text")
    with pytest.raises(DataError, match=r"\\xff\\xfe has characters that are not text"):
        load(root, size=8)


def test_a_file_whose_name_is_not_text_can_be_shown(tmp_path):
    root = make_folder(tmp_path / "photos")
    try:
        with open(os.fsencode(root) + b"/cat/\xff.jpg", "wb"):
            pass
    except OSError:
        pytest.skip("this file system has only names that are text")
    (one,) = load(root, size=8).skipped
    assert r"\xff.jpg" in str(one)


def test_a_link_in_a_circle_ends(tmp_path):
    root = make_folder(tmp_path / "photos")
    (root / "cat" / "loop").symlink_to(root, target_is_directory=True)
    assert load(root, size=8, holdout=0).train.counts() == {"cat": 5, "dog": 5}


def test_a_folder_that_may_not_be_listed(tmp_path, monkeypatch):
    root = make_folder(tmp_path / "photos")
    if os.geteuid() == 0:
        real = os.scandir

        def scandir(path="."):
            if str(path).endswith("cat"):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path)

        monkeypatch.setattr(os, "scandir", scandir)
        monkeypatch.setattr(os, "listdir", lambda path=".": [entry.name for entry in scandir(path)])
    else:
        (root / "cat").chmod(0)
    try:
        with pytest.raises(DataError, match=r"cannot list the folder .*cat: Permission denied"):
            load(root, size=8)
    finally:
        (root / "cat").chmod(0o700)


def test_reading_leaves_the_filters_of_warnings_alone(tmp_path):
    """They are global, and files are decoded by several threads."""
    before = list(warnings.filters)
    load(make_folder(tmp_path, each=40), size=8, lazy=True).train.decoded()
    assert list(warnings.filters) == before


def test_lazy_or_not_is_decided_by_size(tmp_path, monkeypatch):
    root = make_folder(tmp_path)
    assert load(root, size=8).train.in_memory
    monkeypatch.setattr("remix.data.file_lists.MEMORY_LIMIT", 1000)
    assert not load(root, size=8).train.in_memory


def test_lazy_and_in_memory_images_are_the_same(tmp_path):
    root = make_folder(tmp_path, size=(31, 47))
    Image.linear_gradient("L").save(root / "cat" / "slope.png")
    lazy, eager = (load(root, size=16, lazy=lazy, channels=1) for lazy in (True, False))
    assert torch.equal(lazy.train.decoded().images, eager.train.images)
    assert torch.equal(lazy.test.decoded().images, eager.test.images)
    assert lazy.preprocessing == eager.preprocessing


@pytest.mark.parametrize("holdout", [-0.1, 1.0, 3])
def test_a_fraction_is_a_fraction(tmp_path, holdout):
    with pytest.raises(DataError, match="fraction"):
        load(make_folder(tmp_path), size=8, holdout=holdout)
