"""Image files of every kind, and files that are none."""

import io
import os
import socket
import struct
import subprocess
import sys
import threading
import zlib
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from remix.data import UnreadableImage, decode
from remix.data.decode import SUFFIXES, to_channels
from tests.data.samples import open_picture, save_picture

COLOUR = (200, 100, 50)
pytestmark = pytest.mark.filterwarnings("ignore")  # pytest shows what Pillow thinks of odd files, a program does not


@pytest.mark.parametrize("suffix", sorted(SUFFIXES - {".pgm", ".heic"}))
def test_every_listed_kind_opens(tmp_path, suffix):
    picture = open_picture(save_picture(tmp_path / f"a{suffix}", COLOUR))
    assert picture.mode == "RGB"
    assert np.abs(np.asarray(picture).astype(int) - COLOUR).max() < 12


def test_grey_is_spread_over_the_channels(tmp_path):
    Image.new("L", (5, 5), 77).save(tmp_path / "a.pgm")
    assert open_picture(tmp_path / "a.pgm").getpixel((0, 0)) == (77, 77, 77)
    assert open_picture(tmp_path / "a.pgm", channels=1).getpixel((0, 0)) == 77


def test_cmyk_keeps_its_colour(tmp_path):
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


def test_a_note_that_is_damaged_is_no_reason_to_lose_the_photograph(tmp_path):
    image = Image.new("RGB", (6, 4), COLOUR)
    image.save(tmp_path / "a.jpg", exif=b"Exif\0\0 what the camera wrote")
    assert open_picture(tmp_path / "a.jpg").size == (6, 4)


