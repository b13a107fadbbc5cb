from copy import deepcopy

import torch

from remix.inversion import Knowledge


def test_the_moments_of_a_network_that_learns_on_are_those_it_has_then(classifier):
    backbone = deepcopy(classifier.backbone)
    known = Knowledge(backbone)
    before = known.moments[0].mean
    backbone.train()(torch.randn(8, 1, 8, 8, dtype=torch.float64) + 3)
    assert not torch.equal(known.moments[0].mean, before)
    assert torch.equal(known.moments[0].mean, Knowledge(backbone).moments[0].mean)
