from dataclasses import replace

import torch

from remix.inversion import Augmentation, PixelSettings, PriorSettings, Schedule, Targets, invert_pixels

SHORT = PixelSettings(schedule=Schedule(5, 0.1), augmentation=Augmentation(jitter=1, flip=0.5))


def test_published_settings_are_the_defaults():
    settings = PixelSettings()
    assert (settings.schedule.steps, settings.schedule.rate, settings.batch) == (2000, 0.1, 256)
    assert (settings.labels, settings.variation, settings.statistics) == (1.0, 2.5e-5, 100.0)
    assert settings.augmentation.jitter == 2


def test_the_terms_of_deep_inversion(knowledge):
    dream = invert_pixels(knowledge, Targets(torch.arange(8) % 4), torch.Generator().manual_seed(0), SHORT)
    assert set(dream.history["pixels"]) == {"labels", "statistics", "variation", "loss"}
    assert dream.images.shape == (8, 1, 8, 8)


def test_a_start_is_used_and_divided_among_chunks(knowledge, images):
    targets = Targets(torch.arange(10) % 4)
    still = replace(SHORT, schedule=Schedule(1, 0.1), augmentation=Augmentation(), batch=4)
    dream = invert_pixels(knowledge, targets, torch.Generator().manual_seed(0), still, start=images)
    assert torch.equal(dream.images, images)  # the only point that was looked at is the best one


def test_images_found_before_normalisation_are_given_as_the_network_receives_them(knowledge, images):
    settings = replace(SHORT, schedule=Schedule(1, 0.1), augmentation=Augmentation(mean=(0.5,), std=(0.25,)))
    targets = Targets(torch.arange(10) % 4)
    dream = invert_pixels(knowledge, targets, torch.Generator().manual_seed(0), settings, start=images)
    torch.testing.assert_close(dream.images, (images - 0.5) / 0.25)


def test_features_and_prior_can_be_part_of_it(knowledge, generator):
    settings = replace(SHORT, labels=0.0, features=1.0, prior=PriorSettings("dense", "kl"))
    targets = Targets(torch.arange(8) % 4, torch.randn(8, 12, generator=generator, dtype=torch.float64))
    dream = invert_pixels(knowledge, targets, generator, settings)
    assert set(dream.history["pixels"]) == {"features", "statistics", "variation", "prior", "loss"}


def test_jitter_rolls_the_batch_and_flip_mirrors_single_images(images, generator):
    part = slice(0, 10)
    rolled = Augmentation(jitter=2).draw(10, generator)(images, part)
    shifts = [
        (i, j) for i in range(-2, 3) for j in range(-2, 3) if torch.equal(rolled, torch.roll(images, (i, j), (-2, -1)))
    ]
    assert len(shifts) == 1
    flipped = Augmentation(flip=0.5).draw(10, generator)(images, part)
    mirrored = [torch.equal(flipped[i], images[i].flip(-1)) for i in range(10)]
    assert 0 < sum(mirrored) < 10
    assert all(torch.equal(flipped[i], images[i]) for i in range(10) if not mirrored[i])


def test_no_warp_leaves_images_as_they_are(images, generator):
    tiny = Augmentation(rotation=1e-9)
    torch.testing.assert_close(tiny.draw(10, generator)(images, slice(0, 10)), images)
