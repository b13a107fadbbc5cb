"""Image files of every kind, and files that are none."""

import io
import os
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from remix.data import UnreadableImage
from remix.data.decode import SUFFIXES, open_picture
from tests.data.samples import save_picture

COLOUR = (200, 100, 50)


@pytest.mark.parametrize("suffix", sorted(SUFFIXES - {".pgm"}))
def test_every_listed_kind_opens(tmp_path, suffix):
    picture = open_picture(save_picture(tmp_path / f"a{suffix}", COLOUR))
    assert picture.mode == "RGB"
    assert np.abs(np.asarray(picture).astype(int) - COLOUR).max() < 12


def test_grey_is_spread_over_the_channels(tmp_path):
    Image.new("L", (5, 5), 77).save(tmp_path / "a.pgm")
    assert open_picture(tmp_path / "a.pgm").getpixel((0, 0)) == (77, 77, 77)
    assert open_picture(tmp_path / "a.pgm", channels=1).getpixel((0, 0)) == 77


def test_cmyk(tmp_path):
    Image.new("RGB", (8, 8), COLOUR).convert("CMYK").save(tmp_path / "a.jpg", quality=100)
    picture = open_picture(tmp_path / "a.jpg")
    assert np.abs(np.asarray(picture).astype(int) - COLOUR).max() < 12


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_16_bits_are_scaled_to_8(tmp_path, suffix):
    deep = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    Image.fromarray(deep).save(tmp_path / f"a.{suffix}")
    assert np.array_equal(np.asarray(open_picture(tmp_path / f"a.{suffix}", channels=1)), deep // 257)


@pytest.mark.parametrize("suffix", ["gif", "webp", "png"])
def test_the_first_frame_of_an_animation(tmp_path, suffix):
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:])
    assert open_picture(tmp_path / f"a.{suffix}").getpixel((4, 4))[0] > 240


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_becomes_white(tmp_path, mode):
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    image.putpixel((0, 0), (0, 0, 0, 255))
    image.convert(mode).save(tmp_path / "a.png")
    picture = open_picture(tmp_path / "a.png")
    assert picture.getpixel((0, 0)) == (0, 0, 0)
    assert picture.getpixel((3, 3)) == (255, 255, 255)


def test_a_photograph_is_turned_as_its_camera_noted(tmp_path):
    image = Image.new("RGB", (6, 4), "black")
    note = image.getexif()
    note[0x0112] = 6
    image.save(tmp_path / "a.jpg", exif=note)
    assert open_picture(tmp_path / "a.jpg").size == (4, 6)


def damaged(kind, path):
    """Write a file of a kind that cannot be used."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    stream = io.BytesIO()
    noise.save(stream, "PNG" if kind == "corrupt" else "JPEG")
    whole = stream.getvalue()
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("this is a letter, not a picture\n" * 30)
    elif kind == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "corrupt":
        path.write_bytes(whole[:200] + bytes(200) + whole[400:])
    elif kind == "1 x 1":
        Image.new("RGB", (1, 1)).save(path, "PNG")
    elif kind == "huge":
        header = b"IHDR" + struct.pack(">2I5B", 20_000, 20_000, 8, 2, 0, 0, 0)
        path.write_bytes(
            b"\x89PNG\r\n\x1a\n"
            + struct.pack(">I", 13)
            + header
            + struct.pack(">I", zlib.crc32(header))
            + b"\0\0\0\0IDAT"
        )
    elif kind == "float":
        Image.fromarray(np.zeros((4, 4), np.float32)).save(path, "TIFF")
    elif kind == "32 bits":
        Image.fromarray(np.full((4, 4), 2**20, np.int32)).save(path, "TIFF")
    elif kind == "postscript":
        noise.save(path, "EPS")
    elif kind == "link to nothing":
        path.symlink_to(path.with_name("gone"))
    return path


KINDS = {
    "empty": "empty",
    "text": "not an image",
    "truncated": "damaged",
    "corrupt": "damaged",
    "1 x 1": "1 x 1 pixels",
    "huge": "too many",
    "float": "floating-point",
    "32 bits": "more than 16 bits",
    "postscript": "not an image",
    "link to nothing": "no such file",
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_used_has_a_reason(tmp_path, kind):
    with pytest.raises(UnreadableImage) as caught:
        open_picture(damaged(kind, tmp_path / "a.jpg"))
    assert KINDS[kind] in caught.value.reason
    assert str(caught.value).startswith(str(tmp_path / "a.jpg"))


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = save_picture(tmp_path / "a.png")
    if os.geteuid() == 0:  # who may read everything
        monkeypatch.setattr(Image, "open", lambda *a, **k: (_ for _ in ()).throw(PermissionError(13, "denied")))
    else:
        path.chmod(0)
    with pytest.raises(UnreadableImage, match="no permission"):
        open_picture(path)


def test_a_wide_image_opens(tmp_path):
    assert open_picture(save_picture(tmp_path / "a.png", size=(20_000, 30))).size == (20_000, 30)


@pytest.mark.filterwarnings("ignore")  # what Pillow thinks of such files
@pytest.mark.parametrize("seed", range(40))
def test_no_mutation_of_a_file_does_more_than_refuse(tmp_path, seed):
    generator = np.random.default_rng(seed)
    suffix = ("JPEG", "PNG", "GIF", "TIFF", "WEBP")[seed % 5]
    stream = io.BytesIO()
    Image.fromarray(generator.integers(0, 256, (24, 24, 3), dtype=np.uint8)).save(stream, suffix)
    content = bytearray(stream.getvalue())
    for _ in range(10):
        mutated = content.copy()
        for position in generator.integers(0, len(content), 8):
            mutated[position] = generator.integers(0, 256)
        with suppress(UnreadableImage):
            assert open_picture(io.BytesIO(bytes(mutated))).mode == "RGB"
