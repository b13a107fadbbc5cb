"""What is fuzzed: readers of files that may come from anybody, one function of bytes each.

A target returns quietly, whether the bytes were read or refused in words. Whatever else it raises is a finding.
"""

from __future__ import annotations

import gzip
import io
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mutations
import torch
from PIL import Image
from torch import Tensor, nn

from remix.data.cifar_files import read_shards
from remix.data.decode import opened
from remix.data.errors import DataError, UnreadableImage
from remix.data.fashion_mnist import read_idx
from remix.data.preprocessing import Preprocessing
from remix.data.unpickling import PIXELS, RefusedPickle, unpickle
from remix.experiments.config import build_config, parse_assignments
from remix.learning import Model, load_model, save_model
from remix.networks import Classifier, LinearHead, registry
from remix.networks.backbone import Backbone, Block
from remix.statistics import DamagedFileError, Memory, Selectors, batchnorm_points, measure_classes, measure_layers
from remix.support.documents import DocumentError, parse_json, parse_yaml
from remix.support.settings import SettingError
from remix.support.text import printable

FILES = Path(__file__).parent.parent / "learning" / "files"

Image.init()  # so that the readers of all formats are imported, and instrumented, now


@dataclass(frozen=True)
class Target:
    """A reader under attack.

    Attributes:
        read: takes bytes, raises only for a finding.
        seeds: sound files to begin with.
        mutate: (bytes, other bytes, random source) -> bytes that know the format, beside the fuzzer's own; or None.
        longest: bytes of an input.

    """

    read: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    mutate: Callable[[bytes, bytes, random.Random], bytes] | None = None
    longest: int = 4096


# --- model files ---


class Fuzzed(Backbone):
    """So small that opening a file is what takes the time, not building the network."""

    def __init__(self, width: int = 2, size: int = 4) -> None:
        if not 1 <= width <= 8 or not 1 <= size <= 8:
            raise ValueError("a network of this size is not for this")
        super().__init__((1, size, size), width)
        self.body = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))

    def blocks(self) -> list[Block]:
        return [Block("body", self.body)]


@contextmanager
def _known() -> Iterator[None]:
    """Registered only meanwhile: other tests look at every backbone that there is."""
    registry._factories["fuzzed"] = Fuzzed
    try:
        yield
    finally:
        del registry._factories["fuzzed"]


