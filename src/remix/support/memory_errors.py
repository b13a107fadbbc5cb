"""Whether an error says that there was not enough memory, whoever raised it."""

from __future__ import annotations

__all__ = ["out_of_memory"]

# In the words of the system, of torch's allocators and of what torch computes with, which raise other errors.
_SAID = (
    "can't allocate memory",
    "Cannot allocate memory",
    "cannot allocate memory",
    "out of memory",
    "std::bad_alloc",
    "can't start new thread",
    "could not create a primitive",
    "failed to map segment from shared object",
)


def out_of_memory(error: BaseException | None) -> bool:
    """Whether it, or what it was raised from, is one of Python, numpy, torch (on any device) or the system."""
    seen: list[BaseException] = []  # an error may have been raised from itself
    while error is not None and error not in seen:
        seen.append(error)
        told = isinstance(error, RuntimeError | OSError | ImportError) and any(words in str(error) for words in _SAID)
        if told or isinstance(error, MemoryError):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False
