from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from remix.networks import create_backbone
from remix.statistics import (
    ClassGaussians,
    ClassRecord,
    DamagedFileError,
    Memory,
    SelectorRecipe,
    Selectors,
    Statistic,
    StoredItem,
    TaskRecord,
    check_layers,
    class_gaussians,
    fit_drift,
    measure_layers,
    register_statistic,
    train_selectors,
    write_file,
)
from remix.statistics.memory import KIND, VERSION
from remix.statistics.statistic import statistic_classes
from remix.statistics.storage import read_file

IMAGES = torch.rand(4, 3, 32, 32)
PIXELS = (IMAGES * 255).to(torch.uint8)


@pytest.fixture(scope="module")
def memory(shared_network) -> Memory:
    network, generator = shared_network, torch.Generator().manual_seed(0)
    images = torch.randn(24, 3, 16, 16, generator=generator)
    memory = Memory()
    memory.record_task([("apple", 20), ("bear", 4)])
    channels = measure_layers(network, [images], ["stem.bn:input", "stage_2.0.bn1:input"], kinds=("laplace", "dense"))
    blocks = measure_layers(network, [images], ["stage_1.0:input"], kinds=())
    maps = measure_layers(network, [images], ["stage_2.0:output"], "map")
    memory.layers = channels | blocks | maps
    features = torch.randn(24, 16, generator=generator)
    labels = torch.tensor([0] * 20 + [1] * 4)
    memory.gaussians = class_gaussians(features, labels)
    recipe = SelectorRecipe(epochs=2)
    memory.selectors = train_selectors({0: features[:20], 1: features[20:]}, recipe, generator)
    return memory


def test_what_is_saved_comes_back_to_the_bit(memory, tmp_path):
    memory.save(tmp_path / "memory.remix")
    loaded = Memory.load(tmp_path / "memory.remix")
    assert list(loaded.layers) == list(memory.layers)
    for key, layer in memory.layers.items():
        other = loaded.layers[key]
        assert (other.point, other.view, other.shape, other.images) == (
            layer.point,
            layer.view,
            layer.shape,
            layer.images,
        )
        assert other.kinds == layer.kinds
        assert torch.equal(other.mean, layer.mean)
        assert torch.equal(other.variance, layer.variance)
        if layer.normal is not None:
            assert other.normal.basis == layer.normal.basis
            rows = torch.randn(3, layer.dim)
            assert torch.equal(other.normal.log_prob(rows), layer.normal.log_prob(rows))
        if layer.covariance is not None:
            assert torch.equal(other.covariance, layer.covariance)
    assert loaded.gaussians.labels == (0, 1)
    assert loaded.gaussians.counts == (20, 4)
    assert torch.equal(loaded.gaussians.std, memory.gaussians.std)
    rows = torch.randn(5, 16)
    assert torch.equal(loaded.selectors.embed(1, rows), memory.selectors.embed(1, rows))
    assert loaded.classes == (ClassRecord("apple", 20), ClassRecord("bear", 4))
    assert loaded.tasks == (TaskRecord((0, 1), 24),)


def test_the_memory_holds_a_map_in_the_cosine_basis(memory):
    assert memory.layers["stage_2.0:output:map"].normal.basis is not None


def test_an_empty_memory_saves_and_loads(tmp_path):
    Memory().save(tmp_path / "empty")
    loaded = Memory.load(tmp_path / "empty")
    assert not loaded.layers
    assert loaded.gaussians is None


@pytest.mark.parametrize("name", ["layers", "gaussians", "selectors", "classes", "tasks", "images", "exemplars"])
@pytest.mark.parametrize("value", [IMAGES, PIXELS, [IMAGES], {"a": IMAGES}, (PIXELS,)])
def test_no_attribute_takes_images(name, value):
    with pytest.raises((TypeError, AttributeError)):
        setattr(Memory(), name, value)


def test_images_cannot_be_put_in_behind_its_back(memory):
    with pytest.raises(TypeError, match="assignment"):
        memory.layers["image"] = IMAGES
    with pytest.raises(AttributeError, match="cannot assign"):
        memory.gaussians.mean = IMAGES
    with pytest.raises(ValueError, match="floating-point tensor"):
        ClassGaussians((0, 1, 2, 3), (1, 1, 1, 1), IMAGES, IMAGES)
    with pytest.raises(ValueError, match="floating-point tensor"):
        Selectors((0, 1, 2, 3), *([IMAGES] * 6))
    with pytest.raises(TypeError, match="never data"):
        memory.gaussians = IMAGES


