"""What several tests of models begin with, made once."""

from __future__ import annotations

import pytest
from safetensors.torch import save_file

from tests.deploy.small import NAMES, digits, learner


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Weights of a network that was trained on three digits."""
    first = learner(epochs=8, seed=1)
    first.learn(digits([7, 8, 9], 30), classes=NAMES)
    path = tmp_path_factory.mktemp("weights") / "convnet8.safetensors"
    save_file(first.model.classifier.backbone.state_dict(), path)
    return path


@pytest.fixture(scope="session")
def dreaming():
    """A model of two steps with a trained head, by the method remix."""
    found = learner()
    found.learn(digits([0, 1, 2]), classes=NAMES)
    found.learn(digits([3]), classes=NAMES)
    return found.model
