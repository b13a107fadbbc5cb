"""What `remix doctor` says, about the kernels above all."""

import json
import sys
from dataclasses import asdict, dataclass
from io import StringIO

import pytest
from rich.console import Console

from remix import __version__, cli
from remix.cli import doctor
from remix.laplace import kernels, native_library


@dataclass
class Status:
    path: str
    reason: str
    isa: str | None = None
    library: str | None = None


def printed(found: doctor.Examination) -> str:
    out = StringIO()
    doctor.show(found, Console(file=out, width=300))
    return out.getvalue()


@pytest.fixture
def use_status(monkeypatch):
    """Replaces what the Laplace core says of itself, and the library file that lies beside it."""
    monkeypatch.delenv("REMIX_KERNELS", raising=False)

    def replace(file=None, **fields):
        monkeypatch.setattr(kernels, "status", lambda: Status(**fields))
        monkeypatch.setattr(native_library, "find_library", lambda: file)

    return replace


def test_on_this_machine_nothing_is_broken(capsys):
    cli.main(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["remix"] == __version__
    assert found["broken"] is None
    assert found["kernels"]["path"] == kernels.status().path
    assert found["kernels"]["reason"] == kernels.status().reason
    assert found["threads"]["torch"] >= 1
    assert 0 < found["memory"]["available"] <= found["memory"]["total"]
    assert set(found["devices"]) == {"cpu", "cuda", "mps"}
    assert all(found["packages"].values())


def test_table_names_the_kernels_and_the_reason(use_status):
    use_status(path="native", reason="loaded, self-test passed", isa="avx2", library="/somewhere/_native.so")
    text = printed(doctor.examine())
    for expected in ("native", "self-test passed", "avx2", "/somewhere/_native.so", "threads", "memory", "torch"):
        assert expected in text
    assert "to do" not in text


def test_without_compiler_says_what_to_install(use_status, monkeypatch):
    use_status(path="torch", reason="not built")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no C++ compiler was found" in printed(doctor.examine())


def test_with_compiler_says_to_build(use_status, monkeypatch):
    use_status(path="torch", reason="not built")
    monkeypatch.setenv("CXX", sys.executable)
    assert f"a compiler is here ({sys.executable})" in printed(doctor.examine())


def test_forced_path_says_which_variable_to_unset(use_status, monkeypatch):
    use_status(path="torch", reason="forced by REMIX_KERNELS", file="/somewhere/_native.so")
    monkeypatch.setenv("REMIX_KERNELS", "torch")
    assert "unset REMIX_KERNELS" in printed(doctor.examine())


def test_failed_self_test_says_to_build_again(use_status):
    use_status(path="torch", reason="self-test failed", file="/somewhere/_native.so")
    text = printed(doctor.examine())
    assert "self-test failed" in text
    assert "build /somewhere/_native.so again" in text


def test_core_that_does_not_load_is_reported_and_is_an_error(monkeypatch, capsys):
    def fail():
        raise OSError("libtorch.so: cannot open shared object file")

    monkeypatch.setattr(kernels, "status", fail)
    with pytest.raises(SystemExit) as stop:
        cli.main(["doctor"])
    assert stop.value.code == 1
    assert "libtorch.so" in capsys.readouterr().out


def test_unknown_path_in_the_environment_is_reported(monkeypatch):
    monkeypatch.setenv("REMIX_KERNELS", "fast")
    found = doctor.examine()
    assert "fast" in found.broken
    assert "native, torch, reference" in printed(found)


@pytest.mark.parametrize(("folder", "exists"), [("/no/such/folder", False), ("/", True)])
def test_a_data_folder_that_is_not_there_is_said(monkeypatch, folder, exists):
    monkeypatch.setenv("REMIX_DATA", folder)
    found = doctor.examine()
    assert asdict(found)["data"] == {"REMIX_DATA": folder, "exists": exists}
    assert ("no such folder" in printed(found)) is not exists
