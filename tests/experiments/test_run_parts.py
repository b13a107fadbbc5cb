"""The parts of a run, made from its settings."""

import torch

from remix.experiments.config import (
    resolve,
)
from remix.experiments.run_parts import load_tasks


def test_a_part_of_the_training_images_can_stand_in_for_the_test_images():
    config = resolve("digits", validation=True)
    stream = load_tasks(config.data, None)
    whole = load_tasks(resolve("digits").data, None)
    assert len(stream[0].train) + len(stream[0].test) == len(whole[0].train)


def test_validation_images_follow_a_seed_of_their_own():
    def held(*assignments, seed=0):
        config = resolve("digits", seed=seed, assignments=assignments, validation=True)
        return load_tasks(config.data, None).test(0).images, config.data.tested_on

    images, told = held()
    other_run, other_part = held(seed=1), held("data.validation_seed=1")
    assert torch.equal(images, other_run[0])
    assert told == other_run[1] == "10% of the training images"
    assert not torch.equal(images, other_part[0])
    assert other_part[1] == "10% of the training images (validation_seed 1)"
