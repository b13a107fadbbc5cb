"""Ctrl-C is heard once politely."""

from __future__ import annotations

import signal

import pytest

from remix.support.interrupts import PoliteInterrupt


def test_the_first_ctrl_c_is_remembered_and_the_second_acts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    heard = []
    try:
        with PoliteInterrupt(lambda: heard.append(True)) as polite:
            polite.check()
            signal.raise_signal(signal.SIGINT)
            assert heard == [True]
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                polite.check()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
