"""Maps that begin small: what is sought of a patch embedding grows on the way."""

import json

import pytest
import torch
from torch.nn.functional import interpolate

from remix.inversion import (
    Knowledge,
    LayerwiseSettings,
    PriorSettings,
    Schedule,
    Targets,
    invert_layerwise,
)
from remix.inversion.losses import TotalVariation
from remix.inversion.terms import BatchAverage, Seen
from remix.inversion.variables import GrowingVariable
from remix.networks import seeded_backbone
from remix.statistics import measure_layers

VIT = json.dumps({
    "model_type": "vit", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
    "image_size": 28, "patch_size": 4, "num_channels": 1,
})  # fmt: skip
SHORT = LayerwiseSettings(
    Schedule(3, 0.1), Schedule(3, 0.05), entry=Schedule(9, 0.1), entry_side=2, refine_at="blocks",
    refine_variation=0.005, boosting=False, prior=PriorSettings("diagonal", weight=0.1, summed=True),
)  # fmt: skip


@pytest.fixture(scope="module")
def knowledge():
    backbone = seeded_backbone("transformer", 0, config=VIT, adapter="moe").eval()
    images = torch.randn(12, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    layers = {}
    for point, view in backbone.watched(1):
        layers |= measure_layers(backbone, [(images, torch.zeros(12, dtype=torch.int64))], [point], view=view)
    return Knowledge(backbone, layers, start=1)


def targets(knowledge, count=4):
    return Targets(torch.arange(count), torch.randn(count, 8, generator=torch.Generator().manual_seed(1)))


def test_sides_double_in_equal_shares_of_the_steps_until_they_are_whole():
    grown = GrowingVariable(torch.zeros(1, 3, 2, 2), (14, 14), 1200)
    found = []
    for step in range(1200):
        if grown.resize(step):
            found.append((step, grown.tensors[0].shape[2]))
    assert found == [(300, 4), (600, 8), (900, 14)]


def test_the_network_sees_whole_maps_whatever_their_size():
    x = torch.randn(2, 3, 2, 2)
    grown = GrowingVariable(x, (7, 7), 9)
    shown, seen = grown.draw(torch.Generator())(grown.leaves(slice(0, 2)), slice(0, 2))
    assert shown is seen
    torch.testing.assert_close(seen, interpolate(x, (7, 7), mode="bicubic"))


def test_replay_of_a_transformer_is_what_leaves_its_patch_embedding(knowledge):
    seen = []
    dream = invert_layerwise(
        knowledge, targets(knowledge), torch.Generator().manual_seed(0), SHORT, progress=seen.append
    )
    assert dream.start == 1
    assert dream.images.shape == (4, 8, 7, 7)
    assert list(dict.fromkeys(one.phase for one in seen)) == ["post", "layers.1", "layers.0", "pre", "refine"]
    terms = {one.phase: set(one.step.values) for one in seen}
    assert terms["layers.1"] == {"features", "statistics", "input", "prior"}
    assert terms["pre"] == {"features", "input", "prior"}
    assert terms["refine"] == {"features", "statistics", "variation", "prior"}
    assert sum(one.phase == "pre" for one in seen) == 9


@pytest.mark.parametrize("stop", [1, 11, 14, 17, 19])
def test_an_inversion_interrupted_while_maps_grow_goes_on_to_the_same_bits(knowledge, stop):
    whole = invert_layerwise(knowledge, targets(knowledge), torch.Generator().manual_seed(0), SHORT)
    made = []

    def interrupt(progress):
        made.append(progress)
        if len(made) == stop:
            raise KeyboardInterrupt

    half = invert_layerwise(knowledge, targets(knowledge), torch.Generator().manual_seed(0), SHORT, progress=interrupt)
    assert not half.finished
    rest = invert_layerwise(
        knowledge, targets(knowledge), torch.Generator().manual_seed(7), SHORT, resume=half.checkpoint
    )
    assert torch.equal(rest.images, whole.images)


def test_norms_of_maps_are_averaged_over_images_and_channels():
    x = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    loss = TotalVariation("map-norms")
    measure = loss.averages[0]
    found = loss.value([BatchAverage(measure, measure(Seen(slice(0, 3), x, x, x)))], 3)
    slow = 0.0
    for image in x:
        for channel in image:
            pairs = [channel[:, :-1] - channel[:, 1:], channel[:-1] - channel[1:]]
            pairs += [channel[:-1, 1:] - channel[1:, :-1], channel[:-1, :-1] - channel[1:, 1:]]
            slow += sum(float(pair.square().sum() ** 0.5) for pair in pairs) / 6
    assert float(found) == pytest.approx(slow)


def test_a_summed_prior_weighs_as_many_times_as_there_are_layers(knowledge):
    (mean,) = knowledge.prior_terms(PriorSettings("diagonal", weight=0.1))
    (total,) = knowledge.prior_terms(PriorSettings("diagonal", weight=0.1, summed=True))
    assert total.weight == pytest.approx(mean.weight * len(mean.loss.averages))