def chunk(name, content):
    """A piece of a PNG file."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


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
        header = chunk(b"IHDR", struct.pack(">2I5B", 20_000, 20_000, 8, 2, 0, 0, 0))
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + b"\0\0\0\0IDAT")
    elif kind == "float":
        Image.fromarray(np.zeros((4, 4), np.float32)).save(path, "TIFF")
    elif kind == "32 bits":
        Image.fromarray(np.full((4, 4), 2**20, np.int32)).save(path, "TIFF")
    elif kind == "postscript":
        noise.save(path, "EPS")
    elif kind == "link to nothing":
        path.symlink_to(path.with_name("gone"))
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "link to a device":
        path.symlink_to("/dev/urandom")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(os.path.relpath(path))  # the whole name may be too long for one
    elif kind == "long":
        path.write_bytes(b"\0\0\0\x1cftypavif")
        os.truncate(path, 2**30 + 1)
    elif kind == "scans":
        scan = whole[whole.rindex(b"\xff\xda") : -2]
        path.write_bytes(whole[:-2] + 200 * scan + whole[-2:])
    elif kind == "raw":
        noise.save(path, "TIFF", tiffinfo={50706: b"\1\4\0\0"})
    return path


KINDS = {
    "empty": "empty",
    "text": "not an image",
    "truncated": "damaged (cut off)",
    "corrupt": "damaged",
    "1 x 1": "1 x 1 pixels",
    "huge": "too many",
    "float": "floating-point",
    "32 bits": "more than 16 bits",
    "postscript": "not an image",
    "link to nothing": "no such file",
    "link to itself": "Too many levels of symbolic links",
    "link to a device": "a device, not a file",
    "pipe": "a pipe, not a file",
    "socket": "a socket, not a file",
    "long": "more than 1,024 MiB",
    "scans": "a JPEG of 201 scans",
    "raw": "a raw photograph",
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
        monkeypatch.setattr(os, "open", lambda *a, **k: (_ for _ in ()).throw(PermissionError(13, "denied")))
    else:
        path.chmod(0)
    with pytest.raises(UnreadableImage, match="no permission"):
        open_picture(path)


def test_a_wide_image_opens(tmp_path):
    assert open_picture(save_picture(tmp_path / "a.png", size=(20_000, 30))).size == (20_000, 30)


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


def with_brand(brand):
    return b"\0\0\0\x18ftyp" + brand + bytes(4) + brand + bytes(100)


def test_heic_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    for brand in (b"heic", b"mif1"):
        with pytest.raises(UnreadableImage, match=r"pip install 'remix-dfcil\[heic\]'"):
            open_picture(io.BytesIO(with_brand(brand)))
    with pytest.raises(UnreadableImage, match="not an image"):
        open_picture(io.BytesIO(with_brand(b"mp42")))


def test_heic_is_read_and_turned_once(tmp_path):
    heif = pytest.importorskip("pillow_heif")
    image = Image.new("RGB", (64, 32), COLOUR)
    image.paste("white", (0, 0, 32, 32))
    note = Image.Exif()
    note[0x0112] = 6
    heif.from_pillow(image).save(tmp_path / "a", quality=95)
    heif.from_pillow(image).save(tmp_path / "turned", quality=95, exif=note.tobytes())
    pixels = np.asarray(open_picture(tmp_path / "a")).astype(int)
    assert np.abs(pixels - np.asarray(image)).mean() < 4
    turned = np.asarray(open_picture(tmp_path / "turned")).astype(int)
    assert np.abs(turned - np.rot90(np.asarray(image), -1)).mean() < 4


def test_a_photograph_of_a_phone_with_two_pictures_in_it(tmp_path):
    first, second = Image.new("RGB", (8, 8), COLOUR), Image.new("RGB", (8, 8), "black")
    first.save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[second])
    assert np.abs(np.asarray(open_picture(tmp_path / "a.jpg")).astype(int) - COLOUR).max() < 12


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "I", "I;16", "I;16B"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_large_picture_is_converted_in_strips_to_the_same_pixels(mode, channels, monkeypatch):
    generator = np.random.default_rng(0)
    image = Image.fromarray(generator.integers(0, 256, (37, 23, 4), dtype=np.uint8), "RGBA")
    if mode.startswith("I"):
        kind = {"I": np.int32, "I;16": "<u2", "I;16B": ">u2"}[mode]
        image = Image.fromarray(generator.integers(0, 65536, (37, 23)).astype(kind))
        assert image.mode == mode
    else:
        image = image.convert(mode)
    whole = to_channels(image, channels)
    monkeypatch.setattr(decode, "_STRIP", 23 * 5)
    assert to_channels(image, channels).tobytes() == whole.tobytes()


def test_pictures_that_are_decoded_at_once_wait_for_room(tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "_IN_FLIGHT", decode._InFlight(200))
    large, small = (
        save_picture(tmp_path / "large.png", size=(15, 10)),
        save_picture(tmp_path / "small.png", size=(5, 5)),
    )
    done = []
    thread = threading.Thread(target=lambda: done.append(open_picture(large).size), daemon=True)
    with decode.opened(large):
        thread.start()
        assert open_picture(small).size == (5, 5)
        thread.join(0.2)
        assert not done
    thread.join(60)
    assert done == [(15, 10)]


def test_a_picture_that_could_not_be_read_gives_its_room_back(tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "_IN_FLIGHT", decode._InFlight(64 * 64))
    for _ in range(2):
        with pytest.raises(UnreadableImage, match="cut off"):
            open_picture(damaged("truncated", tmp_path / "a.jpg"))
    assert open_picture(save_picture(tmp_path / "b.png", size=(64, 64))).size == (64, 64)


def test_a_picture_that_is_right_already_is_not_copied():
    image = Image.new("RGB", (4, 4))
    assert to_channels(image, 3) is image


def test_nothing_that_pillow_remarks_gets_through(tmp_path):
    """A picture that it takes for a bomb, a damaged note, and an animation that does not say how long it is."""
    Image.new("1", (10_000, 10_000)).save(tmp_path / "large.png")
    Image.new("RGB", (6, 4)).save(tmp_path / "note.jpg", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + bytes(range(256)))
    content = save_picture(tmp_path / "apng.png").read_bytes()
    (tmp_path / "apng.png").write_bytes(content[:33] + chunk(b"acTL", bytes(8)) + content[33:])
    program = "import sys\nfrom remix.data.decode import opened\nfor name in sys.argv[1:]:\n    with opened(name): pass"
    names = ("large.png", "note.jpg", "apng.png")
    done = subprocess.run([sys.executable, "-c", program, *names], cwd=tmp_path, capture_output=True, check=True)
    assert done.stderr == b""
