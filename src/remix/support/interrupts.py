"""Ctrl-C at the right moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

__all__ = ["PoliteInterrupt", "uninterrupted"]


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


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait until the block has ended, so that what the block changes is changed as a whole.

    Raises:
        KeyboardInterrupt: at the end, if Ctrl-C was pressed in between.

    """
    if threading.current_thread() is not threading.main_thread():  # Python delivers Ctrl-C to the main thread only
        yield
        return
    pressed = False

    def remember(_: int, __: FrameType | None) -> None:
        nonlocal pressed
        pressed = True

    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.default_int_handler:  # somebody else looks after Ctrl-C
        yield
        return
    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if pressed:
        raise KeyboardInterrupt