def _model_seeds() -> list[bytes]:
    """Files with every kind of content: statistics of channels and maps, dense ones, Gaussians, selectors, history."""
    told = load_model(FILES / "model-v2.remix")
    backbone = Fuzzed().eval()
    count = len(told.classes)
    images = torch.randn(20, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    points = batchnorm_points(backbone)
    memory = Memory()
    memory.layers = {
        **measure_layers(backbone, [images], points, kinds=("laplace", "dense")),
        **measure_layers(backbone, [images], points, "map", kinds=("laplace",)),
    }
    memory.gaussians = measure_classes(backbone, [(images, torch.arange(20) % count)])
    vectors = {name: torch.ones(count, 2, 2) for name in ("bias", "scale", "shift", "mean", "variance")}
    memory.selectors = Selectors(tuple(range(count)), torch.zeros(count, 4, 2), **vectors)
    assert told.memory is not None
    memory.classes, memory.tasks = told.memory.classes, told.memory.tasks
    preprocessing = Preprocessing(4, 1, (0.5,), (0.5,))
    classifier = Classifier(backbone, LinearHead(2, told.classifier.head.task_sizes)).eval()
    found = []
    for kept, history in ((None, ()), (memory, told.history)):
        model = Model(classifier, "fuzzed", {"width": 2}, told.classes, preprocessing, kept, {"by": "hand"}, history)
        with tempfile.NamedTemporaryFile(suffix=".remix") as file, _known():
            save_model(file.name, model)
            found.append(Path(file.name).read_bytes())
    return found


def _mutated_model(data: bytes, other: bytes, draw: random.Random) -> bytes:
    kinds = list(mutations.KINDS)
    try:
        return draw.choices(kinds, list(mutations.KINDS.values()))[0](data, other, draw)
    except Exception:  # what is not a file any more has no header to forge
        return mutations.flip_bits(data or b"\0", b"", draw)


def read_model(data: bytes) -> None:
    try:
        with _known():
            model = load_model(_file(data, "model.remix"))
    except DamagedFileError as error:
        _check_sentence(str(error))
        return
    image = torch.zeros(1, *model.preprocessing.shape)
    with torch.no_grad():
        assert bool(torch.isfinite(model.classifier(image)).all()), "a network that cannot compute was believed"


# --- the others ---


def _picture_seeds() -> list[bytes]:
    pixels = torch.randint(0, 256, (8, 9, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)).numpy()
    picture, found = Image.fromarray(pixels), []
    for form, mode in (
        *(("PNG", mode) for mode in ("RGB", "L", "P", "RGBA", "1", "I;16")),
        *(("JPEG", mode) for mode in ("RGB", "L", "CMYK")),
        *(("TIFF", mode) for mode in ("RGB", "L", "F", "P")),
        *((form, "RGB") for form in ("BMP", "GIF", "WEBP", "PPM", "AVIF", "MPO", "JPEG2000")),
    ):
        out = io.BytesIO()
        try:
            source = Image.fromarray(pixels[..., 0].astype("uint16")) if mode == "I;16" else picture.convert(mode)
            source.save(out, form, **({"exif": bytes(_turned())} if form in ("JPEG", "PNG", "TIFF", "WEBP") else {}))
        except (OSError, KeyError, ValueError):  # a Pillow that was built without this format
            continue
        found.append(out.getvalue())
    return found


def _turned() -> Any:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif.tobytes()


def read_image(data: bytes) -> None:
    try:
        with opened(io.BytesIO(data)) as picture:
            mode = picture.mode
    except UnreadableImage as error:
        _check_sentence(str(error))
    else:
        assert mode == "RGB"


def read_yaml(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    try:
        values = parse_yaml(text)
        if isinstance(values, dict):
            build_config(values).to_plain()
        parse_assignments([f"settings.lr={text}"])
    except (DocumentError, SettingError) as error:
        _check_sentence(str(error))


def _yaml_seeds() -> list[bytes]:
    folder = Path(__file__).parents[2] / "src" / "remix" / "presets"
    return [file.read_bytes() for file in sorted(folder.glob("*.yaml"))] + [b"a: &b [1, 2]\nc: {<<: {d: *b}}\n"]


def read_json(data: bytes) -> None:
    try:
        parse_json(data)
    except DocumentError as error:
        _check_sentence(str(error))


def read_idx_file(data: bytes) -> None:
    for name in ("a", "a.gz"):
        try:
            assert isinstance(read_idx(_file(data, name)), Tensor)
        except DataError as error:
            _check_sentence(str(error))


def _idx_seeds() -> list[bytes]:
    plain = [b"\0\0\x08\x01\0\0\0\x03abc", b"\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x02abcd"]
    return plain + [gzip.compress(data) for data in plain]


def read_parquet(data: bytes) -> None:
    try:
        read_shards([_file(data, "train.parquet")], "label", Preprocessing(8, 3, (0.5,) * 3, (0.5,) * 3))
    except DataError as error:
        _check_sentence(str(error))


def _parquet_seeds() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    image, found = _picture_seeds()[0], []
    columns: list[dict[str, Any]] = [
        {"image": [{"bytes": image, "path": "a"}] * 2, "label": [0, 1]},
        {"img": [image, image], "label": [1, None]},
        {"image": [[1], [2, 3]], "label": ["a", "b"]},
    ]
    for table in columns:
        out = io.BytesIO()
        pq.write_table(pa.table(table), out, compression="none")
        found.append(out.getvalue())
    return found


def read_pickled(data: bytes) -> None:
    """What the child process does. Bytes that end or occupy it are no finding: the parent survives them."""
    try:
        raw, _, labels = unpickle(io.BytesIO(data), "labels")
    except RefusedPickle as error:
        _check_sentence(printable(str(error)))  # as the parent shows it
    else:
        assert len(raw) == PIXELS * len(labels)


def _pickle_seeds() -> list[bytes]:
    import pickle

    import numpy as np

    images = np.zeros((1, PIXELS), np.uint8)
    contents: list[Any] = [
        {b"data": images, b"labels": [1], b"filenames": [b"a.png"], b"batch_label": b"training"},
        {"data": np.asfortranarray(images), "labels": [3]},
        {"label_names": ["apple", "bear"], "labels": (None, 1.5, {"x"})},
    ]
    return [pickle.dumps(content, protocol) for content in contents for protocol in (0, 2, 4, 5)]


TARGETS = {
    "model": Target(read_model, _model_seeds, _mutated_model, 1 << 16),
    "pickle": Target(read_pickled, _pickle_seeds, longest=8192),
    "image": Target(read_image, _picture_seeds),
    "yaml": Target(read_yaml, _yaml_seeds),
    "json": Target(read_json, lambda: [b'{"a": [1, 2.5, "x\\u00e9", null, true]}']),
    "idx": Target(read_idx_file, _idx_seeds),
    "parquet": Target(read_parquet, _parquet_seeds),
}


def _check_sentence(text: str) -> None:
    assert text.isprintable(), f"not printable: {text!r}"
    assert len(text) < 1000, f"no sentence: {text!r}"


def _file(data: bytes, name: str) -> Path:
    """A file of these bytes, in memory where the system has that."""
    path = Path(_folder(), name)
    path.write_bytes(data)
    return path


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []


def _folder() -> str:
    if not _FOLDERS:
        _FOLDERS.append(tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    return _FOLDERS[0].name
