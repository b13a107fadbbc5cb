"""The machine: its processor, memory and accelerators; the memory of this process; the command that was typed."""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

from remix._version import __version__

__all__ = [
    "accelerators",
    "command_line",
    "describe_machine",
    "forget_peak",
    "keep_freed_memory",
    "memory",
    "out_of_memory",
    "peak_bytes",
    "processor",
    "resident_bytes",
    "resuming_command_line",
]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt
_KEPT = 2**31 - 1  # bytes; what fits into its argument

# In the words of the system, of torch's allocators and of what torch computes with, which raise other errors.
_SAID = (
    "can't allocate memory",
    "Cannot allocate memory",
    "cannot allocate memory",
    "out of memory",
    "std::bad_alloc",
    "can't start new thread",
    "could not create a primitive",
    "failed to map segment from shared object",
)


def processor() -> str:
    """The name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def accelerators() -> dict[str, str]:
    """CUDA and MPS as torch reports them."""
    import torch

    found = {"cuda": f"not available (torch {torch.__version__})", "mps": "not available"}
    if torch.cuda.is_available():
        found["cuda"] = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    if torch.backends.mps.is_available():
        found["mps"] = "available"
    return found


def memory() -> dict[str, int | None]:
    """Total and available main memory in bytes."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return {"total": 1024 * kilobytes["MemTotal"], "available": 1024 * kilobytes["MemAvailable"]}
    except (OSError, KeyError):
        pass
    try:
        return {"total": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "available": None}
    except (AttributeError, OSError, ValueError):
        return {"total": None, "available": None}


def forget_peak() -> bool:
    """Let the peak count from now on; False where the system cannot do that (then it counts from the beginning)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_bytes() -> int:
    """Most memory that was resident at a time; 0 where the system does not tell (Windows)."""
    found = _status("VmHWM")  # getrusage would also tell of the process that started this one
    if found is not None:
        return found
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def resident_bytes() -> int:
    """Memory that is resident now; the peak where the system does not tell."""
    found = _status("VmRSS")
    return peak_bytes() if found is None else found


def _status(field: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)


def keep_freed_memory() -> bool:
    """Let this process keep the memory that tensors free for the next ones; False where the C library is not glibc.

    By default glibc gives every block above 32 MiB back to the system when it is freed, and every page of the next one
    has to be asked for and zeroed again. A training step frees and asks for the same blocks over and over.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return all([mallopt(_MMAP_THRESHOLD, _KEPT), mallopt(_TRIM_THRESHOLD, _KEPT)])


def out_of_memory(error: BaseException | None) -> bool:
    """Whether it, or what it was raised from, is one of Python, numpy, torch (on any device) or the system."""
    seen: list[BaseException] = []  # an error may have been raised from itself
    while error is not None and error not in seen:
        seen.append(error)
        told = isinstance(error, RuntimeError | OSError | ImportError) and any(words in str(error) for words in _SAID)
        if told or isinstance(error, MemoryError):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


def describe_machine() -> dict[str, Any]:
    """Threads, versions and hardware, as plain JSON."""
    import torch

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
