"""Where the time of a run goes, and how much memory it took; goes on after an interruption."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch

from remix.support.machine import forget_peak, peak_bytes

__all__ = ["RunClock"]


class RunClock:
    """Seconds by the name of what was done, of the wall and of the processor, and the highest memory use so far.

    The two differ where other programs want the processor, or several threads work.

    Args:
        seconds: of the parts of the run before this process.
        processor: of the same, in all.
        peak: in bytes, of the same.
        peak_gpu: in bytes, of the same.

    """

    def __init__(
        self, seconds: Mapping[str, float] | None = None, processor: float = 0.0, peak: int = 0, peak_gpu: int = 0
    ) -> None:
        self._seconds = dict(seconds or {})
        self._processor = processor - time.process_time()
        self._peak, self._peak_gpu = peak, peak_gpu
        self._current: str | None = None
        self._since = time.perf_counter()

    def turn_to(self, name: str | None) -> None:
        """From now on the time is that of ``name``."""
        self._book()
        self._current = name
        self._note_peaks()
        _restart_high_water()

    @property
    def seconds(self) -> dict[str, float]:
        """By name, up to now."""
        self._book()
        return dict(self._seconds)

    @property
    def total(self) -> float:
        """Of all names."""
        return sum(self.seconds.values())

    @property
    def processor(self) -> float:
        """Seconds of the processor, of all threads."""
        return self._processor + time.process_time()

    @property
    def peak(self) -> int:
        """Highest memory use in bytes: of the process, and of the GPU where there is one."""
        self._note_peaks()
        return self._peak

    @property
    def peak_gpu(self) -> int:
        """The same of the GPU alone; 0 where there is none."""
        self._note_peaks()
        return self._peak_gpu

    @property
    def phase_peak(self) -> int:
        """The same since `turn_to`; where the system cannot tell (not Linux), since the process began."""
        self._note_peaks()
        return _high_water()

    def _note_peaks(self) -> None:
        self._peak, self._peak_gpu = max(self._peak, _high_water()), max(self._peak_gpu, _on_gpu())

    def _book(self) -> None:
        now = time.perf_counter()
        spent, self._since = now - self._since, now
        if self._current is not None:
            self._seconds[self._current] = self._seconds.get(self._current, 0.0) + spent


def _high_water() -> int:
    return max(peak_bytes(), _on_gpu())


def _restart_high_water() -> None:
    forget_peak()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _on_gpu() -> int:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
