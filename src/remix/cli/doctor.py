"""`remix doctor`: enough about this machine and installation to explain how fast REMIX runs here."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remix._version import __version__
from remix.support.machine import accelerators, memory, processor

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Examination", "doctor", "examine", "show"]

PACKAGES = ("torch", "numpy", "scipy", "safetensors", "Pillow", "matplotlib", "rich")
COMPILERS = ("c++", "g++", "clang++")


@dataclass(frozen=True)
class Examination:
    """The findings, JSON-ready (see :func:`dataclasses.asdict`). Memory is in bytes; ``None`` means not known.

    ``broken`` is the reason why torch or the Laplace core does not load, or ``None`` when they do.
    """

    remix: str
    python: str
    platform: str
    packages: dict[str, str | None]
    kernels: dict[str, Any]
    threads: dict[str, Any]
    memory: dict[str, int | None]
    devices: dict[str, str]
    data: dict[str, str | bool | None]
    broken: str | None


def doctor(*, json: bool = False) -> None:
    """Versions, the Laplace kernels in use and why, threads, memory, devices, data folder.

    Args:
        json: Print one JSON object instead of a table.
    """
    from json import dumps

    found = examine()
    if json:
        print(dumps(asdict(found), indent=2))
    else:
        show(found)
    if found.broken:
        sys.exit(1)


def examine() -> Examination:
    """Look at the installation and the machine. Never raises: what does not load is reported as such."""
    kernels: dict[str, Any] = {"path": "none", "reason": "the Laplace core does not load"}
    threads: dict[str, Any] = {"processors": os.cpu_count(), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS")}
    devices = {"cpu": processor()}
    broken = None
    try:
        import torch

        threads["torch"] = torch.get_num_threads()
        devices |= accelerators()
        from remix.laplace import kernels as laplace_kernels

        kernels = asdict(laplace_kernels.status())
        kernels["advice"] = None if kernels["path"] == "native" else advice()
    except (ImportError, OSError) as error:  # OSError: a shared library of torch is missing
        broken = f"{error}. Install again: make clean setup"
    except ValueError as error:  # REMIX_KERNELS names no path
        broken = str(error)
    return Examination(
        remix=__version__,
        python=f"{platform.python_version()} ({sys.executable})",
        platform=platform.platform(),
        packages={name: version(name) for name in PACKAGES},
        kernels=kernels,
        threads=threads,
        memory=memory(),
        devices=devices,
        data=data_folder(),
        broken=broken,
    )


def version(package: str) -> str | None:
    """The installed version of a package, read without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def advice() -> str:
    """What to do to get the native kernels, when they are not in use."""
    from remix.laplace.native_library import find_library

    forced = os.environ.get("REMIX_KERNELS", "native")
    if forced != "native":
        return f"unset REMIX_KERNELS (now {forced}) to use the native kernels"
    if (library := find_library()) is not None:
        return f"build {library} again on this machine: make clean setup, or pip install --force-reinstall"
    if os.name == "nt":
        return "the native kernels are not built on Windows; under WSL they are"
    found = compiler()
    if found is None:
        return (
            "no C++ compiler was found: install one (Debian, Ubuntu: apt install g++; macOS: xcode-select --install), "
            "then run make setup, or pip install again"
        )
    return f"a compiler is here ({found}): run make setup, or pip install again, and read what it prints"


def compiler() -> str | None:
    """Path of the C++ compiler a build would use, or None."""
    named = os.environ.get("CXX", "").split()
    return next(filter(None, map(shutil.which, named[:1] or COMPILERS)), None)


def data_folder() -> dict[str, str | bool | None]:
    """The folder that REMIX_DATA names, and whether it is there."""
    folder = os.environ.get("REMIX_DATA")
    return {"REMIX_DATA": folder, "exists": folder is not None and Path(folder).is_dir()}


def show(found: Examination, console: Console | None = None) -> None:
    """Print the findings as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"remix {found.remix}", show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    if found.broken:
        table.add_row("[red]broken[/red]", found.broken)
        table.add_section()
    kernels = found.kernels
    table.add_row("Laplace kernels", f"[{'green' if kernels['path'] == 'native' else 'yellow'}]{kernels['path']}[/]")
    table.add_row("  because", kernels["reason"])
    for label, key in (
        ("  instructions", "isa"),
        ("  threads of", "threads"),
        ("  library", "library"),
        ("  to do", "advice"),
    ):
        if kernels.get(key):
            table.add_row(label, str(kernels[key]))
    table.add_section()
    asked = found.threads["OMP_NUM_THREADS"]
    table.add_row(
        "threads",
        f"{found.threads.get('torch', '?')} in use of {found.threads['processors']} processors"
        + (f" (OMP_NUM_THREADS={asked})" if asked else ""),
    )
    table.add_row("memory", f"{gibibytes(found.memory['total'])}, {gibibytes(found.memory['available'])} available")
    for name, what in found.devices.items():
        table.add_row(f"device {name}", what)
    folder = found.data["REMIX_DATA"]
    missing = "" if found.data["exists"] else " (no such folder)"
    table.add_row("data", f"{folder}{missing}" if folder else "REMIX_DATA is not set: real data sets are not used")
    table.add_section()
    table.add_row("python", found.python)
    table.add_row("platform", found.platform)
    for name, installed in found.packages.items():
        table.add_row(name, installed or "[yellow]not installed[/yellow]")
    (console or Console()).print(table)


def gibibytes(size: int | None) -> str:
    """A size in bytes for people."""
    return "?" if size is None else f"{size / 2**30:.1f} GiB"
