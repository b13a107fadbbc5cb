"""Timing on a noisy machine: interleave, take the best, compare within one run; peak memory of one call."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable

from remix.support.machine import forget_peak, peak_bytes, resident_bytes

Work = Callable[[], object]


def interleaved(works: dict[str, Work], seconds: float, rounds: tuple[int, int] = (3, 40)) -> dict[str, float]:
    """Best time of each work in seconds: whole rounds over all of them, until ``seconds`` are over."""
    best = dict.fromkeys(works, float("inf"))
    end = time.perf_counter() + seconds
    for number in range(rounds[1]):
        if number >= rounds[0] and time.perf_counter() > end:
            break
        for name, work in works.items():
            start = time.perf_counter()
            result = work()
            best[name] = min(best[name], time.perf_counter() - start)
            del result
    return best


def peak_extra_bytes(work: Work) -> int | None:
    """Resident memory that the first call needs beyond what is resident before it, results included; None if unknown.

    To be called in a fresh process: scratch that the kernels keep counts too.
    """
    try:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        if not forget_peak():
            return None
        before = resident_bytes()
        result = work()
        peak = peak_bytes()
        del result
    except (OSError, AttributeError):
        return None
    return max(0, peak - before)
