"""Whether an error says that there was not enough memory, whoever raised it."""

from __future__ import annotations

__all__ = ["out_of_memory"]

# In words of the allocators of torch and of the system, which torch raises as RuntimeError.
_SAID = ("can't allocate memory", "Cannot allocate memory", "out of memory", "std::bad_alloc", "can't start new thread")


def out_of_memory(error: BaseException) -> bool:
    """Whether it is one of Python, numpy, torch (on any device) or the system."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | OSError) and any(words in str(error) for words in _SAID)
    )
