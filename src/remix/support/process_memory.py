"""Memory of this process, as the system counts it."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["forget_peak", "peak_bytes", "resident_bytes"]


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
