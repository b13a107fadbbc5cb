"""``python -m remix.experiments.sweep_child WORDS`` is ``remix WORDS``, interrupted when its standard input ends.

So that the runs of a sweep save themselves and end with it, also if it is killed.
"""

from __future__ import annotations

import _thread
import os
import runpy
import threading

__all__ = ["main"]


def main() -> None:
    """Run the command."""
    threading.Thread(target=_interrupt_at_the_end, daemon=True).start()
    runpy.run_module("remix.cli", run_name="__main__", alter_sys=True)


def _interrupt_at_the_end() -> None:
    while os.read(0, 1):  # nobody writes
        pass
    _thread.interrupt_main()


if __name__ == "__main__":
    main()
