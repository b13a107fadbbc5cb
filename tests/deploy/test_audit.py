"""The audit finds copies when there are some, and does not cry wolf when there are none."""

from __future__ import annotations

import pytest
import torch

from remix.deploy.audit import audit, nearest
from remix.deploy.prediction import probabilities


def noise(count: int, seed: int) -> torch.Tensor:
    """Images of random low-frequency patterns: each its own, all of one kind."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 1, 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=8, mode="bilinear")
    return (255 * smooth).byte()


def test_the_nearest_is_that_of_a_slow_search():
    generator = torch.Generator().manual_seed(0)
    points, among = torch.randn(30, 7, generator=generator), torch.randn(1300, 7, generator=generator)
    found = nearest(points, among)
    distances = torch.cdist(points, among, compute_mode="donot_use_mm_for_euclid_dist")
    assert torch.equal(found.index, distances.argmin(1))
    assert torch.allclose(found.distance, distances.min(1).values)
    alone = nearest(among, among, itself=False)
    distances = torch.cdist(among, among, compute_mode="donot_use_mm_for_euclid_dist")
    distances.fill_diagonal_(torch.inf)
    assert torch.equal(alone.index, distances.argmin(1))
    assert torch.equal(nearest(among, among).distance, torch.zeros(1300))


def test_fresh_images_do_not_stand_out(model):
    result = audit(model, noise(60, 1), noise(400, 2), noise(200, 3))
    assert [space.stands_out for space in result.spaces] == [False] * 4
    assert result.conclusion().startswith("No sign of copies")
    assert "no proof" in result.conclusion()


@pytest.mark.parametrize("held_out", [True, False])
def test_copies_are_found_even_darker_and_noisy(model, held_out):
    train = noise(400, 2)
    copies = (train[:60].float() * 0.8 + 3 * torch.randn(60, 1, 8, 8)).clamp(0, 255).byte()
    result = audit(model, copies, train, noise(200, 3) if held_out else None)
    by_name = {space.space: space for space in result.spaces}
    assert by_name["pixels, contrast removed"].stands_out
    assert by_name["pixels, contrast removed"].near > 50
    assert torch.equal(by_name["pixels, contrast removed"].dreams.index, torch.arange(60))
    assert result.conclusion().startswith("Dreams stand out: in ")
    assert ("held-out images are" if held_out else "other training images are") in result.conclusion()


def test_noise_does_not_hide_a_copy_from_the_coarse_measure(model):
    generator = torch.Generator().manual_seed(0)
    train, other = (torch.nn.functional.interpolate(noise(200, seed).float(), size=64).byte() for seed in (2, 3))
    noisy = (train[:40].float() + 120 * torch.randn(40, 1, 64, 64, generator=generator)).clamp(0, 255).byte()
    by_name = {space.space: space for space in audit(model, noisy, train, other).spaces}
    assert not by_name["pixels"].stands_out
    assert by_name["coarse pixels"].stands_out
    assert torch.equal(by_name["coarse pixels"].dreams.index, torch.arange(40))


def test_exact_copies_have_no_distance(model):
    train = noise(400, 2)
    result = audit(model, train[:9], train, noise(200, 3))
    for space in result.spaces:
        assert torch.equal(space.dreams.distance, torch.zeros(9))
        assert space.near == 9


def test_distances_are_in_the_units_that_the_report_names(model):
    """One image of constant 10, against ones of constant 30 and 50: 20 levels away."""
    train = torch.full((2, 1, 8, 8), 30, dtype=torch.uint8)
    train[1] = 50
    result = audit(model, torch.full((1, 1, 8, 8), 10, dtype=torch.uint8), train)
    assert float(result.spaces[0].dreams.distance) == pytest.approx(20)
    assert result.spaces[0].others.distance.tolist() == [20, 20]


def test_how_often_the_network_is_surer_of_training_images(model):
    """Images that it reads as their class, against the same images with another label."""
    images = noise(40, 1)
    read = probabilities(model, images).argmax(1)
    labels = read, (read + 1) % 4
    assert audit(model, images, images, images, labels).membership == 1.0
    assert audit(model, images, images, images, (read, read)).membership == pytest.approx(0.5)
    assert audit(model, images, images, images, (read, torch.full_like(read, -1))).membership is None
    assert audit(model, images, images).membership is None


def test_too_few_images(model):
    with pytest.raises(ValueError, match="an audit needs dreams"):
        audit(model, noise(0, 1), noise(5, 2))
    with pytest.raises(ValueError, match="at least two held-out"):
        audit(model, noise(1, 1), noise(5, 2), noise(1, 3))
