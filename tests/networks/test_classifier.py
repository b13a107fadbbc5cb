from __future__ import annotations

import pytest
import torch

from remix.networks import Classifier, GrowingHead, create_backbone


def test_classifier_is_the_head_on_pooled_features():
    backbone = create_backbone("convnet8", width=4).eval()
    head = GrowingHead(16, [3])
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(Classifier(backbone, head)(x), head.logits(backbone.pooled(x)))


def test_classifier_refuses_a_head_for_other_features():
    with pytest.raises(ValueError, match="features of length 16, the head takes 8"):
        Classifier(create_backbone("convnet8", width=4), GrowingHead(8, [3]))
