"""On what a run was made, and how it was called."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from typing import Any

import torch

from remix._version import __version__
from remix.support.machine import accelerators, memory, processor

__all__ = ["command_line", "describe_machine", "resuming_command_line"]


def describe_machine() -> dict[str, Any]:
    """Threads, versions and hardware, as plain JSON."""
    devices = {name: what for name, what in accelerators().items() if not what.startswith("not available")}
    return {
        "threads": torch.get_num_threads(),
        "versions": {"remix": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "hardware": {
            "processor": processor(),
            "processors": os.cpu_count(),
            "memory_bytes": memory()["total"],
            "system": platform.platform(),
            **devices,
        },
    }


def command_line() -> str:
    """What was typed, so that a shell understands it again."""
    return shlex.join(["remix", *sys.argv[1:]])


def resuming_command_line() -> str:
    """The same with ``--resume``."""
    words = [word for word in sys.argv[1:] if word not in ("--resume", "--overwrite")]
    return shlex.join(["remix", *words, "--resume"])
