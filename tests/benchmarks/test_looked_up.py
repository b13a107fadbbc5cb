"""Heads of `benchmarks.exact_heads` are those that the methods learn from the images themselves."""

import torch

from benchmarks.exact_heads import Table, answers, bare, learn_step, new_engine
from remix.data import ImageDataset, Preprocessing, Splits
from remix.methods import create_method
from remix.networks import OpenedNetwork, create_backbone
from remix.networks.probe import evaluating


def test_features_that_are_looked_up_give_the_head_that_images_give():
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(60, 196, (4, 1, 8, 8), generator=generator)
    labels = torch.arange(4).repeat_interleave(8)
    images = (patterns[labels] + torch.randint(-50, 51, (32, 1, 8, 8), generator=generator)).byte()
    data = ImageDataset(images, labels, tuple("abcd"))
    prepared = Preprocessing(8, 1, (0.5,), (0.25,))
    splits = Splits(data, data, prepared.normalisation, "made")
    network = OpenedNetwork(create_backbone("convnet8", width=4, generator=generator), "convnet8", {}, prepared)
    table, species = Table(network, splits), [2, 0, 3]
    engine = new_engine(network, create_method("lda"), 0)
    for number, (known, size) in enumerate(((0, 2), (2, 1)), start=1):
        places = torch.isin(labels, torch.tensor(species[known : known + size])).nonzero()[:, 0]
        told = torch.tensor([species.index(int(label)) for label in labels[places]])
        learn_step(engine, table, splits, places, told, species, known, size, number)
    found = answers(engine, table, torch.arange(32))
    with evaluating(engine.student):
        whole = engine.student(prepared.normalisation.normalise(images)).argmax(1)
    assert torch.equal(found, whole)
    assert bare(network, data) >= 0
