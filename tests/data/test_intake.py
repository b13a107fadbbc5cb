"""Whatever people call their data becomes the same labelled images, or one sentence."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from remix.data import DataError, ImageDataset, Preprocessing
from remix.data.intake import take_in

SHAPE = Preprocessing(8, 3, (0.0,) * 3, (1.0,) * 3)


def pictures(count=12, size=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 3, size, size), generator=generator, dtype=torch.uint8)


IMAGES, LABELS = pictures(), torch.arange(12) % 3


class Pairs(Dataset):
    """A map-style data set of (picture, label)."""

    classes = ("ant", "bee", "cat")

    def __init__(self, images=IMAGES, labels=LABELS, convert=lambda image: image):
        self.images, self.labels, self.convert = images, labels, convert

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, place):
        return self.convert(self.images[place]), int(self.labels[place])


def as_pil(image):
    return Image.fromarray(image.permute(1, 2, 0).numpy())


class Table:
    """What a Hugging Face dataset looks like from outside."""

    def __init__(self, rows, features):
        self.rows, self.features = rows, features

    @property
    def column_names(self):
        return list(self.features)

    def __iter__(self):
        return iter(self.rows)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        return self.rows[place]


def feature(kind, **values):
    return type(kind, (SimpleNamespace,), {})(**values)


def table(names=("ant", "bee", "cat")):
    rows = [{"image": as_pil(i), "label": int(k)} for i, k in zip(IMAGES, LABELS, strict=True)]
    return Table(rows, {"image": feature("Image"), "label": feature("ClassLabel", names=list(names))})


KINDS = {
    "tensors": (IMAGES, LABELS),
    "floats": (IMAGES.float() / 255, LABELS),
    "arrays, channels last": (IMAGES.permute(0, 2, 3, 1).numpy(), LABELS.numpy()),
    "lists": ([as_pil(image) for image in IMAGES], LABELS.tolist()),
    "list of pairs": [(as_pil(i), int(k)) for i, k in zip(IMAGES, LABELS, strict=True)],
    "dataset": Pairs(),
    "dataset of pillow": Pairs(convert=as_pil),
    "tensor dataset": TensorDataset(IMAGES, LABELS),
    "loader": DataLoader(Pairs(), batch_size=5),
    "subset": Subset(Pairs(), range(12)),
    "hugging face": table(),
    "image dataset": ImageDataset(IMAGES, LABELS, ("ant", "bee", "cat")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data_gives_the_same_images(kind):
    found = take_in(KINDS[kind], SHAPE, holdout=0.0)
    assert torch.equal(found.train.labels, LABELS)
    assert torch.equal(found.train.decoded().images, IMAGES)
    named = kind not in ("tensors", "floats", "arrays, channels last", "lists", "list of pairs", "tensor dataset")
    assert found.classes == (("ant", "bee", "cat") if named else ("class 0", "class 1", "class 2"))


def test_a_folder_is_read_with_its_names(tmp_path):
    for name in ("cat", "ant"):
        (tmp_path / name).mkdir()
        for place in range(5):
            as_pil(IMAGES[place]).save(tmp_path / name / f"{place}.png")
    for path in (tmp_path, str(tmp_path)):
        found = take_in(path, SHAPE)
        assert found.classes == ("ant", "cat")
        assert (len(found.train), len(found.held)) == (8, 2)


def test_sizes_may_be_mixed_and_colours_too():
    mixed = [Image.new("L", (30, 20), 90), as_pil(IMAGES[0]), np.zeros((5, 9), np.uint8), torch.rand(3, 40, 40)]
    found = take_in((mixed, [0, 0, 1, 1]), SHAPE, holdout=0.0)
    assert found.train.input_shape == (3, 8, 8)


def test_grey_images_may_come_without_a_channel_axis():
    grey = take_in((torch.rand(6, 5, 5), [0, 1] * 3), SHAPE, holdout=0.0)
    assert grey.train.input_shape == (3, 8, 8)
    assert take_in((np.random.default_rng(0).random((6, 5, 5)), [0, 1] * 3), SHAPE).classes == ("class 0", "class 1")


def test_only_classes_with_images_count_and_labels_begin_at_0():
    found = take_in((IMAGES, LABELS * 10 + 5), SHAPE, classes=[f"name {i}" for i in range(40)], holdout=0.0)
    assert found.classes == ("name 5", "name 15", "name 25")
    assert torch.equal(found.train.labels, LABELS)


def test_labels_may_be_names():
    found = take_in((IMAGES, ["bee", "ant", "cat"] * 4), SHAPE, holdout=0.0)
    assert found.classes == ("ant", "bee", "cat")
    assert found.train.labels[:3].tolist() == [1, 0, 2]


def test_the_held_out_part_has_images_of_every_class_and_depends_on_the_seed_alone():
    first, again, other = (take_in(Pairs(), SHAPE, holdout=0.25, seed=seed) for seed in (0, 0, 1))
    assert first.held.counts() == {"ant": 1, "bee": 1, "cat": 1}
    assert torch.equal(first.held.images, again.held.images)
    assert not torch.equal(first.held.images, other.held.images)


def test_one_image_per_class_is_learned_from_and_none_is_held_out():
    found = take_in((IMAGES[:2], [0, 1]), SHAPE)
    assert (len(found.train), len(found.held)) == (2, 0)


NAN = IMAGES.float() / 255
NAN[4, 0, 0, 0] = float("nan")


@pytest.mark.parametrize(
    ("data", "options", "sentence"),
    [
        ((IMAGES, LABELS), {"classes": ["a", "b"]}, "image 2 has the label 2, but there are names of only 2"),
        ((IMAGES, LABELS - 1), {}, "label of image 0 is -1"),
        ((IMAGES, [10**9] * 12), {}, "label of image 0 is 1000000000"),
        ((IMAGES, LABELS.float() + 0.5), {}, "must be a whole number or a name, got 0.5"),
        ((IMAGES, LABELS[:5]), {}, "12 images but 5 labels"),
        ((IMAGES, torch.eye(12)), {}, "one number per image"),
        ((list(IMAGES), [0, 1]), {}, "of one length, got 12 and 2"),
        ((IMAGES.float() / 100 - 1, LABELS), {}, "within 0..1.*leave normalisation out"),
        ((NAN, LABELS), {}, "image 4 of the data cannot be used"),
        ((IMAGES.int(), LABELS), {}, "image 0 of the data cannot be used: an array of int32"),
        ((torch.rand(4, 7, 8, 8), [0, 1, 0, 1]), {}, "image 0"),
        ((IMAGES[:0], LABELS[:0]), {}, "no image"),
        (Pairs(labels=LABELS + 1), {}, "names of only 3 classes"),
        ([1, 2, 3], {}, "item 0 of the data must be .image, label., got int"),
        (42, {}, "data must be a folder"),
        ({"train": Pairs()}, {}, r"several data sets .train.: give one of them"),
        ((IMAGES, ["ant", "dog", "cat"] * 4), {"classes": ["ant", "cat"]}, "'dog' is not among the names"),
        (Table([], {"text": feature("Value")}), {}, "needs an image and a label column .it has text"),
        ("/no/such/folder", {}, "no folder"),
        (".", {"classes": ["a"]}, "names of a folder's classes"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(data, options, sentence):
    with pytest.raises(DataError, match=sentence) as caught:
        take_in(data, SHAPE, **options)
    assert "\n" not in str(caught.value)


def test_too_many_pixels_are_refused_before_memory_is_full(monkeypatch):
    monkeypatch.setattr("remix.data.intake._MOST_BYTES", 1000)
    with pytest.raises(DataError, match="save them as a folder"):
        take_in(Pairs(convert=as_pil), SHAPE)
