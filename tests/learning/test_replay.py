"""Pseudo-samples come back as they were put in, every one once per round."""

import pytest
import torch
from torch import Tensor

from remix.learning.items import TensorReplay
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
