"""Archives, honest and otherwise."""

import gzip
import io
import random
import stat
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from remix.data import DataError
from remix.data.archives import unpack
from tests.data.samples import largest_file


def write(path, files):
    """An archive with these contents by name: bytes, or a dict of a member's attributes."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(path, "w:gz") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                for key, value in (content if isinstance(content, dict) else {"size": len(content)}).items():
                    setattr(member, key, value)
                archive.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    return path


KINDS = ["a.zip", "a.tar.gz", "a.tgz"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_inside_comes_out(tmp_path, kind):
    archive = write(tmp_path / kind, {"set/train/x": b"one", "set/y": b"two", "z": b"three"})
    unpack(archive, tmp_path)
    assert (tmp_path / "set" / "train" / "x").read_bytes() == b"one"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([kind, "set", "z"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "set/../../outside",
        "/tmp/remix-outside",
        "c:outside",
        "..\\outside",
        "a/" * 30 + "deep",
        "..",
        "x/..",
    ],
)
def test_nothing_is_written_outside(tmp_path, kind, name):
    folder = tmp_path / "folder"
    folder.mkdir()
    archive = write(tmp_path / kind, {"good": b"x", name: b"bad"})
    with pytest.raises(DataError, match="was not unpacked: it names"):
        unpack(archive, folder)
    assert list(folder.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([kind, "folder"])
    assert not Path("/tmp/remix-outside").exists()


LINKS = {
    "symbolic": {"type": tarfile.SYMTYPE, "linkname": "/etc"},
    "inside": {"type": tarfile.SYMTYPE, "linkname": "good"},
    "hard": {"type": tarfile.LNKTYPE, "linkname": "good"},
    "pipe": {"type": tarfile.FIFOTYPE},
    "device": {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5},
    "unknown": {"type": b"Z"},
}


@pytest.mark.parametrize("kind", LINKS)
def test_links_and_devices_are_refused(tmp_path, kind):
    archive = write(tmp_path / "a.tgz", {"good": b"x", "set\x1b[31m": LINKS[kind]})
    with pytest.raises(DataError, match=r"was not unpacked: set\\x1b\[31m in it is a link or a device"):
        unpack(archive, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.tgz"]


def test_a_link_through_a_long_path_leads_nowhere(tmp_path):
    """Some versions of the standard library's filter give up on a path that is too long, and follow the link."""
    long = "d" * 247
    steps, path, files = "abcdefghijklmnop", "", {}
    for step in steps:
        files[f"{path}{long}"] = {"type": tarfile.DIRTYPE}
        files[f"{path}{step}"] = {"type": tarfile.SYMTYPE, "linkname": long}
        path += f"{long}/"
    short = "/".join(steps)
    files[f"{short}/{'l' * 254}"] = {"type": tarfile.SYMTYPE, "linkname": "../" * len(steps)}
    files["escape"] = {"type": tarfile.SYMTYPE, "linkname": f"{short}/{'l' * 254}/../.."}
    files["escape/outside"] = b"bad"
    folder = tmp_path / "one" / "two"
    folder.mkdir(parents=True)
    with pytest.raises(DataError, match="was not unpacked"):
        unpack(write(tmp_path / "a.tgz", files), folder)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.tgz", "one", "two"]


def test_a_link_in_a_zip_file_is_refused(tmp_path):
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive = write(tmp_path / "a.zip", {link: b"/etc"})
    with pytest.raises(DataError, match="link in it is a link or a device"):
        unpack(archive, tmp_path)


@pytest.mark.parametrize("kind", ["a.zip", "a.tgz"])
def test_a_small_archive_of_a_large_file_is_refused(tmp_path, kind):
    archive = write(tmp_path / "plain.tgz", {"x": bytes(2**25)}).rename(tmp_path / kind)
    if kind == "a.zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
            opened.writestr("x", bytes(2**25))
    assert archive.stat().st_size < 2**16
    with pytest.raises(DataError, match="far more than fits into it"):
        unpack(archive, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [kind]


def test_a_negative_size_does_not_lead_round_in_circles(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("good"))
        archive.addfile(tarfile.TarInfo("round"))
    content = bytearray((tmp_path / "a.tar").read_bytes())
    header = content[512:1024]
    header[124:136] = b"\xff" * 10 + b"\xfe\x00"  # -512: back to this header
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * ord(" ") + sum(header[156:]))
    content[512:1024] = header
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(DataError, match="far more than fits"):
        unpack(tmp_path / "a.tar", tmp_path)


@pytest.mark.parametrize("kind", ["a.zip", "a.tgz"])
def test_the_same_name_twice_is_refused(tmp_path, kind):
    archive = write(tmp_path / kind, {"x": b"one", "./x": b"two"})
    with pytest.raises(DataError, match=r"cannot unpack .* File exists"):
        unpack(archive, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["cut", "noise", "empty"])
def test_damaged_archives_leave_nothing_behind(tmp_path, kind, damage):
    archive = write(tmp_path / kind, {"set/x": bytes(range(256)) * 400})
    whole = archive.read_bytes()
    archive.write_bytes({"cut": whole[: len(whole) // 2], "noise": b"x" * 500, "empty": b""}[damage])
    with pytest.raises(DataError, match="damaged"):
        unpack(archive, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [kind]


@pytest.mark.parametrize("kind", KINDS)
def test_what_exists_is_not_touched(tmp_path, kind):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine").write_text("keep")
    archive = write(tmp_path / kind, {"set/x": b"one"})
    with pytest.raises(DataError, match="exists already but is not complete; remove it"):
        unpack(archive, tmp_path)
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["mine"]


def test_an_archive_that_does_not_fit(tmp_path, monkeypatch):
    archive = write(tmp_path / "a.zip", {"x": bytes(1000)})
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 999}))
    with pytest.raises(DataError, match="GB free"):
        unpack(archive, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_on_the_size_of_files(tmp_path, kind):
    archive = write(tmp_path / kind, {"x": bytes(10_000)})
    with largest_file(5000), pytest.raises(DataError, match=r"cannot unpack .* File too large"):
        unpack(archive, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [kind]


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_refused_or_harmless(tmp_path, kind):
    archive = write(tmp_path / kind, {f"set/{k}": bytes(range(100)) for k in range(5)})
    whole = archive.read_bytes() if kind == "a.zip" else gzip.decompress(archive.read_bytes())
    generator = random.Random(0)
    for attempt in range(300):
        mutated = bytearray(whole)
        for _ in range(3):
            mutated[generator.randrange(len(whole))] = generator.randrange(256)
        archive.write_bytes(mutated if kind == "a.zip" else gzip.compress(mutated, 1))
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with suppress(DataError):
            unpack(archive, folder)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([kind, *map(str, range(300))])