def test_no_stored_tensor_has_the_rank_or_type_of_images(memory, tmp_path):
    memory.save(tmp_path / "memory")
    tensors, _ = read_file(tmp_path / "memory", KIND, VERSION)
    assert tensors
    assert all(tensor.dim() <= 3 and tensor.is_floating_point() for tensor in tensors.values())


def test_a_file_with_images_beside_the_statistics_is_refused(tmp_path):
    content = {"layers": [], "classes": [], "tasks": []}
    write_file(tmp_path / "memory", KIND, VERSION, {"images": PIXELS}, content)
    with pytest.raises(DamagedFileError, match=r"holds 'images' of shape \(4, 3, 32, 32\), which no memory holds"):
        Memory.load(tmp_path / "memory")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "'layers' is missing"),
        ([], "valid memory"),
        ({"layers": [], "classes": [["a", -1]], "tasks": []}, "at least one image"),
        ({"layers": [], "classes": [["a", 1], ["a", 1]], "tasks": []}, "twice"),
        ({"layers": [], "classes": [], "tasks": [[["x"], 1]]}, "whole numbers"),
        ({"layers": [{"point": "bn"}], "classes": [], "tasks": []}, "which side|missing"),
        ({"layers": [], "classes": [], "tasks": [], "gaussians": {"labels": [0]}}, "'gaussians/mean' is missing"),
        ({"layers": [{"point": "a:input", "view": "channels", "shape": [-4]}], "classes": [], "tasks": []}, "missing"),
        (
            {
                "layers": [{"point": "bn:input", "view": "map", "shape": [10**9, 10**9, 9], "images": 1, "kinds": []}],
                "classes": [],
                "tasks": [],
            },
            "missing",
        ),
    ],
)
def test_a_well_formed_file_with_senseless_content_is_told_in_one_sentence(tmp_path, content, message):
    write_file(tmp_path / "memory", KIND, VERSION, {}, content)
    with pytest.raises(DamagedFileError, match=message) as caught:
        Memory.load(tmp_path / "memory")
    assert "\n" not in str(caught.value)


def test_tensors_of_a_wrong_shape_or_value_are_told(memory, tmp_path):
    memory.save(tmp_path / "memory")
    tensors, content = read_file(tmp_path / "memory", KIND, VERSION)
    for name, value in (
        ("layers/stem.bn:input:channels/mean", torch.zeros(5)),
        ("layers/stem.bn:input:channels/diag", -torch.ones(4)),
        ("layers/stem.bn:input:channels/coord", torch.full((4,), torch.nan)),
        ("layers/stem.bn:input:channels/weight", torch.ones(2, 4)),
        ("layers/stem.bn:input:channels/variance", torch.ones(4).to(torch.float8_e4m3fn)),
        ("gaussians/std", torch.ones(2, 3, 4, 4)),
        ("selectors/bias", torch.ones(2, 2, 3)),
    ):
        write_file(tmp_path / "changed", KIND, VERSION, tensors | {name: value}, content)
        with pytest.raises(DamagedFileError, match="not a valid memory"):
            Memory.load(tmp_path / "changed")


def test_describe_lists_everything_with_its_size(memory, tmp_path):
    rows = memory.describe()
    assert {row.kind for row in rows} == {
        "moments",
        "Laplace covariance",
        "dense covariance",
        "class Gaussians",
        "selectors",
        "names",
    }
    sizes = {(row.kind, row.name): row.bytes for row in rows}
    assert sizes["Laplace covariance", "stem.bn:input:channels"] == 16 * 4
    assert sizes["dense covariance", "stem.bn:input:channels"] == 4 * 4 * 4
    assert sizes["class Gaussians", "pooled features"] == 2 * 2 * 16 * 4
    memory.save(tmp_path / "memory")
    tensors, _ = read_file(tmp_path / "memory", KIND, VERSION)
    stored = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    assert sum(row.bytes for row in rows if row.kind != "names") == stored


def test_tasks_number_their_classes_on():
    memory = Memory()
    memory.record_task([("a", 5), ("b", 6)])
    task = memory.record_task([("c", 7)])
    assert task == TaskRecord((2,), 7)
    with pytest.raises(ValueError, match="'a' is there twice"):
        memory.record_task([("a", 5)])
    with pytest.raises(ValueError, match="at least one class"):
        memory.record_task([])
    with pytest.raises(ValueError, match="at least one image"):
        memory.record_task([("e", 0)])
    assert len(memory.classes) == 3
    assert len(memory.tasks) == 2


