from __future__ import annotations

import pytest
import torch

from remix.networks import Classifier, LinearHead, create_backbone, frozen_copy, saved_state


def test_classifier_is_the_head_on_pooled_features():
    backbone = create_backbone("convnet8", width=4).eval()
    head = LinearHead(16, [3])
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(Classifier(backbone, head)(x), head(backbone.pooled(x)))


def test_classifier_refuses_a_head_for_other_features():
    with pytest.raises(ValueError, match="features of length 16, the head takes 8"):
        Classifier(create_backbone("convnet8", width=4), LinearHead(8, [3]))


def test_a_frozen_copy_shares_what_never_learns_and_stays_as_it_was():
    backbone = create_backbone("convnet8", width=4)
    network = Classifier(backbone, LinearHead(16, [3]))
    copied = frozen_copy(network, [*backbone.trainable(3), network.head])
    x = torch.randn(4, 1, 8, 8)
    network.eval()
    before = network(x).detach()
    shared = {id(parameter) for parameter in network.parameters()} & {id(p) for p in copied.parameters()}
    assert len(shared) == 3 * 3  # of three blocks, a convolution and the two of BatchNorm
    with torch.no_grad():
        for module in (*backbone.trainable(3), network.head):
            for parameter in module.parameters():
                parameter.add_(1)
    network.train()(x)  # its running averages move, those of the copy do not
    assert torch.equal(copied(x), before)
    assert not any(parameter.requires_grad for parameter in copied.parameters())
    own = saved_state(copied, network)
    assert not any(name.endswith("conv.weight") and name[22] in "012" for name in own)
    assert {"backbone.convolutions.4.conv.weight", "backbone.convolutions.0.bn.running_mean"} <= set(own)
