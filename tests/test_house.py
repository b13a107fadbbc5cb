"""The house rules of design: rooms use only the rooms before them, files stay short, nothing unsafe is loaded."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "remix"
ROOMS = (
    "support",
    "laplace",
    "data",
    "networks",
    "statistics",
    "inversion",
    "learning",
    "methods",
    "deploy",
    "experiments",
    "report",
    "reproduce",
    "cli",
)
SOURCES = sorted(PACKAGE.rglob("*.py"))
OURS = sorted(
    path
    for folder in ("src", "tests", "examples", "benchmarks")
    for suffix in ("*.py", "*.cpp", "*.h")
    for path in (ROOT / folder).rglob(suffix)
)


def imported(path: Path, text: str | None = None) -> set[str]:
    """Full names of the modules and names that a file imports, at any depth of it."""
    names: set[str] = set()
    here = ("remix", *path.relative_to(PACKAGE).with_suffix("").parts)
    for node in ast.walk(ast.parse(path.read_text() if text is None else text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: -node.level]) + "." * bool(node.module) if node.level else ""
            module = base + (node.module or "")
            names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return names


def rooms_of(names: set[str]) -> set[str]:
    """The rooms of the house among imported names."""
    return {parts[1] for name in names if (parts := name.split("."))[0] == "remix" and parts[1:2]} & set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_uses_only_the_rooms_before_it(room):
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    files = sorted((PACKAGE / room).rglob("*.py"))
    wrong = {str(file.relative_to(ROOT)): rooms_of(imported(file)) - allowed for file in files if file.exists()}
    assert not {file: rooms for file, rooms in wrong.items() if rooms}


def test_every_folder_of_the_package_is_a_room():
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and list(path.glob("*.py"))}
    assert folders <= set(ROOMS)


def test_imports_are_seen_however_they_are_written():
    assert rooms_of({"remix.data.stream", "remix.presets", "numpy"}) == {"data"}
    for text in ("import remix.data.folder", "def f():\n    from remix import data", "from ..data import load"):
        assert "data" in rooms_of(imported(PACKAGE / "deploy" / "any.py", text))
    assert rooms_of(imported(PACKAGE / "deploy" / "any.py", "from . import step")) == {"deploy"}


@pytest.mark.parametrize("name", ["torchvision", "timm", "open_clip", "pickle", "joblib"])
def test_a_package_that_is_never_imported(name):
    # One file may, which runs in a process of its own, with limits.
    allowed = [PACKAGE / "data" / "unpickling.py"] if name == "pickle" else []
    assert [p for p in SOURCES if any(n.split(".")[0] == name for n in imported(p))] == allowed


def test_nothing_is_unpickled():
    unsafe = re.compile(r"torch\.load\(|allow_pickle\s*=\s*True|pickle\.loads?\(")
    assert not [str(path.relative_to(ROOT)) for path in SOURCES if unsafe.search(path.read_text())]


def test_no_device_is_hard_coded():
    device = re.compile(r"\.cuda\(\)|\.to\([\"']cuda|device=[\"'](cuda|mps)")
    assert not [str(path.relative_to(ROOT)) for path in SOURCES if device.search(path.read_text())]


def test_files_stay_below_400_lines():
    long = {str(path.relative_to(ROOT)): lines for path in OURS if (lines := path.read_text().count("\n")) > 400}
    assert not long


def test_every_requirement_is_pinned():
    wanted = re.findall(r'"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?>=', (ROOT / "pyproject.toml").read_text())
    pinned = re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "constraints.txt").read_text(), re.M)
    plain = {name.lower().replace("_", "-") for name in pinned}
    assert "torch" in plain
    assert not {name for name in wanted if name.lower().replace("_", "-") not in plain}


def test_what_the_page_for_developers_names_exists():
    text = (ROOT / "DEVELOPERS.md").read_text()
    paths = set(re.findall(r"`([\w.-]+(?:/[\w.-]*)+|\w+\.(?:py|toml|txt|md))`", text))
    data = {"cifar-100-binary/", "imagenette/", "weights/", "ROOM/MODULE.py", "tests/ROOM/test_MODULE.py"}
    assert {"tests/test_house.py", "native/isa.h"} <= paths
    places = [ROOT, PACKAGE, *(PACKAGE / room for room in ROOMS)]
    assert not {path for path in paths - data if not any((place / path).exists() for place in places)}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = re.findall(r"`make ([a-z]+)", text)
    assert named[0] == "check"
    assert set(named) <= targets
    for module in re.findall(r"`python -m ([\w.]+)", text):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


@pytest.mark.parametrize(
    ("setting", "value"), [("CXX", "/bin/false"), ("CXX", "/no/such/compiler"), ("REMIX_NO_NATIVE", "1")]
)
def test_installs_without_a_compiler(tmp_path, setting, value):
    """A wheel built without a working compiler is complete but for the native library."""
    environment = os.environ | {setting: value} | ({"CC": value} if setting == "CXX" else {})
    # Only what a build reads, so that objects built earlier in the work tree cannot help.
    copy = tmp_path / "source"
    copy.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (copy / name).write_bytes((ROOT / name).read_bytes())
    suffixes = (".py", ".cpp", ".h", ".typed", ".safetensors")
    for path in (path for path in (ROOT / "src").rglob("*") if path.suffix in suffixes):
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    command = [sys.executable, "setup.py", "-q", "build", "--build-lib", str(tmp_path / "built")]
    run = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    built = tmp_path / "built" / "remix"
    assert (built / "cli" / "entry.py").exists()
    assert (built / "py.typed").exists()
    assert (built / "data" / "digits.safetensors").exists()
    assert not list(built.rglob("_native*"))
