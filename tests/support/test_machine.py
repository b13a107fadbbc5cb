"""A process that trains keeps the memory it frees, and errors for want of memory are known as such."""

import subprocess
import sys

import pytest
import torch

from remix.cli import entry
from remix.support.machine import out_of_memory, peak_bytes, resident_bytes

FAULTS = """
import resource, sys, torch
from remix.support.machine import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    print("cannot")
    sys.exit()
def step():
    block = torch.ones(1 << 24)
    return block + block
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(30):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
def test_freed_memory_is_not_asked_for_again():
    kept, returned = (
        subprocess.run([sys.executable, "-c", FAULTS, word], check=True, capture_output=True, text=True).stdout.strip()
        for word in ("keep", "return")
    )
    if kept == "cannot":
        pytest.skip("this system's C library has no mallopt")
    assert int(kept) < int(returned) / 3


@pytest.mark.parametrize(("words", "keeps"), [(["run", "digits", "--dry-run"], True), (["methods"], False)])
def test_only_commands_that_train_keep_it_and_only_in_a_process_of_their_own(monkeypatch, words, keeps):
    called = []
    monkeypatch.setattr(entry, "keep_freed_memory", lambda: called.append(True))
    entry.main(words)
    assert not called
    monkeypatch.setattr(sys, "argv", ["remix", *words])
    entry.main()
    assert bool(called) == keeps


def test_an_error_raised_from_itself_comes_to_an_answer():
    error = ValueError("x")
    error.__cause__ = error
    assert not out_of_memory(error)


def test_what_an_error_was_raised_from_counts():
    error = ValueError("x")
    error.__cause__ = MemoryError()
    assert out_of_memory(error)


def test_memory_of_the_process_grows_with_what_it_holds():
    before = resident_bytes()
    block = torch.ones(40_000_000)  # too large for memory that was used before
    assert resident_bytes() - before > 100_000_000
    assert peak_bytes() >= resident_bytes() - 1_000_000
    del block
