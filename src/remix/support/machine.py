"""The processor, the memory and the accelerators of this machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["accelerators", "memory", "processor"]


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
