"""Ctrl-C at the right moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["uninterrupted"]


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
