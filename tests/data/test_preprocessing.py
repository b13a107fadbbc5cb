"""What is done to a picture before a network sees it."""

import json

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from remix.data import CLIP, IMAGENET, DataError, Normalisation, Preprocessing, UnreadableImage


@pytest.mark.parametrize(
    "normalisation", [IMAGENET, CLIP, Normalisation((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))]
)
def test_every_byte_survives_the_way_there_and_back(normalisation):
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(2, 3, 1, 1)
    floats = normalisation.normalise(images)
    assert floats.dtype == torch.float32
    assert torch.equal(normalisation.denormalise(floats), images)


def test_it_is_what_the_formula_says():
    normalisation = Normalisation((0.2, 0.5, 0.7), (0.1, 0.3, 0.6))
    images = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    naive = torch.empty(2, 3, 4, 5, dtype=torch.float64)
    for channel, (mean, std) in enumerate(zip(normalisation.mean, normalisation.std, strict=True)):
        naive[:, channel] = (images[:, channel].double() / 255 - mean) / std
    torch.testing.assert_close(normalisation.normalise(images, torch.float64), naive, rtol=0, atol=1e-14)


def test_values_outside_the_bytes_are_cut_off():
    assert Normalisation((0.5,), (0.5,)).denormalise(torch.tensor([[[[-9.0, 9.0]]]])).flatten().tolist() == [0, 255]


def test_the_input_is_left_alone():
    images = torch.full((1, 3, 2, 2), 7, dtype=torch.uint8)
    floats = IMAGENET.normalise(images)
    before = floats.clone()
    IMAGENET.denormalise(floats)
    assert torch.equal(floats, before)
    assert (images == 7).all()


@pytest.mark.parametrize(("mean", "std"), [((), ()), ((0.5,), (0.5, 0.5)), ((0.5,), (0.0,))])
def test_numbers_that_cannot_be(mean, std):
    with pytest.raises(DataError, match="one number per channel"):
        Normalisation(mean, std)


@pytest.mark.parametrize("images", [torch.zeros(1, 3, 2, 2), torch.zeros(1, 1, 2, 2, dtype=torch.uint8)])
def test_only_bytes_of_as_many_channels(images):
    with pytest.raises(DataError, match="uint8 images"):
        IMAGENET.normalise(images)


def prepare(size=16, channels=3):
    return Preprocessing(size, channels, (0.5,) * channels, (0.25,) * channels)


