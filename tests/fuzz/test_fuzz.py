"""Every input that the fuzzer kept, once more: what reaches new code, and what was once a finding."""

from __future__ import annotations

import faulthandler
import sys
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "learning")]

import targets  # noqa: E402
from targets import TARGETS  # noqa: E402

LONGEST = 120  # seconds for a whole corpus, which takes a few: a reader that hangs must not hang the suite
# Such as pictures of floating-point numbers, a list of labels that are text, and IDX files with and without .gz.
ODD_SEEDS = {"pickle": 4, "image": 2, "yaml": 5, "idx": 4, "parquet": 2}


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
def test_sound_files_are_read_and_only_odd_ones_refused(name, monkeypatch):
    refused = []
    monkeypatch.setattr(targets, "_check_sentence", refused.append)
    for data in TARGETS[name].seeds():
        TARGETS[name].read(data)
    assert len(refused) <= ODD_SEEDS.get(name, 0), refused
