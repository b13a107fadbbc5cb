"""Pseudo-samples come once per round, and maps that are computed once are those of a pass."""

import gc

import pytest
import torch
from torch import Tensor

from remix.data import Augment, ImageDataset, Normalisation, batches
from remix.learning.items import FrozenMaps, TensorReplay
from remix.networks import Classifier, Items, LinearHead, create_backbone


def buffer(count: int = 10) -> TensorReplay:
    images = torch.arange(count, dtype=torch.float32)[:, None, None, None].expand(count, 1, 8, 8)
    return TensorReplay(images, torch.arange(count), torch.zeros(count, 3))


def test_every_sample_comes_once_per_round() -> None:
    replay, generator = buffer(), torch.Generator().manual_seed(0)
    replay.start_epoch(generator)
    labels = torch.cat([replay.draw(4, generator).labels for _ in range(5)])
    assert sorted(labels.tolist()) == sorted(2 * list(range(10)))
    assert labels[:10].tolist() != list(range(10))


def test_a_batch_may_be_larger_than_the_buffer() -> None:
    replay, generator = buffer(3), torch.Generator().manual_seed(0)
    replay.start_epoch(generator)
    assert sorted(replay.draw(6, generator).labels.tolist()) == [0, 0, 1, 1, 2, 2]


def test_images_belong_to_their_labels() -> None:
    replay, generator = buffer(), torch.Generator().manual_seed(1)
    replay.start_epoch(generator)
    drawn = replay.draw(7, generator)
    assert drawn.items.x.dtype == torch.float32
    assert torch.equal(drawn.items.x[:, 0, 0, 0], drawn.labels.float())
    again = torch.cat([labels for _, labels in replay.batches(4)])
    assert torch.equal(again, torch.arange(10))


def test_logits_are_those_of_the_images_as_they_are_held() -> None:
    network = Classifier(create_backbone("convnet8", width=4), LinearHead(16, [3])).eval()
    images: Tensor = torch.randn(6, 1, 8, 8)
    replay = TensorReplay.of(Items(images), torch.zeros(6, dtype=torch.int64), network, batch=4)
    assert torch.allclose(replay.logits, network(images.half().float()), atol=1e-6)


def test_an_empty_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="needs samples"):
        TensorReplay(torch.zeros(0, 1, 8, 8), torch.zeros(0, dtype=torch.int64), torch.zeros(0, 3))


NORMALISATION = Normalisation((0.5,) * 3, (0.25,) * 3)


def setting(count=10):
    generator = torch.Generator().manual_seed(0)
    backbone = create_backbone("resnet20", width=4, generator=generator, input_shape=(3, 16, 16))
    images = torch.randint(256, (count, 3, 16, 16), generator=generator, dtype=torch.uint8)
    return backbone, ImageDataset(images, torch.arange(count) % 2, ("a", "b"))


def through(frozen, data, generator=None, augment=None, size=4):
    found = list(frozen.batches(data, size, generator, NORMALISATION, augment, torch.device("cpu")))
    return torch.cat([items.x for items, _ in found]), torch.cat([labels for _, labels in found])


def test_plain_maps_equal_those_of_a_pass():
    backbone, data = setting()
    maps, labels = through(FrozenMaps(backbone, 4), data)
    backbone.eval()
    with torch.no_grad():
        passes = [backbone.features(images, stop=4) for images, _ in batches(data, 4, None, NORMALISATION)]
    expected = torch.cat(passes)
    torch.testing.assert_close(maps, expected.half().float())
    assert torch.equal(labels, data.labels)


def test_beyond_the_limit_the_blocks_run_again_with_the_same_result():
    backbone, data = setting()
    held, _ = through(FrozenMaps(backbone, 4), data)
    again, _ = through(FrozenMaps(backbone, 4, limit=100), data)
    torch.testing.assert_close(held, again, atol=2e-3, rtol=2e-3)


def test_the_blocks_run_once_per_view_whatever_the_number_of_epochs():
    backbone, data = setting()
    runs = []
    backbone.stem.register_forward_hook(lambda *_: runs.append(1))
    frozen = FrozenMaps(backbone, 4, versions=3)
    for _ in range(5):
        through(frozen, data, torch.Generator().manual_seed(1), Augment(2), size=5)
    assert len(runs) == 3 * 2  # batches


def test_an_epoch_is_a_shuffle_of_all_images_with_their_labels():
    backbone, data = setting()
    frozen = FrozenMaps(backbone, 4, versions=1)
    plain, _ = through(frozen, data)
    maps, labels = through(frozen, data, torch.Generator().manual_seed(1), Augment(2))
    places = [int((plain - one).flatten(1).abs().sum(1).argmin()) for one in maps]
    assert sorted(places) == list(range(10)) != places
    assert torch.equal(labels, data.labels[places])


def test_the_same_generator_gives_the_same_epoch_and_versions_differ():
    backbone, data = setting()
    one, two = (
        through(FrozenMaps(backbone, 4, versions=4), data, torch.Generator().manual_seed(3), Augment(2))
        for _ in range(2)
    )
    assert torch.equal(one[0], two[0])
    plain, _ = through(FrozenMaps(backbone, 4), data)
    exact = sum(bool(torch.equal(a, b)) for a in one[0] for b in plain)
    assert exact < 10


def test_frozen_blocks_never_leave_eval_mode_and_give_no_gradients():
    backbone, data = setting()
    backbone.train()
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    maps, _ = through(FrozenMaps(backbone, 4), data)
    assert not maps.requires_grad
    assert backbone.training
    assert all(torch.equal(before[key], value) for key, value in backbone.state_dict().items())


def test_maps_are_let_go_with_their_images():
    backbone, data = setting()
    frozen = FrozenMaps(backbone, 4)
    through(frozen, data, torch.Generator().manual_seed(1), Augment(2))
    assert len(frozen._plain) == len(frozen._augmented) == 1
    del data
    gc.collect()
    assert not frozen._plain
    assert not frozen._augmented


@pytest.mark.parametrize("start", [0, 10, -1, 100])
def test_something_must_be_left_on_both_sides(start):
    with pytest.raises(ValueError, match="of the 10 blocks can be frozen"):
        FrozenMaps(setting()[0], start)
