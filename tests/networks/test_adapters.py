"""Adapters alone learn, and are what method.md says they are."""

import json
import math

import pytest
import torch
from torch import nn

from remix.experiments.config import resolve
from remix.experiments.plan import load_tasks
from remix.learning.engine import Engine
from remix.learning.engine_state import engine_tensors, replay_tensors, restore
from remix.learning.stage import Training
from remix.learning.trainer import TrainingStoppedError
from remix.methods import create_method
from remix.networks import Classifier, LinearHead, create_backbone, frozen_copy, seeded_backbone
from remix.networks.adapters import MoEAdapter

SMALL = json.dumps({
    "model_type": "vit", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
    "image_size": 8, "patch_size": 4, "num_channels": 1,
})  # fmt: skip


def filled(width=6, hidden=4):
    adapter = MoEAdapter(width, hidden)
    generator = torch.Generator().manual_seed(0)
    for parameter in adapter.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    return adapter


def naive(adapter, x):
    """Expert by expert, sequence by sequence."""
    rows = []
    for sequence in x:
        gates = torch.softmax(sequence[0] @ adapter.router, 0)
        experts = [
            0.1 * (torch.relu(sequence @ down.T + down_bias) @ up.T + up_bias)
            for down, down_bias, up, up_bias in zip(
                adapter.down, adapter.down_bias, adapter.up, adapter.up_bias, strict=True
            )
        ]
        rows.append(sum(gate * expert for gate, expert in zip(gates, experts, strict=True)))
    return torch.stack(rows)


def test_the_mixture_and_its_gradients_are_those_of_the_naive_form():
    adapter = filled().double().eval()
    x = torch.randn(3, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    used = [x, *(value for name, value in adapter.named_parameters() if name != "noise")]
    fast, slow = adapter(x), naive(adapter, x)
    torch.testing.assert_close(fast, slow)
    for one, other in zip(*(torch.autograd.grad(y.square().sum(), used) for y in (fast, slow)), strict=True):
        torch.testing.assert_close(one, other)


def test_an_adapter_begins_as_one_that_adds_nothing():
    assert not MoEAdapter(6)(torch.randn(2, 3, 6)).any()


def test_noise_and_dropout_are_drawn_anew_and_come_again_from_a_saved_state():
    adapter, x = filled().train(), torch.ones(2, 3, 6)
    state = {name: value.clone() for name, value in adapter.state_dict().items()}
    before = torch.get_rng_state()
    first, second = adapter(x), adapter(x)
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    again = filled().train()
    again.load_state_dict(state)
    assert torch.equal(again(x), first)
    assert torch.equal(again(x), second)


def test_noise_moves_the_gates_by_its_learned_deviation():
    adapter = filled()
    adapter.noise.data.zero_()
    adapter.router.data.zero_()
    logits = adapter.gates(torch.randn(20_000, 1, 6), torch.Generator().manual_seed(0)).log()
    difference = logits[:, 0] - logits[:, 1]
    assert float(difference.detach().std()) == pytest.approx(2**0.5 * (math.log(2) + 0.01), rel=0.03)


def test_on_clip_vit_b16_four_million_numbers_learn():
    config = json.dumps({"model_type": "clip_vision_model", "patch_size": 16, "projection_dim": 512})
    with torch.device("meta"):
        image = create_backbone("transformer", config=config, adapter="moe")
        text = [MoEAdapter(512) for _ in range(12)]
    learning = [image.trainable(), text]
    counts = [sum(value.numel() for one in part for value in one.parameters()) for part in learning]
    assert counts == [12 * 201_344, 12 * 134_272]
    assert sum(counts) == 4_027_392


def test_an_unknown_adapter_is_told_with_those_there_are():
    with pytest.raises(ValueError, match=r"no adapter 'moo'.*there are: moe"):
        create_backbone("transformer", config=SMALL, adapter="moo")


@pytest.fixture
def learner():
    stream = load_tasks(resolve("digits", method="lwf", seed=0).data, None)
    later = Training(1, 0.1)

    def make():
        backbone = seeded_backbone("transformer", 0, config=SMALL, adapter="moe")
        student = Classifier(backbone, LinearHead(backbone.feature_dim))
        return Engine(student, create_method("lwf", first=later, later=later), stream.normalisation, seed=0)

    return make, stream


def test_only_adapters_and_head_learn_and_a_teacher_shares_the_rest(learner):
    make, stream = learner
    engine = make()
    before = {name: value.clone() for name, value in engine.backbone.named_parameters()}
    engine.learn(stream[0])
    engine.learn(stream[1])
    changed = {name for name, value in engine.backbone.named_parameters() if not torch.equal(value, before[name])}
    assert changed
    assert all(".adapter." in name for name in changed)
    own = parameters(engine.frozen_student().backbone) - parameters(engine.backbone)
    assert len(own) == len(parameters(nn.ModuleList(engine.backbone.trainable())))


def test_a_checkpoint_holds_what_learns_and_refuses_another_network(learner):
    make, stream = learner
    engine = make()
    engine.learn(stream[0])
    tensors, record = engine_tensors(engine)
    saved = {name for name in tensors if name.startswith("student/backbone.")}
    assert saved
    assert all(".adapter." in name for name in saved)
    other = make()
    other.backbone.patches.weight.data += 1
    with pytest.raises(ValueError, match="that is not what it was: are the weights others"):
        restore(other, tensors, record, replay_tensors(engine))


def test_numbers_that_stop_being_finite_are_told_with_their_block(learner):
    make, stream = learner
    engine = make()
    engine.backbone.layers[1].mlp.down.weight.data.fill_(3e38)
    with pytest.raises(TrainingStoppedError, match=r"the output of block 'layers\.1' already; try a smaller"):
        engine.learn(stream[0])


def test_teacher_and_checkpoint_of_a_vit_b16_hold_only_adapters():
    """The goals for memory: 1.2 networks in memory for teacher and student, a twentieth of one in a checkpoint."""
    with torch.device("meta"):
        backbone = create_backbone("transformer", config=json.dumps({"model_type": "vit"}), adapter="moe")
        student = Classifier(backbone, LinearHead(768, [20]))
        teacher = frozen_copy(student, [*backbone.trainable(), student.head])
    bare = sum(value.numel() for name, value in backbone.named_parameters() if ".adapter." not in name)
    held = {id(value): value.numel() for network in (student, teacher) for value in network.parameters()}
    assert sum(held.values()) < 1.2 * bare
    learning = sum(value.numel() for module in backbone.trainable() for value in module.parameters())
    assert learning + 20 * 768 < 0.05 * bare


def parameters(module):
    return {id(parameter) for parameter in module.parameters()}


def test_a_restored_engine_learns_the_next_task_to_the_same_bits(learner):
    make, stream = learner
    one, other = make(), make()
    one.learn(stream[0])
    tensors, record = engine_tensors(one)
    restore(other, {name: value.clone() for name, value in tensors.items()}, record, replay_tensors(one))
    for engine in (one, other):
        engine.learn(stream[1])
    states = [engine.student.state_dict() for engine in (one, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
