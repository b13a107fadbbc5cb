"""Archives, honest and otherwise."""

import io
import tarfile
import zipfile

import pytest

from remix.data import DataError
from remix.data.archives import unpack


def write(path, files, links=()):
    """An archive with these contents by name; links as (name, target)."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(path, "w:gz") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            for name, target in links:
                member = tarfile.TarInfo(name)
                member.type, member.linkname = tarfile.SYMTYPE, target
                archive.addfile(member)
    return path


KINDS = ["a.zip", "a.tar.gz", "a.tgz"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_inside_comes_out(tmp_path, kind):
    archive = write(tmp_path / kind, {"set/train/x": b"one", "set/y": b"two", "z": b"three"})
    assert unpack(archive, tmp_path) == [tmp_path / "set", tmp_path / "z"]
    assert (tmp_path / "set" / "train" / "x").read_bytes() == b"one"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([kind, "set", "z"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["../outside", "set/../../outside", "/tmp/remix-outside"])
def test_nothing_is_written_outside(tmp_path, kind, name):
    folder = tmp_path / "folder"
    folder.mkdir()
    archive = write(tmp_path / kind, {"good": b"x", name: b"bad"})
    if kind != "a.zip" and name.startswith("/"):
        unpack(archive, folder)  # the data filter takes the leading slash off
        assert (folder / "tmp" / "remix-outside").exists()
    else:
        with pytest.raises(DataError, match="was not unpacked"):
            unpack(archive, folder)
        assert list(folder.iterdir()) == []
    assert not (tmp_path / "outside").exists()


def test_links_out_of_the_folder_are_refused(tmp_path):
    archive = write(tmp_path / "a.tgz", {"good": b"x"}, links=[("set", "/etc")])
    with pytest.raises(DataError, match="was not unpacked"):
        unpack(archive, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.tgz"]


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
