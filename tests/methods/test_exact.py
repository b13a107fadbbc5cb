"""Exact heads as methods: the same in every order, on any network, with input that would break careless sums."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_methods import weights
from tiny import tiny_engine, tiny_stream
from tiny_transformer import PlainConvolutions, TinyTransformer

from remix.data import ImageDataset, Normalisation, Task
from remix.learning import Engine, Method
from remix.learning.stage import Training
from remix.learning.trainer import Monitor
from remix.methods import create_method
from remix.methods.discriminant import reckoned_shrinkage
from remix.methods.exact import LEFT_OUT
from remix.methods.step_features import block_sets, block_sizes, stage_ends
from remix.networks import Backbone, Classifier, LinearHead, create_backbone
from remix.networks.views import TOKEN_CHANNELS

HEADS = ("ncm", "lda", "fecam", "ranpac")
NAMES = tuple("abcdefgh")
PLAIN = Normalisation((0.0,), (1.0,))
FIXED = {"blocks": ("convolutions.3", "convolutions.4"), "rooted": True}
STRENGTH = {"ncm": {}, "lda": {"shrinkage": 0.3}, "fecam": {"shrinkage": 1.0}, "ranpac": {"penalty": 0.1}}


def network() -> Backbone:
    return create_backbone("convnet8", width=4, generator=torch.Generator().manual_seed(0))


def engine_of(method: Method, backbone: Backbone | None = None) -> Engine:
    backbone = backbone or network()
    student = Classifier(backbone, LinearHead(backbone.feature_dim))
    return Engine(student, method.on_trained(), PLAIN, batch_size=16, start=len(backbone.blocks()))


def photographs(each: int = 12, classes: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of classes, each a pattern with noise."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(60, 196, (classes, 1, 8, 8), generator=generator)
    labels = torch.arange(classes).repeat_interleave(each)
    noise = torch.randint(-60, 61, (len(labels), 1, 8, 8), generator=generator)
    return (patterns[labels] + noise).byte(), labels


def learn(engine: Engine, images: torch.Tensor, labels: torch.Tensor, order: list[int]) -> None:
    """One step with these classes, which get labels in the order of learning."""
    known = engine.student.head.num_classes
    new = {label: known + place for place, label in enumerate(order)}
    rows = torch.isin(labels, torch.tensor(order))
    mine = torch.tensor([new[int(label)] for label in labels[rows]])
    names = (*(record.name for record in engine.memory.classes), *(NAMES[label] for label in order))
    data = ImageDataset(images[rows], mine, names)
    classes = names[known:]
    engine.learn(Task(engine.tasks, data, data, range(known, len(names)), classes, tuple(range(len(classes)))))


def by_name(engine: Engine, images: torch.Tensor) -> torch.Tensor:
    """Logits with classes in the order of their names, 0 on average."""
    with torch.no_grad():
        logits = engine.student.eval()(PLAIN.normalise(images).float()).double()
    order = [record.name for record in engine.memory.classes]
    logits = logits[:, [order.index(name) for name in sorted(order)]]
    return logits - logits.mean(1, keepdim=True)


def test_shrinkage_is_reckoned_where_the_network_learned_from_the_images_and_chosen_where_not():
    images, labels = photographs()
    backbone = network()
    student = Classifier(backbone, LinearHead(backbone.feature_dim))
    learned = Engine(student, create_method("lda", first=Training(2, 0.01)), PLAIN, batch_size=16)
    learn(learned, images, labels, list(range(6)))
    sums = learned.memory.get("sums")
    assert sums.strength == pytest.approx(reckoned_shrinkage(sums.scatter.matrix(), sums.freedom))
    whole = engine_of(create_method("lda", **FIXED))
    learn(whole, images, labels, list(range(6)))
    assert whole.memory.get("sums").strength in create_method("lda").strengths(images)


@pytest.mark.parametrize("name", HEADS)
def test_classes_one_at_a_time_in_any_order_give_the_head_of_all_at_once(name):
    images, labels = photographs()
    whole = engine_of(create_method(name, **FIXED, **STRENGTH[name]))
    learn(whole, images, labels, list(range(6)))
    expected = by_name(whole, images)
    for order in ([3, 1, 5, 0, 2, 4], [5, 4, 3, 2, 1, 0]):
        engine = engine_of(create_method(name, **FIXED, **STRENGTH[name]))
        one = whole.memory.get("sums")
        for label in order:
            learn(engine, images, labels, [label])
            # What is chosen with the first class is not compared.
            engine.memory.keep(replace(engine.memory.get("sums"), strength=one.strength, scale=one.scale))
        sums = engine.memory.get("sums")
        found = by_name(engine, images)
        assert float((found - expected).abs().max()) < 1e-5 * float(expected.abs().max())  # float32 logits
        places = [NAMES.index(record.name) for record in engine.memory.classes]
        assert float((sums.mean - one.mean[places]).abs().max()) < 1e-6
        for key, tensor in sums.scatter.tensors.items():
            other = one.scatter.tensors[key][places] if sums.own else one.scatter.tensors[key]
            assert torch.allclose(tensor, other, rtol=1e-6, atol=1e-6 * float(other.abs().max()))


@pytest.mark.parametrize("name", HEADS)
def test_a_trained_network_is_not_trained_and_one_pass_is_made(name):
    images, labels = photographs()
    engine = engine_of(create_method(name))
    seen: list[int] = []
    engine.backbone.blocks()[0].module.register_forward_hook(lambda module, given, out: seen.append(len(out)))
    before = {key: tensor.clone() for key, tensor in engine.backbone.state_dict().items()}
    learn(engine, images, labels, [0, 1, 2])
    learn(engine, images, labels, [3])
    assert sum(seen) <= len(images[labels < 4]) + 2  # two random ones tell the sizes of blocks
    assert all(torch.equal(tensor, before[key]) for key, tensor in engine.backbone.state_dict().items())
    assert engine.student.head.task_sizes == (3, 1)
    right = by_name(engine, images[labels < 4]).argmax(1) == labels[labels < 4]
    assert float(right.double().mean()) > 0.9
    assert engine.estimates[LEFT_OUT] >= 75


@pytest.mark.parametrize("name", HEADS)
def test_a_network_without_weights_is_trained_with_the_first_classes_only(name):
    stream = tiny_stream()
    backbone = network()
    student = Classifier(backbone, LinearHead(backbone.feature_dim))
    engine = Engine(student, create_method(name, first=Training(2, 0.05)), stream.normalisation, batch_size=32)
    drawn = weights(engine)
    engine.learn(stream[0])
    assert LEFT_OUT not in engine.estimates  # the network knows them
    trained = {key: tensor.clone() for key, tensor in engine.backbone.state_dict().items()}
    assert not torch.equal(trained["convolutions.0.conv.weight"], drawn["backbone.convolutions.0.conv.weight"])
    engine.learn(stream[1])
    assert all(torch.equal(tensor, trained[key]) for key, tensor in engine.backbone.state_dict().items())


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("make", [lambda: TinyTransformer(TOKEN_CHANNELS), PlainConvolutions])
def test_networks_without_batchnorm_serve_as_well(name, make):
    engine = engine_of(create_method(name), make().float())
    images, labels = photographs(6, 4)
    learn(engine, images, labels, [0, 1])
    learn(engine, images, labels, [2, 3])
    assert torch.isfinite(by_name(engine, images)).all()


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("case", ["one image", "identical", "black", "two classes of one", "many classes"])
def test_input_that_leaves_nothing_to_divide_by(name, case):
    images, labels = photographs(3, 8) if case == "many classes" else photographs(6, 4)
    if case == "one image":
        rows = torch.cat([(labels == label).nonzero()[: 1 if label == 1 else 6, 0] for label in range(4)])
        images, labels = images[rows], labels[rows]
    elif case == "identical":
        images = images[labels * 6]
    elif case == "black":
        images = torch.zeros_like(images)
    elif case == "two classes of one":
        rows = (labels % 2 == 0).nonzero()[::6, 0]
        images, labels = images[rows], labels[rows] // 2
    engine = engine_of(create_method(name))
    first = sorted({*labels.tolist()})[:2]
    learn(engine, images, labels, first)
    for label in sorted({*labels.tolist()} - {*first}):
        learn(engine, images, labels, [label])
    logits = by_name(engine, images)
    assert torch.isfinite(logits).all()
    if case in ("identical", "two classes of one"):
        assert torch.equal(logits.argmax(1), labels)


@pytest.mark.slow
def test_more_classes_than_anybody_tests_by_hand():
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(0, 256, (500, 1, 8, 8), generator=generator)
    labels = torch.arange(500).repeat_interleave(3)
    images = (patterns[labels] + torch.randint(-5, 6, (1500, 1, 8, 8), generator=generator)).clamp(0, 255).byte()
    names = tuple(f"class {label}" for label in range(500))
    data = ImageDataset(images, labels, names)
    for name in HEADS:
        engine = engine_of(create_method(name))
        engine.learn(Task(0, data, data, range(500), names, tuple(range(500))))
        right, count = engine.evaluate(data)
        assert right > 0.5 * count


def test_further_images_of_a_class_are_added_to_it():
    images, labels = photographs(10, 3)
    split = torch.arange(30) % 2 == 0
    engine, whole = (engine_of(create_method("lda", **FIXED, shrinkage=0.5)) for _ in range(2))
    learn(engine, images[split], labels[split], [0, 1, 2])
    more = ImageDataset(images[~split], labels[~split], NAMES[:3])
    engine.learn(Task(1, more, more, range(3, 3), (), ()))
    learn(whole, images, labels, [0, 1, 2])
    assert engine.memory.get("sums").counts == whole.memory.get("sums").counts
    assert [record.images for record in engine.memory.classes] == [10, 10, 10]
    assert torch.allclose(engine.student.head.weight, whole.student.head.weight, rtol=1e-4, atol=1e-5)


def test_classes_of_fewer_images_than_the_minimum_are_refused():
    images, labels = photographs(3, 2)
    with pytest.raises(ValueError, match=r"a has 3 images to learn from, and the least is 4 \(minimum\)"):
        learn(engine_of(create_method("ncm", minimum=4)), images, labels, [0, 1])


def test_sums_of_another_method_or_none_are_not_gone_on_with():
    images, labels = photographs(3, 3)
    engine = engine_of(create_method("ncm"))
    learn(engine, images, labels, [0, 1])
    engine.method = create_method("lda")
    with pytest.raises(ValueError, match="has the sums of the method ncm: go on with that"):
        learn(engine, images, labels, [2])
    engine = engine_of(create_method("lda"))
    learn(engine, images, labels, [0, 1])
    engine.memory.drop("sums")
    with pytest.raises(ValueError, match="keeps no sums of its classes, so the method lda cannot go on"):
        learn(engine, images, labels, [2])


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("lda", {"shrinkage": 0.0}, "above 0 and at most 1"),
        ("lda", {"covariance": "full"}, "one of auto, dense, laplace, diagonal"),
        ("fecam", {"shrinkage": -1.0}, "above 0"),
        ("ranpac", {"width": 0}, "from 1 to 20,000"),
        ("ranpac", {"penalty": float("nan")}, "above 0"),
        ("ncm", {"minimum": 0}, "at least 1 image"),
    ],
)
def test_settings_that_mean_nothing_are_refused(name, settings, said):
    with pytest.raises(ValueError, match=said):
        create_method(name, **settings)


def test_a_network_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"no block 'top' to take features of; there are: convolutions\.0"):
        create_method("lda", blocks=("top",)).check(network())
    with pytest.raises(ValueError, match="freezes the whole network by itself"):
        create_method("ncm").check(network(), 2)
    wide = create_backbone("convnet8", width=300)
    with pytest.raises(
        ValueError, match=r"a matrix per class, of at most 1,024 features, and there are 1,200: choose lda"
    ):
        create_method("fecam").check(wide)
    engine = engine_of(create_method("fecam"), create_backbone("convnet8", width=256))
    engine.present, engine.student.head = ImageDataset(*photographs(2, 2), NAMES[:2]), LinearHead(1024, [402])
    with pytest.raises(ValueError, match=r"would keep 402 matrices of 1024 x 1024 numbers, 3\.4 GB"):
        engine.method.begin(engine)


def test_a_network_that_learns_from_the_first_images_is_read_at_the_end_of_every_stage_in_detail():
    images, labels = photographs()
    engine = tiny_engine("lda", tiny_stream())
    engine.learn(tiny_stream()[0])
    map, ends = engine.student.head.map, stage_ends(engine.backbone)
    assert (map.blocks, map.sizes, map.detail, map.rooted) == (ends.blocks, ends.sizes, True, False)
    assert len(ends.blocks) > 1
    assert engine.memory.get("sums").dim == ends.dim
    trained = engine_of(create_method("lda"))  # nothing learns there: the images choose
    learn(trained, images, labels, [0, 1, 2])
    assert not trained.student.head.map.detail


def test_a_network_too_wide_for_details_is_read_by_averages(monkeypatch):
    monkeypatch.setattr("remix.methods.lda._DENSE", stage_ends(tiny_engine("lda", tiny_stream()).backbone).dim - 1)
    engine = tiny_engine("lda", tiny_stream())
    engine.learn(tiny_stream()[0])
    assert engine.student.head.map.blocks == stage_ends(engine.backbone).blocks
    assert not engine.student.head.map.detail


def test_stages_end_where_maps_change_their_size():
    backbone = create_backbone("resnet32", width=4)
    names = [backbone.blocks()[block].name for block in stage_ends(backbone).blocks]
    assert names == ["stage_1.4", "stage_2.4", "stage_4.0"]
    assert stage_ends(backbone).sizes == (20, 40, 80)
    assert stage_ends(backbone, detail=False).sizes == (4, 8, 16)
    assert stage_ends(backbone, start=8).blocks == (10, 15)
    assert len(stage_ends(TinyTransformer()).blocks) == 1


def test_the_average_of_the_last_block_is_that_of_its_quarters():
    map, features = stage_ends(network()), torch.randn(2, *network().input_shape)
    backbone = network().eval()
    with torch.no_grad():
        found = map.last_average(backbone.pooled(features, at=map.at), backbone.feature_dim)
        torch.testing.assert_close(found, backbone.pooled(features))


def test_blocks_to_choose_from_end_with_the_last_and_stay_within_bounds():
    assert block_sets([64, 256, 512, 512, 512], 2048) == [(4,), (3,), (3, 4), (2, 3, 4), (1, 2, 3, 4)]
    assert block_sets([64, 256, 512, 512, 512], 512) == [(4,), (3,)]
    assert block_sets([2048, 2048], 1024) == [(1,)]
    assert block_sets([8], 2048) == [(0,)]
    assert block_sets([0, 8, 8], 2048) == [(2,), (1,), (1, 2)]
    assert block_sizes(network()) == [4, 8, 8, 16, 16]


def test_what_is_chosen_is_told_and_stays():
    images, labels = photographs()
    engine = engine_of(create_method("lda"))
    learn(engine, images, labels, [0, 1, 2])
    (told,) = engine.notes
    assert told.startswith("lda uses features of convolutions.")
    chosen = engine.memory.get("sums")
    learn(engine, images, labels, [3])
    assert engine.notes == []
    later = engine.memory.get("sums")
    assert len(later.steps) == 2
    apart = {"labels": 0, "counts": 0, "steps": 0}
    assert later.describe() | apart == chosen.describe() | apart


def test_the_blocks_are_chosen_by_what_tells_classes_apart():
    """The last block is made deaf, so that only those before it can."""
    backbone = network()
    with torch.no_grad():
        backbone.blocks()[-1].module.bn.weight.zero_()
    engine = engine_of(create_method("lda"), backbone)
    learn(engine, *photographs(), [0, 1, 2])
    assert engine.student.head.map.blocks[0] < 4
    assert engine.estimates[LEFT_OUT] > 80


@pytest.mark.parametrize("kind", ["laplace", "diagonal"])
def test_smaller_covariances_learn_too(kind):
    images, labels = photographs()
    engine = engine_of(create_method("lda", covariance=kind))
    learn(engine, images, labels, [0, 1, 2])
    learn(engine, images, labels, [3])
    assert engine.memory.get("sums").scatter.kind == kind
    assert engine.memory.get("sums").strength == {"laplace": 0.05, "diagonal": 1.0}[kind]
    assert (LEFT_OUT in engine.estimates) == (kind == "diagonal")  # a fitted covariance knows its images
    right = by_name(engine, images[labels < 4]).argmax(1) == labels[labels < 4]
    assert float(right.double().mean()) > 0.8


def test_features_that_are_not_numbers_are_refused():
    backbone = network()
    with torch.no_grad():
        backbone.blocks()[-1].module.bn.bias.fill_(torch.nan)
    last = backbone.blocks()[-1].name
    with pytest.raises(ValueError, match=f"infinite features for an image, the output of block '{last}' already"):
        learn(engine_of(create_method("ncm"), backbone), *photographs(2, 2), [0, 1])


def test_progress_of_the_pass_is_told():
    engine = engine_of(create_method("ncm"))
    told: list[tuple[int, int]] = []

    class Watch(Monitor):
        def batch(self, epoch: int, done: int, count: int) -> None:
            told.append((done, count))

    engine.monitor = Watch()
    learn(engine, *photographs(12, 2), [0, 1])
    assert told == [(1, 2), (2, 2)]


def test_choices_of_many_images_are_made_by_some(monkeypatch):
    monkeypatch.setattr("remix.methods.exact._MOST_TRIED", 10)
    engine = engine_of(create_method("lda"))
    learn(engine, *photographs(12, 3), [0, 1, 2])
    assert engine.memory.get("sums").images == 36


def test_random_features_are_decided_by_the_seed():
    images, labels = photographs()
    heads = []
    for seed in (0, 0, 1):
        engine = engine_of(replace(create_method("ranpac"), width=50))  # type: ignore[call-arg]
        engine.seed = seed
        learn(engine, images, labels, [0, 1])
        heads.append(engine.student.head)
    assert torch.equal(heads[0].map.projection, heads[1].map.projection)
    assert heads[0].map.dim == 50
    assert not torch.equal(heads[0].map.projection, heads[2].map.projection)


def test_a_covariance_that_is_fitted_by_itself_is_not_shrunk_like_a_matrix(monkeypatch):
    monkeypatch.setattr("remix.methods.lda._DENSE", 15)  # the last block has 16 features
    engine = engine_of(create_method("lda"))
    learn(engine, *photographs(), [0, 1, 2])
    assert (engine.memory.get("sums").scatter.kind, engine.memory.get("sums").strength) == ("laplace", 0.05)
