"""PMI and REMIX on adapters, by the settings that are published for CLIP."""

from dataclasses import replace

import pytest
import torch
from tiny import TRANSFORMER, tiny_sentences, tiny_stream
from tiny_hf import make, save_clip
from torch.nn.functional import cross_entropy, normalize

from remix.inversion import Schedule
from remix.learning.engine import Engine
from remix.learning.engine_state import engine_tensors, replay_tensors, restore
from remix.learning.items import TensorReplay
from remix.learning.losses import LossScales
from remix.learning.stage import Batch, Training
from remix.methods import create_method
from remix.methods.distillation import distil_texts
from remix.networks import Classifier, TextHead, create_head, open_text_tower, seeded_backbone
from remix.networks.hf_folder import open_image_model
from remix.statistics import SelectorRecipe

STREAM = tiny_stream(12)


def method(name, **changes):
    short = Training(1, 1e-3, weight_decay=0.0, optimiser="adamw", schedule="quarter-cosine", warm_up=1)
    published = create_method(name, setting="clip")
    inversion = replace(
        published.inversion, block=Schedule(2, 0.1), refine=Schedule(2, 0.01), entry=Schedule(4, 0.1), entry_side=1
    )
    settings = {"first": short, "network": short, "samples_per_task": 5, "selectors": SelectorRecipe(epochs=2)}
    return create_method(name, setting="clip", **{**settings, "inversion": inversion, **changes})


def engine_of(name="remix", adapter="moe", head="text", seed=0, **changes):
    backbone = seeded_backbone("transformer", seed, config=TRANSFORMER, adapter=adapter)
    top = create_head(head, 8, **(tiny_sentences() if head == "text" else {}))
    return Engine(Classifier(backbone, top), method(name, **changes), STREAM.normalisation, batch_size=16, seed=seed)


@pytest.mark.parametrize(
    ("name", "adapter", "head"),
    [
        ("remix", "moe", "text"),
        ("pmi", "deep-prompts", "text"),
        ("pmi", "prompts", "linear"),
        ("pmi", "coda", "linear"),
    ],
)
def test_two_tasks_on_every_kind_of_adapter(name, adapter, head):
    engine = engine_of(name, adapter, head)
    frozen = {key: value.clone() for key, value in engine.backbone.named_parameters() if ".adapter." not in key}
    seen = []
    for task in STREAM:
        engine.learn(task, lambda: seen.append(engine.replay))
    replay = next(one for one in seen if one is not None)
    assert isinstance(replay, TensorReplay)
    assert (replay.start, replay.replacement, tuple(replay.images.shape)) == (1, True, (5, 8, 2, 2))
    assert replay.labels.bincount().tolist() == [3, 2]
    assert all(
        torch.equal(value, engine.backbone.get_parameter(key)) for key, value in frozen.items() if "prompts" not in key
    )
    assert engine.memory.gaussians.labels == (0, 1, 2, 3)


def test_old_gaussians_are_kept_as_they_are():
    engine = engine_of()
    engine.learn(STREAM[0])
    before = engine.memory.gaussians
    engine.learn(STREAM[1])
    assert torch.equal(engine.memory.gaussians.mean[:2], before.mean)
    assert torch.equal(engine.memory.gaussians.std[:2], before.std)


def test_a_run_that_goes_on_with_its_replay_gives_the_same_bits():
    one, other, saved = engine_of(), engine_of(), []
    one.learn(STREAM[0])

    def keep():
        if one.replay is not None and not saved:
            tensors, record = engine_tensors(one)
            saved.append(({k: v.clone() for k, v in tensors.items()}, record, replay_tensors(one)))

    one.learn(STREAM[1], keep)
    restore(other, *saved[0])
    assert other.replay.replacement
    other.learn(STREAM[1])
    states = [engine.student.state_dict() for engine in (one, other)]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@pytest.fixture
def clip_engine(tmp_path):
    """A tiny CLIP, both towers with adapters, in the middle of its second task."""
    open_text_tower.cache_clear()
    save_clip(tmp_path)
    make("clip")
    backbone = open_image_model(str(tmp_path), (3, 16, 16), adapter="moe").backbone
    head = TextHead(10, place=str(tmp_path), adapted=True)
    from remix.data import ImageDataset, Normalisation, Splits, TaskStream

    images = torch.randint(0, 256, (24, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = ImageDataset(images, torch.arange(24) % 4, ("cat", "dog", "bird", "fish"))
    stream = TaskStream(Splits(data, data, Normalisation((0.5,) * 3, (0.5,) * 3), "drawn"), 2)
    made = Engine(Classifier(backbone, head), method("remix"), stream.normalisation, batch_size=16)
    made.learn(stream[0])
    made.present = stream[1].train
    made._prepare(stream[1])
    made._dream()
    return made, stream


def test_the_terms_of_a_later_task_are_the_published_ones(clip_engine):
    engine, stream = clip_engine
    scales = LossScales(1.0, 0.002, 0.1, 0.0, 0.2, head_follows=False).for_task(2, 2)
    assert (scales.local, scales.hard, scales.text, scales.head) == pytest.approx((2.0, 0.1, 0.2, 0.002))
    losses = distil_texts(engine, scales)
    images, labels = next(iter(engine.images(stream[1].train)))
    replayed = engine.replay.draw(len(labels), torch.Generator().manual_seed(0))
    engine.student.eval()
    found = losses(Batch(images, labels, replayed))
    head, teacher = engine.student.head, engine.teacher
    real, pseudo = engine.pooled(images), engine.pooled(replayed.items)
    texts = head.vectors()

    def logits(x):
        return 100 * normalize(x) @ texts.T

    expected = {
        "local": 2.0 * cross_entropy(logits(real)[:, 2:], labels - 2),
        "hard": 0.1 * (logits(pseudo)[:, :2] - teacher(*replayed.items)).abs().mean(),
        "text": 0.2 * (texts[:2] - teacher.head.vectors()).abs().mean(),
        "head": 0.001
        * (cross_entropy(logits(real.detach()), labels) + cross_entropy(logits(pseudo.detach()), replayed.labels)),
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-4, rtol=1e-4)


def test_dreaming_before_what_learns_is_refused():
    with pytest.raises(ValueError, match=r"before which nothing may learn: begin with a transformer and adapters"):
        engine_of(adapter=None)
    with pytest.raises(ValueError, match="depth must be 0"):
        create_method("pmi", depth=-1)
