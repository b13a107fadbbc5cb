"""Heads grow and leave what was learned alone; a classifier is a backbone and a head."""

from __future__ import annotations

import pytest
import torch

from remix.networks import (
    Classifier,
    CosineHead,
    LinearHead,
    create_backbone,
    create_head,
    described_head,
    frozen_copy,
    register_head,
    saved_state,
)


def test_growing_leaves_old_rows_as_they_are():
    head = LinearHead(8)
    head.grow(["a", "b", "c"])
    old = head.classifier(0)
    rows = old.weight.detach().clone()
    head.grow(list("defgh"))
    assert head.classifier(0) is old
    assert torch.equal(old.weight, rows)
    assert (head.task_sizes, head.num_classes) == ((3, 5), 8)


def test_logits_are_the_classifiers_side_by_side():
    head = LinearHead(8, [3, 5, 2])
    x = torch.randn(4, 8)
    parts = [x @ head.classifier(task).weight.T for task in range(3)]
    torch.testing.assert_close(head(x), torch.cat(parts, 1))


def test_a_hundred_classes_cost_6400_numbers():
    head = LinearHead(64, [10] * 10)
    assert sum(parameter.numel() for parameter in head.parameters()) == 6_400


def test_initial_weights_are_normal_with_deviation_a_thousandth():
    head = LinearHead(500, [400], generator=torch.Generator().manual_seed(0))
    weight = head.classifier(0).weight
    assert weight.mean().abs() < 1e-5
    assert weight.std().item() == pytest.approx(1e-3, rel=0.01)
    again = LinearHead(500, [400], generator=torch.Generator().manual_seed(0))
    assert torch.equal(weight, again.classifier(0).weight)


def test_bias_is_an_option_and_starts_at_zero():
    assert LinearHead(4, [2]).classifier(0).bias is None
    assert torch.equal(LinearHead(4, [2], bias=True).classifier(0).bias, torch.zeros(2))


def test_new_classifiers_follow_the_heads_dtype():
    head = LinearHead(4).to(torch.float64)
    head.grow(["a", "b"])
    assert head.newest().weight.dtype == torch.float64


def test_state_holds_the_classifiers_only_and_loads_into_a_head_of_the_same_sizes():
    head = LinearHead(4, [2, 3])
    assert list(head.state_dict()) == ["classifiers.0.weight", "classifiers.1.weight"]
    copy = LinearHead(4, head.task_sizes)
    copy.load_state_dict(head.state_dict())
    assert torch.equal(copy(torch.eye(4)), head(torch.eye(4)))


def test_bad_input_is_refused():
    head = LinearHead(4)
    with pytest.raises(RuntimeError, match=r"no classes yet: call grow\(names\) first"):
        head(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="at least one class"):
        head.grow([])
    head.grow(["a", "b"])
    with pytest.raises(ValueError, match=r"features must be \(N, 4\), got \(1, 5\)"):
        head(torch.zeros(1, 5))
    with pytest.raises(ValueError, match="feature_dim must be at least 1"):
        LinearHead(0)


def test_a_head_of_cosines_does_not_look_at_lengths():
    head = CosineHead(4, [2, 3], generator=torch.Generator().manual_seed(0))
    x = torch.randn(5, 4)
    logits = head(x)
    assert logits.shape == (5, 5)
    assert float(logits.detach().abs().max()) <= 10 + 1e-4
    torch.testing.assert_close(head(7 * x), logits)
    weight = torch.cat([head.classifier(0).weight, head.classifier(1).weight])
    naive = torch.stack([10 * torch.cosine_similarity(row, weight, dim=1) for row in x])
    torch.testing.assert_close(logits, naive)
    with torch.no_grad():
        head.classifier(1).weight.mul_(100)
    torch.testing.assert_close(head(x), logits)


@pytest.mark.parametrize("kind", ["linear", "cosine", "routed"])
def test_a_head_is_built_again_from_its_description(kind):
    head = create_head(kind, 4)
    head.grow(["a", "b"])
    head.grow(["c"])
    again = described_head(4, head.describe())
    again.load_state_dict(head.state_dict())
    x = torch.randn(3, 4)
    assert torch.equal(again(x), head(x))
    assert again.task_sizes == (2, 1)
    assert {name: tuple(t.shape) for name, t in head.state_dict().items()} == type(head).shapes(4, head.describe())
    torch.testing.assert_close(head.plain()(x), head(x))


@pytest.mark.parametrize("kind", ["linear", "cosine", "linear with bias"])
def test_a_head_without_a_class_gives_the_logits_of_the_others(kind):
    head = create_head(kind.split()[0], 4, **({"bias": True} if "bias" in kind else {}))
    for names in (["a", "b", "c"], ["d"], ["e", "f"]):
        head.grow(names)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn_like(parameter))
    x = torch.randn(5, 4)
    rest = head.without([1, 3, 4])
    assert rest.task_sizes == (2, 1)
    torch.testing.assert_close(rest(x), head(x)[:, [0, 2, 5]])
    assert head.task_sizes == (3, 1, 2)
    assert {name: tuple(t.shape) for name, t in rest.state_dict().items()} == type(rest).shapes(4, rest.describe())


def test_unknown_heads_and_names_taken_are_told():
    with pytest.raises(ValueError, match=r"no head 'cosin' \(did you mean 'cosine'\?\); there are: linear, cosine"):
        create_head("cosin", 4)
    with pytest.raises(ValueError, match="there is a head 'linear' already"):
        register_head("linear")(CosineHead)


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
