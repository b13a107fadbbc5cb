"""Every input that the fuzzer kept, once more: what reaches new code, and what was once a finding."""

from __future__ import annotations

import faulthandler
import sys
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "learning")]

from targets import TARGETS  # noqa: E402

LONGEST = 120  # seconds for a whole corpus, which takes a few: a reader that hangs must not hang the suite


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("name", TARGETS)
def test_every_kept_input_is_read_or_refused_in_words(name):
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    try:
        with zipfile.ZipFile(HERE / "corpus" / f"{name}.zip") as corpus:
            inputs = corpus.namelist()
            for number in inputs:
                TARGETS[name].read(corpus.read(number))
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert len(inputs) > 5


@pytest.mark.parametrize("name", TARGETS)
def test_sound_files_are_read_too(name):
    for data in TARGETS[name].seeds():
        TARGETS[name].read(data)
