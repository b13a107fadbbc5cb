"""Prompts: tokens beside those of the image."""

import copy
import json

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

from remix.networks import check_backbone, seeded_backbone
from remix.networks.prompts import CodaPrompts

SMALL = json.dumps({
    "model_type": "vit", "hidden_size": 8, "num_hidden_layers": 7, "num_attention_heads": 2, "intermediate_size": 16,
    "image_size": 8, "patch_size": 4, "num_channels": 1,
})  # fmt: skip
IMAGES = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def network(adapter):
    return seeded_backbone("transformer", 0, config=SMALL, adapter=adapter).eval()


@pytest.mark.parametrize("adapter", ["prompts", "deep-prompts", "coda"])
def test_a_prompted_network_keeps_the_promises_of_a_backbone_and_only_prompts_learn(adapter):
    one = network(adapter)
    check_backbone(one)
    learning = {id(p) for module in one.trainable() for p in module.parameters()}
    assert learning == {id(p) for name, p in one.named_parameters() if "prompts" in name}
    assert (one(IMAGES) - network(None)(IMAGES)).abs().max() > 1e-4


@torch.no_grad()
def test_shallow_prompts_go_through_all_layers_behind_the_patches():
    one = network("prompts")
    tokens = one.features(IMAGES, 0, 2)
    assert tokens.shape[1] == 1 + 4 + 10
    torch.testing.assert_close(tokens[:, 5:], one.pre.prompts.tokens.expand(3, -1, -1))
    torch.testing.assert_close(tokens[:, :5], network(None).features(IMAGES, 0, 2))


@torch.no_grad()
def test_deep_prompts_are_those_that_replace_the_outputs_of_the_layer_before():
    """The usual form: prompts go through the layers, and every layer begins by putting its own in their place."""
    one, plain = network("deep-prompts"), network(None)
    tokens = plain.features(IMAGES, 0, 2)
    x = torch.cat([tokens, torch.zeros(3, 10, 8)], 1)
    for layer, prompted in zip(plain.layers, one.layers, strict=True):
        x = layer(torch.cat([x[:, :5], prompted.prompts.tokens.expand(3, -1, -1)], 1))
    torch.testing.assert_close(one(IMAGES), plain.post(x))


@torch.no_grad()
def test_coda_prompts_are_a_sum_of_components_by_how_their_keys_fit_the_feature_without_prompts():
    one, plain = network("coda"), network(None)
    query = plain(IMAGES)
    x = plain.features(IMAGES, 0, 2)
    torch.testing.assert_close(one.features(IMAGES, 0, 2), torch.cat([x, query[:, None]], 1))
    for number, layer in enumerate(plain.layers):
        beside = x
        if number < 5:
            pool = one.layers[number].prompts
            rows = []
            for q in query:
                fits = [cosine_similarity(q * a, k, dim=0) for a, k in zip(pool.attention, pool.keys, strict=True)]
                rows.append(sum(fit * component for fit, component in zip(fits, pool.components, strict=True)))
            beside = torch.cat([x, torch.stack(rows)], 1)
        x = layer(beside)[:, :5]
    torch.testing.assert_close(one(IMAGES), plain.post(x))


def test_a_part_of_the_pool_learns_with_every_task_and_begins_orthogonal_to_all_before():
    pool = CodaPrompts(300)
    pool.begin_task(0)
    first = copy.deepcopy(pool.state_dict())
    pool.begin_task(1)
    for name, rows in pool.named_parameters():
        flat = rows.detach().flatten(1)[:20]
        torch.testing.assert_close(flat @ flat.T, torch.eye(20), atol=1e-4, rtol=0)
        assert torch.equal(rows[:10], first[name][:10])
    pool.prompts(torch.randn(4, 300)).sum().backward()
    for rows in pool.parameters():
        assert not rows.grad[:10].any()
        assert rows.grad[10:20].any()
        assert not rows.grad[20:].any()
    with pytest.raises(ValueError, match="room for 10 tasks, and this is task 11"):
        pool.begin_task(10)


def test_a_copy_asks_its_own_layers_for_the_query():
    one = network("coda")
    other = copy.deepcopy(one)
    nn.init.zeros_(other.post.norm.weight)
    nn.init.ones_(other.post.norm.bias)
    assert torch.equal(other.features(IMAGES, 0, 2)[:, -1], torch.ones(3, 8))
    assert not torch.equal(one.features(IMAGES, 0, 2)[:, -1], torch.ones(3, 8))