def test_a_layer_must_stand_under_its_own_key(memory):
    layer = memory.layers["stem.bn:input:channels"]
    with pytest.raises(ValueError, match="own keys"):
        memory.layers = {"other": layer}


def test_the_network_it_belongs_to_is_accepted_and_unchanged(memory, network):
    network.train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    check_layers(memory.layers, network)
    assert network.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_another_network_is_refused_by_its_first_difference(memory):
    with pytest.raises(ValueError, match=r"another network: 'stem.bn:input:channels' has 4 coordinates.*it has 6"):
        check_layers(memory.layers, create_backbone("resnet20", width=6, input_shape=(3, 16, 16)))
    with pytest.raises(ValueError, match=r"another network: ImageNetResNet has no module 'stem.bn'"):
        check_layers(memory.layers, create_backbone("resnet18"))
    with pytest.raises(ValueError, match=r"'stage_2.0:output:map' has 512 coordinates.*2048"):
        check_layers(memory.layers, create_backbone("resnet20", width=4, input_shape=(3, 32, 32)))


def test_a_larger_file_can_hold_it(memory):
    again = Memory.from_tensors(*memory.to_tensors())
    assert again.describe() == memory.describe()
    tensors, content = memory.to_tensors()
    with pytest.raises(ValueError, match="holds 'weights'"):
        Memory.from_tensors(tensors | {"weights": torch.ones(2)}, content)


def test_moving_keeps_everything(memory):
    moved = memory.to("cpu")
    assert moved.describe() == memory.describe()


def test_a_statistic_of_ones_own_is_kept_saved_and_read_back(memory, tmp_path):
    @register_statistic
    @dataclass(frozen=True)
    class Counts(Statistic):
        name: ClassVar[str] = "counts"
        by_label: torch.Tensor

        def tensors(self):
            return {"by_label": self.by_label}

        def describe(self):
            return {"classes": len(self.by_label)}

        @classmethod
        def from_tensors(cls, tensors, described):
            return cls(tensors.pop("by_label"))

        def merge(self, other, classes):
            return Counts(torch.cat([self.by_label, other.by_label]))

        def to(self, device):
            return Counts(self.by_label.to(device))

        def without(self, labels):
            rest = self.by_label.clone()
            rest[list(labels)] = 0
            return Counts(rest), ""

        def stored(self):
            return [StoredItem("counts", "images", "by class", 8)]

    try:
        whole = memory.to("cpu")
        whole.keep(Counts(torch.tensor([20.0, 4.0])))
        whole.save(tmp_path / "memory")
        again = Memory.load(tmp_path / "memory").to("cpu")
        assert again.get("counts").by_label.tolist() == [20, 4]
        assert "counts" in {row.kind for row in again.describe()}
        assert again.without([1])[0].get("counts").by_label.tolist() == [20, 0]
        with pytest.raises(ValueError, match="there is a statistic 'layers' already"):
            register_statistic(type("Other", (Counts,), {"name": "layers"}))
    finally:
        del statistic_classes()["counts"]
    with pytest.raises(DamagedFileError, match="it keeps 'counts', which is no statistic that is known here"):
        Memory.load(tmp_path / "memory")


def test_without_a_class_what_is_its_own_goes_and_what_is_shared_is_said(memory):
    rest, stays = memory.without([0])
    assert rest.gaussians.labels == rest.selectors.labels == (0,)  # the other class moves up
    assert rest.classes == memory.classes[1:]
    assert torch.equal(rest.gaussians.mean, memory.gaussians.mean[1:])
    assert list(rest.layers) == list(memory.layers)
    assert any("activations" in sentence for sentence in stays)
    nothing, _ = memory.without([0, 1])
    assert nothing.gaussians is None
    assert nothing.selectors is None


def test_statistics_merge_by_their_own_rules(memory):
    moved = memory.gaussians.moved(fit_drift(torch.eye(16), 2 * torch.eye(16)))
    assert torch.equal(memory.gaussians.merge(moved, (2, 2)).mean, moved.mean)
    both = memory.layers.merge(memory.layers, (3, 1))
    for key, layer in memory.layers.items():
        torch.testing.assert_close(both[key].mean, layer.mean)
        assert both[key].images == 2 * layer.images
