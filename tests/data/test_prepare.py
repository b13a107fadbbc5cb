"""`remix data prepare`: find, fetch, check, index."""

import dataclasses
import hashlib
import io
import json
import tarfile
from contextlib import nullcontext

import pytest
import torch
from PIL import Image

from remix.data import DataError, ImageDataset, MissingData, Splits, load, registry
from remix.data.file_lists import INDEX
from remix.data.prepare import Watcher, check_official, content_digest, prepare
from remix.data.registry import Download
from tests.data.samples import make_folder
from tests.data.test_cifar import write_binary, write_parquet, write_python
from tests.data.test_decode import damaged
from tests.data.test_download import Server


@pytest.fixture
def register(monkeypatch):
    """Change a registered data set for a test."""

    def change(name, **changes):
        entries = dict(registry._entries)
        entries[name] = dataclasses.replace(entries[name], **changes)
        monkeypatch.setattr(registry, "_entries", entries)

    return change


def packed(folder):
    """A tar.gz of a folder, and its MD5."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        archive.add(folder, folder.name)
    return stream.getvalue(), hashlib.md5(stream.getvalue()).hexdigest()


def test_what_is_there_is_checked_and_indexed(tmp_path, register):
    register("cifar100", counts=(4, 5), classes=None, content=None)
    write_binary(tmp_path, "cifar100")
    splits = prepare("cifar100", tmp_path)
    index = json.loads((tmp_path / "cifar-100-binary" / INDEX).read_text())
    assert index["images"] == {"train": 4, "test": 5}
    assert index["classes"]["train"] == splits.train.counts()


def test_a_number_of_images_that_is_not_official(tmp_path):
    write_binary(tmp_path, "cifar100")
    with pytest.raises(DataError, match="has 4 training and 5 test images; cifar100 has 50,000 and 10,000"):
        prepare("cifar100", tmp_path)
    assert not (tmp_path / "cifar-100-binary" / INDEX).exists()


def test_the_digest_is_that_of_the_content_not_of_its_layout(tmp_path):
    digests = set()
    for write in (write_binary, write_python, write_parquet):
        folder = tmp_path / write.__name__
        folder.mkdir()
        write(folder, "cifar100")
        splits = load("cifar100", folder)
        digests.add(content_digest(splits.train, splits.test))
        digests.add(content_digest(splits.train.select([3, 1, 0, 2]), splits.test))
    assert len(digests) == 1
    splits.train.images[2, 1, 5, 5] ^= 1
    assert content_digest(splits.train, splits.test) not in digests


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0, 0, 1, 1], None),
        ([0, 1, 1, 1], "the class 0 has 1 training images in .*; in digits it has 2"),
        ([0, 0, 1, 2], "has 3 classes; digits has 2"),
    ],
)
def test_images_per_class_are_counted(labels, said):
    count = max(labels) + 1
    digits = load("digits")
    part = ImageDataset(digits.train.images[:4], torch.tensor(labels), tuple("012"[:count]))
    splits = Splits(part, part, digits.normalisation, "digits")
    entry = dataclasses.replace(registry.find_dataset("digits"), counts=(4, 4), classes=2)
    with nullcontext() if said is None else pytest.raises(DataError, match=said):
        check_official(entry, splits)


@pytest.mark.parametrize(
    ("train", "test", "said"),
    [
        ([0, 0, 2, 2], [0, 2], None),
        ([0, 0, 2], [0, 2], "the class 2 has 1 training images in .*; in digits it has 2"),
        ([0, 0, 2, 2], [0], "the class 2 has 0 test images in .*; in digits it has 1"),
    ],
)
def test_of_classes_with_files_of_their_own_some_will_do_if_they_are_whole(train, test, said):
    digits = load("digits")
    parts = [
        ImageDataset(digits.train.images[: len(labels)], torch.tensor(labels), tuple("0123"))
        for labels in (train, test)
    ]
    splits = Splits(*parts, digits.normalisation, "digits")
    whole = dataclasses.replace(registry.find_dataset("digits"), counts=(8, 4), classes=4)
    entry = dataclasses.replace(whole, classes_here=lambda root: 2)
    with nullcontext() if said is None else pytest.raises(DataError, match=said):
        check_official(entry, splits)
    with pytest.raises(DataError, match="Remove it and fetch it again"):
        check_official(whole, splits)


def test_one_wrong_pixel_is_found(tmp_path, register):
    write_binary(tmp_path, "cifar100")
    splits = load("cifar100", tmp_path)
    register("cifar100", counts=(4, 5), classes=None, content=content_digest(splits.train, splits.test))
    prepare("cifar100", tmp_path)
    file = tmp_path / "cifar-100-binary" / "test.bin"
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="not those of the official cifar100"):
        prepare("cifar100", tmp_path)


def test_it_downloads_unpacks_and_reads(tmp_path, register, monkeypatch):
    (tmp_path / "source").mkdir()
    write_binary(tmp_path / "source", "cifar100")
    content, md5 = packed(tmp_path / "source" / "cifar-100-binary")
    monkeypatch.setattr("tests.data.test_download.CONTENT", content)
    with Server(breaks=[1000]) as server:
        url = server.download().url
        register("cifar100", counts=(4, 5), classes=None, content=None, downloads=(Download(url, "c.tar.gz", md5),))
        splits = prepare("cifar100", tmp_path / "data")
        asked = len(server.asked)
        prepare("cifar100", tmp_path / "data")
        assert len(server.asked) == asked == 2
    assert len(splits.train) == 4
    assert {p.name for p in (tmp_path / "data").iterdir()} == {"c.tar.gz", "cifar-100-binary"}


def test_an_archive_in_the_folder_is_unpacked_without_a_network(tmp_path, register):
    (tmp_path / "source").mkdir()
    (tmp_path / "data").mkdir()
    write_python(tmp_path / "source", "cifar100")
    content, md5 = packed(tmp_path / "source" / "cifar-100-python")
    file = tmp_path / "data" / "cifar-100-python.tar.gz"
    register("cifar100", counts=(4, 5), classes=None, content=None, archives=(Download("", file.name, md5),))
    file.write_bytes(content[:-3])
    with pytest.raises(DataError, match="not the official file"):
        prepare("cifar100", tmp_path / "data")
    file.write_bytes(content)
    assert len(prepare("cifar100", tmp_path / "data").test) == 5


def test_offline_it_says_what_to_put_where(tmp_path, register, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    with Server() as server:
        gone = server.download()
    register("tiny-imagenet", downloads=(dataclasses.replace(gone, file="tiny-imagenet-200.zip"),))
    with pytest.raises(MissingData) as caught:
        prepare("tiny-imagenet", tmp_path)
    assert f"put it at {tmp_path / 'tiny-imagenet-200.zip'}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_of_several_files_only_the_missing_one_is_asked_for(tmp_path, register, monkeypatch):
    """Those that are there may have been packed by somebody else: their content counts, not the checksum of a .gz."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    with Server() as server:
        gone = server.download()
    names = [f"{part}-ubyte.gz" for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3")]
    (tmp_path / "fashion-mnist").mkdir()
    for name in names:
        (tmp_path / "fashion-mnist" / name).write_bytes(b"packed by another program")
    files = [f"fashion-mnist/{name}" for name in (*names, "t10k-labels-idx1-ubyte.gz")]
    register("fashion-mnist", downloads=tuple(dataclasses.replace(gone, file=file) for file in files))
    with pytest.raises(MissingData, match=r"t10k-labels-idx1-ubyte\.gz elsewhere"):
        prepare("fashion-mnist", tmp_path)


def test_digits_need_nothing():
    assert len(prepare("digits").train) == 1438


def test_without_a_folder_it_asks_for_one(monkeypatch):
    for set_or_not in (lambda: monkeypatch.setenv("REMIX_DATA", ""), lambda: monkeypatch.delenv("REMIX_DATA")):
        set_or_not()
        with pytest.raises(MissingData, match="--data DIR"):
            prepare("cifar100")


def test_an_indexed_folder_is_not_decoded_again_until_it_changes(tmp_path, monkeypatch):
    root = make_folder(tmp_path / "photos")
    damaged("text", root / "cat" / "letter.jpg")
    prepare(root)
    opened = []
    real = Image.open
    monkeypatch.setattr(Image, "open", lambda *a, **k: opened.append(a) or real(*a, **k))
    splits = load(root, size=8, lazy=True)
    assert opened == []
    assert [one.path.name for one in splits.skipped] == ["letter.jpg"]
    assert "letter" not in str(splits.train.images.paths + splits.test.images.paths)
    damaged("truncated", root / "dog" / "new.jpg")
    assert [one.path.name for one in load(root, size=8, lazy=True).skipped] == ["letter.jpg", "new.jpg"]
    assert opened


@pytest.mark.parametrize("content", ["", "{", "[]", '{"fingerprint": 3}', '{"fingerprint": "x", "unusable": []}'])
def test_a_damaged_index_is_as_good_as_none(tmp_path, content):
    root = make_folder(tmp_path / "photos")
    (root / INDEX).write_text(content)
    assert len(load(root, size=8, lazy=True, holdout=0).train) == 10


def test_a_second_look_forgets_the_first(tmp_path):
    root = make_folder(tmp_path / "photos")
    bad = damaged("text", root / "cat" / "letter.jpg")
    assert len(prepare(root).skipped) == 1
    Image.new("RGB", (9, 9)).save(bad)
    assert prepare(root).skipped == ()


def test_an_index_that_cannot_be_written_is_no_failure(tmp_path, monkeypatch):
    root = make_folder(tmp_path / "photos")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("remix.data.prepare.write_text", refuse)
    notes = []
    prepare(root, watcher=Watcher(note=notes.append))
    assert notes == [f"no index was written to {root} (Permission denied): reading takes longer"]


def test_an_index_that_cannot_be_removed_is_named(tmp_path):
    root = make_folder(tmp_path / "photos")
    (root / "remix-index.json").mkdir()
    with pytest.raises(DataError, match=r"remix-index\.json cannot be removed \("):
        prepare(root)