def smooth(height, width):
    """A picture of long waves: half a pixel of shift, which rounding of the crop may cause, changes little."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / 40), np.cos(y / 30), np.sin((x + y) / 50)]
    return Image.fromarray(np.stack([127 + 100 * wave for wave in waves], axis=-1).astype(np.uint8))


@pytest.mark.parametrize(("height", "width"), [(64, 64), (64, 100), (120, 64), (65, 131), (16, 40), (9, 30)])
def test_it_is_resizing_the_shorter_side_and_keeping_the_middle(height, width):
    image, size = smooth(height, width), 16
    scale = size / min(height, width)
    resized = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BICUBIC)
    left, top = (resized.width - size) // 2, (resized.height - size) // 2
    naive = np.asarray(resized.crop((left, top, left + size, top + size))).astype(int)
    ours = prepare(size)(image).permute(1, 2, 0).numpy().astype(int)
    assert np.abs(ours - naive).mean() < 5


def test_an_image_of_the_right_size_is_not_touched():
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    assert np.array_equal(prepare()(Image.fromarray(pixels)).permute(1, 2, 0).numpy(), pixels)


def test_all_ways_to_hand_in_an_image_give_the_same(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    first = torch.from_numpy(pixels).permute(2, 0, 1)
    ways = [
        Image.fromarray(pixels),
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        pixels,
        pixels.astype(np.float32) / 255,
        pixels.astype(np.uint16) * 257,
        pixels.transpose(2, 0, 1),
        first,
        first.float() / 255,
        first.double() / 255,
        first.half() / 255,
    ]
    results = prepare().batch(ways)
    assert results.shape == (len(ways), 3, 16, 16)
    assert all(torch.equal(result, results[0]) for result in results)


def test_grey_becomes_colour_and_colour_becomes_grey():
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert torch.equal(prepare()(grey), torch.from_numpy(grey).expand(3, 16, 16))
    assert torch.equal(prepare(channels=1)(np.stack([grey] * 3, axis=-1)), torch.from_numpy(grey)[None])
    assert torch.equal(prepare(channels=1)(torch.from_numpy(grey)[None]), torch.from_numpy(grey)[None])


def test_a_very_wide_image_needs_no_more_memory_than_its_middle():
    assert prepare(64)(Image.new("RGB", (100_000, 2), "red"))[:, 0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((5, 5, 2), np.uint8), r"shape \(5, 5, 2\)"),
        (np.zeros(4, np.uint8), r"shape \(4,\)"),
        (np.zeros((0, 4), np.uint8), r"shape \(0, 4\)"),
        (np.zeros((4, 4), np.int64), "int64"),
        (np.full((4, 4), 17.0), r"0\.\.1, got 17\.\.17"),
        (np.full((4, 4), np.nan), r"0\.\.1"),
        (np.full((4, 4), -0.1), r"0\.\.1"),
        ("no/such/file.png", "no such file"),
        (object(), "no image"),
    ],
)
def test_what_is_no_image_is_refused(image, message):
    with pytest.raises(UnreadableImage, match=message):
        prepare()(image)


def test_a_picture_that_cannot_be_decoded(tmp_path):
    Image.effect_noise((64, 64), 90).save(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:900])
    with Image.open(tmp_path / "a.jpg") as opened, pytest.raises(UnreadableImage, match="damaged"):
        prepare()(opened)


def test_bfloat16_is_read():
    assert prepare()(torch.ones(3, 16, 16, dtype=torch.bfloat16)).min() == 255


def test_it_is_kept_as_json():
    one = Preprocessing(224, 3, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert Preprocessing.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert one.shape == (3, 224, 224)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"size": "x", "channels": 3, "mean": [0.5] * 3, "std": [1] * 3},
        {"size": 0, "channels": 3, "mean": [0.5] * 3, "std": [1] * 3},
        {"size": 10**9, "channels": 3, "mean": [0.5] * 3, "std": [1] * 3},
        {"size": 8, "channels": 2, "mean": [0.5] * 2, "std": [1] * 2},
        {"size": 8, "channels": 3, "mean": [0.5], "std": [1]},
        {"size": 8, "channels": 3, "mean": None, "std": [1]},
    ],
)
def test_stored_values_are_checked(values):
    with pytest.raises(DataError):
        Preprocessing.from_dict(values)


def test_no_images_make_an_empty_batch():
    assert prepare().batch([]).shape == (0, 3, 16, 16)


def photograph(kind, path):
    """A picture of an odd size, in one of the kinds that people have."""
    generator = np.random.default_rng(0)
    small = Image.fromarray(generator.integers(0, 256, (9, 13, 4), dtype=np.uint8), "RGBA")
    picture = small.resize((101, 67), Image.Resampling.BICUBIC)
    if kind == "turned":
        note = Image.Exif()
        note[0x0112] = 6
        picture.convert("RGB").save(path, "JPEG", exif=note)
    elif kind == "16 bits":
        Image.fromarray(generator.integers(0, 65536, (67, 101), dtype=np.uint16)).save(path, "PNG")
    elif kind == "small":
        picture.convert("RGB").resize((7, 4)).save(path, "PNG")
    else:
        picture.convert(kind).save(path, "TIFF")
    return path


@pytest.mark.parametrize("kind", ["RGB", "L", "RGBA", "LA", "P", "CMYK", "1", "turned", "16 bits", "small"])
@pytest.mark.parametrize("channels", [1, 3])
def test_what_other_programs_are_told_gives_what_the_network_sees(tmp_path, kind, channels):
    """Its words are followed by hand, its program is run; nothing of remix is used for either."""
    preprocessing = Preprocessing(33, channels, (0.5, 0.4, 0.3)[:channels], (0.2, 0.3, 0.4)[:channels])
    told = json.loads(json.dumps(preprocessing.to_dict() | preprocessing.recipe()))
    file = photograph(kind, tmp_path / "photograph")
    seen = preprocessing.normalisation.normalise(preprocessing.encoded(file)[None])[0].numpy()
    level = 1.01 / 255 / min(told["std"])
    names = {}
    exec(told["python"], names)
    assert np.abs(names["prepare"](file) - seen).max() < 1e-5
    assert np.abs(by_the_words(told, file) - seen).max() < level


def by_the_words(told, file):
    """The steps one by one, the resizing as sums over pixels rather than by Pillow."""
    image = ImageOps.exif_transpose(Image.open(file))
    pixels = np.asarray(image).astype(float)
    if image.mode.startswith("I"):
        pixels = (pixels + 128) // 257
    elif image.has_transparency_data:
        alpha = np.asarray(image.convert("RGBA").getchannel("A"), dtype=float)[..., None] / 255
        pixels = np.rint(np.asarray(image.convert("RGBA").convert("RGB")) * alpha + 255 * (1 - alpha))
    elif image.mode != "L":
        pixels = np.asarray(image.convert("RGB")).astype(float)
    pixels = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=2)
    if told["channels"] == 1:
        pixels = np.rint(pixels @ [0.299, 0.587, 0.114])[..., None]
    side = min(pixels.shape[:2])
    for axis in (1, 0):
        length = pixels.shape[axis]
        weights = bicubic(length, (length - side) / 2, side / told["size"], told["size"])
        pixels = np.rint(np.moveaxis(weights @ np.moveaxis(pixels, axis, -2), -2, axis)).clip(0, 255)
    return ((pixels / 255 - told["mean"]) / told["std"]).transpose(2, 0, 1)


def bicubic(length, start, step, count):
    """Weights (count, length) of the pixels of a line for those of a shorter or longer one."""
    centres = start + step * (np.arange(count) + 0.5)
    x = np.abs(np.arange(length) + 0.5 - centres[:, None]) / max(step, 1)
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    weights = np.where(x < 1, near, np.where(x < 2, far, 0))
    return weights / weights.sum(1, keepdims=True)


def test_the_way_to_resample_is_chosen_and_kept():
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 20, 3), dtype=np.uint8))
    plain, other = (Preprocessing(8, 3, (0.5,) * 3, (0.5,) * 3, way) for way in ("bicubic", "bilinear"))
    assert torch.equal(other(picture), as_tensor(picture.resize((8, 8), Image.Resampling.BILINEAR)))
    assert not torch.equal(other(picture), plain(picture))
    assert "resample" not in plain.to_dict()
    assert Preprocessing.from_dict(other.to_dict()) == other
    for wrong in ("nearest", ["bilinear"]):
        with pytest.raises(DataError, match="resample must be bicubic, bilinear, lanczos"):
            Preprocessing.from_dict(other.to_dict() | {"resample": wrong})


def as_tensor(picture: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)
