from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from remix.networks import Classifier, LinearHead, create_backbone


def test_shapes_for_digits_and_for_clothes():
    for name, size in (("convnet8", 8), ("convnet28", 28)):
        net = create_backbone(name)
        assert net.input_shape == (1, size, size)
        assert net.features(torch.zeros(2, 1, size, size)).shape == (2, 64, size // 4, size // 4)
        assert sum(isinstance(module, nn.BatchNorm2d) for module in net.modules()) == 5


def test_learns_the_digits_in_a_few_seconds():
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
    y = torch.tensor(digits.target)
    generator = torch.Generator().manual_seed(0)
    head = LinearHead(32, [10], generator=generator)
    model = Classifier(create_backbone("convnet8", width=8, generator=generator), head)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(4):
        for rows in torch.randperm(1500, generator=generator).split(64):
            optimizer.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    model.eval()
    assert (
        model(x[1500:]).argmax(1) == y[1500:]
    ).float().mean() > 0.7  # 0.89 to 0.94 over ten seeds and all instruction sets
