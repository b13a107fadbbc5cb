"""Maps that are computed once are those that a pass through the trunk gives."""

import torch

from remix.data import Augment, ImageDataset, Normalisation, batches
from remix.learning import FrozenTrunk
from remix.networks import create_backbone
from remix.networks.cut import cut

NORMALISATION = Normalisation((0.5,) * 3, (0.25,) * 3)


def setting(count=10):
    generator = torch.Generator().manual_seed(0)
    trunk, _ = cut(create_backbone("resnet20", width=4, generator=generator, input_shape=(3, 16, 16)).eval(), 4)
    images = torch.randint(256, (count, 3, 16, 16), generator=generator, dtype=torch.uint8)
    return trunk, ImageDataset(images, torch.arange(count) % 2, ("a", "b"))


def through(frozen, data, generator=None, augment=None, size=4):
    found = list(frozen.batches(data, size, generator, NORMALISATION, augment, torch.device("cpu")))
    return torch.cat([maps for maps, _ in found]), torch.cat([labels for _, labels in found])


def test_plain_maps_equal_those_of_a_pass():
    trunk, data = setting()
    maps, labels = through(FrozenTrunk(trunk), data)
    expected = torch.cat([trunk(images) for images, _ in batches(data, 4, None, NORMALISATION)])
    torch.testing.assert_close(maps, expected.half().float())
    assert torch.equal(labels, data.labels)


def test_beyond_the_limit_the_trunk_runs_again_with_the_same_result():
    trunk, data = setting()
    held, _ = through(FrozenTrunk(trunk), data)
    again, _ = through(FrozenTrunk(trunk, limit=100), data)
    torch.testing.assert_close(held, again, atol=2e-3, rtol=2e-3)


def test_the_trunk_runs_once_per_view_whatever_the_number_of_epochs():
    trunk, data = setting()
    runs = []
    trunk.register_forward_hook(lambda *_: runs.append(1))
    frozen = FrozenTrunk(trunk, views=3)
    for _ in range(5):
        through(frozen, data, torch.Generator().manual_seed(1), Augment(2), size=5)
    assert len(runs) == 3 * 2  # batches


def test_an_epoch_is_a_shuffle_of_all_images_with_their_labels():
    trunk, data = setting()
    frozen = FrozenTrunk(trunk, views=1)
    plain, _ = through(frozen, data)
    maps, labels = through(frozen, data, torch.Generator().manual_seed(1), Augment(2))
    places = [int((plain - one).flatten(1).abs().sum(1).argmin()) for one in maps]
    assert sorted(places) == list(range(10)) != places
    assert torch.equal(labels, data.labels[places])


def test_the_same_generator_gives_the_same_epoch_and_views_differ():
    trunk, data = setting()
    one, two = (
        through(FrozenTrunk(trunk, views=4), data, torch.Generator().manual_seed(3), Augment(2)) for _ in range(2)
    )
    assert torch.equal(one[0], two[0])
    plain, _ = through(FrozenTrunk(trunk), data)
    exact = sum(bool(torch.equal(a, b)) for a in one[0] for b in plain)
    assert exact < 10
