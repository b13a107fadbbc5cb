"""Words of the page: those that the code uses have a meaning."""

import re
from pathlib import Path

import remix
from remix.report.glossary import INVERSION, STAGES, TRAINING, explained

ROOT = Path(remix.__file__).parent


def _found(pattern: str, *rooms: str) -> set[str]:
    return {
        name
        for room in rooms
        for file in (ROOT / room).glob("*.py")
        for name in re.findall(pattern, file.read_text(), re.M)
    }


def test_every_term_of_inversion_and_every_stage_of_a_method_is_explained():
    terms = _found(r'\bTerm\("([a-z -]+)"', "inversion")
    assert len(terms) > 8
    assert terms <= INVERSION.keys()
    stages = _found(r'\bStage\("([a-z -]+)"', "methods")
    assert len(stages) > 5
    assert stages <= STAGES.keys()


def test_every_loss_of_a_method_is_explained():
    named = _found(r'^ +"([a-z-]+)": .*(?:entropy|distill|aggregation|answer_distance|turned)', "methods")
    assert {"local", "hard", "cross-entropy"} <= named <= TRAINING.keys()


def test_only_words_that_are_used_are_explained():
    assert explained({"a": "x", "b": "y"}, ["b", "c"]) == {"b": "y"}
