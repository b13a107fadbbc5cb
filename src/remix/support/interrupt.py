"""Ctrl-C that lets the step that is under way come to its end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

__all__ = ["PoliteInterrupt"]


class PoliteInterrupt:
    """Within the ``with`` block the first Ctrl-C is only remembered, the second one acts at once.

    Args:
        on_press: called at the first Ctrl-C, to tell the person that it was heard.

    """

    def __init__(self, on_press: Callable[[], None]) -> None:
        self._on_press = on_press
        self._handler: Any = None
        self.pressed = False

    def __enter__(self) -> PoliteInterrupt:
        # Elsewhere Python does not deliver Ctrl-C; and where somebody has a handler, it is theirs to act.
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._handler = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._restore()

    def _restore(self) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._handler = None

    def _press(self, _: int, __: FrameType | None) -> None:
        self.pressed = True
        self._restore()
        self._on_press()

    def check(self) -> None:
        """Raises KeyboardInterrupt if Ctrl-C was pressed since the last check."""
        if self.pressed:
            self.pressed = False
            raise KeyboardInterrupt
