"""Maps of features and the heads on them: what they compute, how they grow, how they are described."""

from __future__ import annotations

import pytest
import torch

from remix.networks import (
    Classifier,
    ExactLinearHead,
    ExactQuadraticHead,
    FeatureMap,
    create_backbone,
    create_head,
    described_head,
)
from remix.networks.heads import head_class_of


def projected(width: int = 6) -> FeatureMap:
    return FeatureMap([1, 3], [2, 3], True).with_projection(width, torch.Generator().manual_seed(1))


def linear_head(map: FeatureMap) -> ExactLinearHead:
    head = ExactLinearHead(map, [2, 1], torch.randn(3, map.dim), torch.randn(3))
    head.scale.fill_(2.0)
    return head


def test_a_rooted_map_takes_signed_roots_and_makes_each_block_a_unit_vector():
    found = FeatureMap([0, 2], [2, 2], True)(torch.tensor([[4.0, -9.0, 0.0, 0.0]]))
    root = torch.tensor([2.0, -3.0])
    assert torch.allclose(found, torch.cat([root / root.norm(), torch.zeros(2)])[None])


def test_a_projection_is_decided_by_its_generator_and_leaves_what_is_positive():
    one, other = projected(), projected()
    x = torch.randn(5, 5)
    assert torch.equal(one.projection, other.projection)
    bare = FeatureMap([1, 3], [2, 3], True)
    assert torch.allclose(one(x), (bare(x) @ one.projection.T).relu())
    assert (one.dim, bare.dim) == (6, 5)


def test_logits_are_linear_in_the_map():
    head, x = linear_head(projected()), torch.randn(4, 5)
    assert torch.allclose(head(x), 2 * (head.map(x) @ head.weight.T + head.bias))


def test_logits_are_quadratic_in_the_map():
    map = FeatureMap([0], [3])
    roots = torch.randn(2, 3, 3)
    head = ExactQuadraticHead(map, [2], torch.randn(2, 3), roots @ roots.mT)
    x = torch.randn(5, 3)
    for row, logits in zip(x, head(x), strict=True):
        for mean, precision, logit in zip(head.mean, head.precision, logits, strict=True):
            assert torch.allclose(logit, -(row - mean) @ precision @ (row - mean), atol=1e-5)


@pytest.mark.parametrize("kind", ["exact", "quadratic"])
def test_a_head_is_built_again_from_its_description_and_grows(kind):
    map = projected()
    head = (
        linear_head(map)
        if kind == "exact"
        else ExactQuadraticHead(map, [3], torch.randn(3, 6), torch.eye(6).expand(3, 6, 6))
    )
    described = head.describe()
    shapes = {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    assert head_class_of(described).shapes(99, described) == shapes
    again = described_head(99, described)
    again.load_state_dict(head.state_dict())
    x = torch.randn(4, 5)
    assert torch.equal(again(x), head(x))
    again.grow(["d", "e"])
    assert again.task_sizes == (*head.task_sizes, 2)
    assert torch.equal(again(x)[:, :3], head(x))


def test_an_exact_head_has_nothing_to_train_and_cannot_be_chosen():
    head = linear_head(projected())
    assert not list(head.parameters())
    with pytest.raises(NotImplementedError, match="solved for together"):
        head.newest()
    with pytest.raises(ValueError, match="there is no head 'exact'"):
        create_head("exact", 5)


def test_a_classifier_gives_its_head_the_features_of_its_blocks():
    backbone = create_backbone("convnet8", width=2).eval()
    head = linear_head(FeatureMap([3, 4], [8, 8]))
    classifier = Classifier(backbone, head)
    images = torch.randn(3, 1, 8, 8)
    side_by_side = torch.cat([backbone.features(images, stop=4).mean((2, 3)), backbone.pooled(images)], 1)
    assert torch.allclose(classifier.pooled(images), side_by_side, atol=1e-6)
    assert torch.allclose(classifier(images), head(side_by_side), atol=1e-5)
    assert torch.allclose(classifier(backbone.features(images, stop=3), 3), classifier(images), atol=1e-5)
    with pytest.raises(ValueError, match="cannot be had from block 5"):
        classifier(torch.randn(3, 8, 2, 2), 5)


@pytest.mark.parametrize(
    "change",
    [
        {"blocks": [3, 1]}, {"blocks": []}, {"blocks": [1]}, {"sizes": [0, 3]}, {"sizes": [2, 1 << 40]}, {"rooted": 1},
        {"projection": -1}, {"projection": 1.5}, {"tasks": []}, {"tasks": [0]}, {"blocks": [True, 3]},
    ],
)  # fmt: skip
def test_a_description_of_no_head_is_refused(change):
    described = linear_head(projected()).describe() | change
    with pytest.raises(ValueError, match=r"no map of features|described as"):
        head_class_of(described).shapes(5, described)


@pytest.mark.parametrize("kind", ["exact", "quadratic"])
def test_without_a_class_the_scores_of_the_others_stay(kind):
    map = projected()
    head = linear_head(map)
    if kind == "quadratic":
        head = ExactQuadraticHead(map, [2, 1], torch.randn(3, map.dim), torch.eye(map.dim).expand(3, -1, -1).clone())
    x = torch.rand(4, 5)
    rest = head.without([1])
    assert rest.task_sizes == (1, 1)
    torch.testing.assert_close(rest(x), head(x)[:, [0, 2]])
    assert head.without([2]).task_sizes == (2,)
    assert head.num_classes == 3
