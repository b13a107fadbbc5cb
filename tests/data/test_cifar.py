"""CIFAR in its three layouts, written here in miniature."""

import io
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from remix.data import DataError, MissingData, load
from remix.data.cifar import CIFAR10_CLASSES, CIFAR100_CLASSES, cifar100

NAMES = {"cifar10": CIFAR10_CLASSES, "cifar100": CIFAR100_CLASSES}


def parts(name):
    """Images (N, 3, 32, 32) and labels of files of the official names."""
    generator = np.random.default_rng(0)
    files = ["train", "test"] if name == "cifar100" else [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    classes = len(NAMES[name])
    return {
        file: (generator.integers(0, 256, (4 + k, 3, 32, 32), dtype=np.uint8), generator.integers(0, classes, 4 + k))
        for k, file in enumerate(files)
    }


def write_binary(root, name):
    folder = root / {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}[name]
    folder.mkdir()
    for file, (images, labels) in parts(name).items():
        first = [labels[:, None]] if name == "cifar10" else [labels[:, None] // 5, labels[:, None]]
        np.concatenate([*first, images.reshape(len(images), -1)], axis=1).astype(np.uint8).tofile(
            folder / f"{file}.bin"
        )


def write_python(root, name, protocol=2):
    folder = root / {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}[name]
    folder.mkdir()
    for file, (images, labels) in parts(name).items():
        key = "labels" if name == "cifar10" else "fine_labels"
        content = {
            b"data": images.reshape(len(images), -1),
            key.encode(): labels.tolist(),
            b"filenames": [b"leptodactylus_pentadactylus_s_000004.png"] * len(images),
            b"batch_label": b"training batch 1 of 1",
        }
        (folder / file).write_bytes(pickle.dumps(content, protocol=protocol))


def write_parquet(root, name):
    arrow, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = root / name / "data"
    folder.mkdir(parents=True)
    shards = {}
    for number, (file, (images, labels)) in enumerate(parts(name).items()):
        encoded = [encode(image) for image in images]
        column = {"img": [{"bytes": one, "path": None} for one in encoded]}
        column |= {"label": labels} if name == "cifar10" else {"fine_label": labels, "coarse_label": labels // 5}
        part = "test" if "test" in file else "train"
        pq.write_table(arrow.table(column), folder / f"{part}-{number:05d}-of-00006.parquet")
        shards[part] = shards.get(part, 0) + 1
    return shards


def encode(image):
    stream = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0)).save(stream, "PNG")
    return stream.getvalue()


WRITERS = {"binary": write_binary, "python": write_python, "parquet": write_parquet}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", WRITERS)
@pytest.mark.parametrize("inside", [False, True])
def test_every_layout_gives_the_same_images(tmp_path, name, layout, inside):
    WRITERS[layout](tmp_path, name)
    splits = load(name, next(tmp_path.iterdir()) if inside else tmp_path)
    written = parts(name)
    for part, dataset in (("train", splits.train), ("test", splits.test)):
        wanted = [value for file, value in written.items() if ("test" in file) == (part == "test")]
        assert np.array_equal(dataset.images.numpy(), np.concatenate([images for images, _ in wanted]))
        assert dataset.labels.tolist() == np.concatenate([labels for _, labels in wanted]).tolist()
    assert splits.classes == NAMES[name]
    assert splits.source.is_relative_to(tmp_path)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_files_pickled_again_by_python_3_are_read(tmp_path, protocol):
    write_python(tmp_path, "cifar100", protocol)
    assert np.array_equal(load("cifar100", tmp_path).test.images.numpy(), parts("cifar100")["test"][0])


def test_the_two_data_sets_may_lie_side_by_side(tmp_path):
    for name in NAMES:
        write_parquet(tmp_path, name)
    assert len(load("cifar10", tmp_path).classes) == 10
    assert len(load("cifar100", tmp_path).classes) == 100


def test_the_official_constants():
    """Of the method's protocol."""
    from remix.data import cifar

    assert cifar._CIFAR100.normalisation.mean == (0.5071, 0.4867, 0.4408)
    assert cifar._CIFAR100.normalisation.std == (0.2675, 0.2565, 0.2761)
    assert len(set(CIFAR100_CLASSES)) == 100
    assert list(CIFAR100_CLASSES) == sorted(CIFAR100_CLASSES)


@pytest.mark.parametrize("cut", [1, 3073, 20_000])
def test_a_cut_off_file_is_refused(tmp_path, cut):
    write_binary(tmp_path, "cifar100")
    file = tmp_path / "cifar-100-binary" / "train.bin"
    file.write_bytes(file.read_bytes()[:-cut] if cut < 4 * 3074 else b"")
    with pytest.raises(DataError, match=r"train\.bin has .* not a whole number of records"):
        load("cifar100", tmp_path)


def test_a_file_that_has_no_end_is_refused(tmp_path):
    write_binary(tmp_path, "cifar100")
    with (tmp_path / "cifar-100-binary" / "test.bin").open("r+b") as stream:
        stream.truncate(3074 * 10**9)
    with pytest.raises(DataError, match=r"test\.bin has 3,074,000,000,000 bytes, more than any file of this data set"):
        load("cifar100", tmp_path)


def test_an_incomplete_layout_is_not_taken(tmp_path):
    write_binary(tmp_path, "cifar10")
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(MissingData, match="cifar10 was not found"):
        load("cifar10", tmp_path)


def test_labels_of_another_data_set_are_refused(tmp_path):
    write_binary(tmp_path, "cifar10")
    file = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    content = bytearray(file.read_bytes())
    content[0] = 77
    file.write_bytes(content)
    with pytest.raises(DataError, match="label 77: not the files of cifar10"):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("content", [{b"data": [1, 2]}, {b"data": np.zeros((2, 5), np.uint8)}])
def test_a_pickle_of_something_else_is_refused(tmp_path, content):
    write_python(tmp_path, "cifar100")
    (tmp_path / "cifar-100-python" / "test").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(DataError, match="no images"):
        load("cifar100", tmp_path)


def test_damaged_shards_are_named(tmp_path):
    write_parquet(tmp_path, "cifar100")
    file = next((tmp_path / "cifar100").rglob("test*.parquet"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DataError, match=r"test.*parquet is no readable parquet file"):
        load("cifar100", tmp_path)


def test_shards_of_other_columns_are_explained(tmp_path):
    write_parquet(tmp_path, "cifar10")
    (tmp_path / "cifar10").rename(tmp_path / "cifar100")
    with pytest.raises(DataError, match="has the columns img, label; wanted are img or image, and fine_label"):
        load("cifar100", tmp_path)


def test_pixels_are_kept_once(tmp_path):
    write_binary(tmp_path, "cifar100")
    splits = load("cifar100", tmp_path)
    assert splits.train.images.untyped_storage().nbytes() == splits.train.images.numel()
    assert splits.train.images.dtype == torch.uint8


def test_images_are_brought_to_another_size_when_they_are_asked_for(tmp_path):
    images, labels = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8), torch.tensor([4, 0, 99])
    for name in ("train", "test"):
        records = [
            bytes([0, int(label)]) + image.numpy().tobytes() for image, label in zip(images, labels, strict=True)
        ]
        (tmp_path / f"{name}.bin").write_bytes(b"".join(records))
    found = cifar100(tmp_path, size=64).train
    assert found.input_shape == (3, 64, 64)
    assert not found.in_memory
    batch, known = found.select([2, 1]).batch([0])
    assert known.tolist() == [99]
    assert batch.dtype == torch.uint8
    back = torch.nn.functional.avg_pool2d(batch.float(), 2)
    assert (back - images[2].float()).abs().mean() < 25  # smoothed, not another image
    assert torch.equal(cifar100(tmp_path).train.images, images)
