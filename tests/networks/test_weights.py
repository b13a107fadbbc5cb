from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from remix.networks import create_backbone, load_classifier, load_weights, read_weights


def published(name: str, **options) -> dict[str, torch.Tensor]:
    """A state with random values everywhere, as someone else's file has it: no BatchNorm counters."""
    generator = torch.Generator().manual_seed(0)
    state = create_backbone(name, **options).state_dict()
    return {
        key: torch.rand(value.shape, generator=generator)
        for key, value in state.items()
        if not key.endswith("num_batches_tracked")
    }


def test_half_precision_files_load_into_the_networks_dtype(tmp_path):
    state = published("resnet18", width=2)
    save_file({key: value.half() for key, value in state.items()}, tmp_path / "w.safetensors")
    net = create_backbone("resnet18", width=2)
    assert load_weights(net, tmp_path / "w.safetensors") is None
    for key, value in state.items():
        assert net.state_dict()[key].dtype == torch.float32
        assert torch.equal(net.state_dict()[key], value.half().float())


def test_the_head_comes_back_beside_the_backbone(tmp_path):
    head = {"fc.weight": torch.randn(7, 16), "fc.bias": torch.randn(7)}
    save_file({**published("resnet18", width=2), **head}, tmp_path / "w.safetensors")
    model = load_classifier("resnet18", tmp_path / "w.safetensors", width=2)
    assert model.head.task_sizes == (7,)
    torch.testing.assert_close(model.head(torch.eye(16)), head["fc.weight"].T + head["fc.bias"])


def test_cifar_files_with_the_usual_keys_are_translated(tmp_path):
    own = published("resnet20", width=2)
    names = {"stem.conv": "conv1", "stem.bn": "bn1", "stage_4.0": "layer3.2"}
    names |= {f"stage_{k}.{i}": f"layer{k}.{i}" for k in (1, 2, 3) for i in range(3)}
    usual = {}
    for key, value in own.items():
        prefix = next(prefix for prefix in names if key.startswith(prefix + "."))
        usual["module." + names[prefix] + key.removeprefix(prefix)] = value
    usual["module.linear.weight"] = torch.randn(10, 8)
    save_file(usual, tmp_path / "w.safetensors")
    net = create_backbone("resnet20", width=2)
    head = load_weights(net, tmp_path / "w.safetensors")
    assert all(torch.equal(net.state_dict()[key], value) for key, value in own.items())
    assert torch.equal(head.classifier(0).weight, usual["module.linear.weight"])


def test_cifar_files_with_the_usual_keys_are_of_the_usual_network(tmp_path):
    state = published("resnet20", width=2)
    usual = {
        key.replace("stem.conv", "conv1")
        .replace("stem.bn", "bn1")
        .replace("stage_4.0", "layer3.2")
        .replace("stage_", "layer"): value
        for key, value in state.items()
    }
    usual = {f"module.{key}": value for key, value in usual.items()}
    save_file({**usual, "linear.weight": torch.randn(10, 8)}, tmp_path / "w.safetensors")
    block = load_classifier("resnet20", tmp_path / "w.safetensors", width=2).backbone.stage_2[0]
    assert (block.final_relu, block.zero_channels) == (True, (1, 1))
    block = load_classifier("resnet20", tmp_path / "w.safetensors", width=2, final_relu=False).backbone.stage_2[0]
    assert not block.final_relu


def test_keys_and_shapes_that_do_not_fit_are_all_named_and_nothing_is_loaded(tmp_path):
    state = published("resnet18", width=2)
    del state["bn1.bias"]
    state["layer9.weight"] = torch.zeros(1)
    state["conv1.weight"] = torch.zeros(3, 3)
    save_file(state, tmp_path / "w.safetensors")
    net = create_backbone("resnet18", width=2)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    with pytest.raises(ValueError, match="does not fit ImageNetResNet") as caught:
        load_weights(net, tmp_path / "w.safetensors")
    for part in (
        "missing: bn1.bias",
        "unexpected: layer9.weight",
        "of another shape: conv1.weight is (3, 3) in the file, (2, 3, 7, 7) in the network",
    ):
        assert part in str(caught.value)
    assert all(torch.equal(net.state_dict()[key], value) for key, value in before.items())


def test_the_wrong_network_gets_a_short_message(tmp_path):
    save_file(published("resnet18", width=2), tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"missing: .*\(\d+ in all\); unexpected: ") as caught:
        load_weights(create_backbone("convnet8"), tmp_path / "w.safetensors")
    assert len(str(caught.value)) < 1000


def test_a_head_of_another_length_is_refused(tmp_path):
    save_file({**published("resnet18", width=2), "fc.weight": torch.zeros(10, 512)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"weights \(10, 512\), expected \(classes, 16\)"):
        load_weights(create_backbone("resnet18", width=2), tmp_path / "w.safetensors")


def test_a_file_without_head_is_no_classifier(tmp_path):
    save_file(published("resnet18", width=2), tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="holds no head"):
        load_classifier("resnet18", tmp_path / "w.safetensors", width=2)


def test_pickles_and_missing_files_are_refused(tmp_path):
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"not a readable safetensors file .* Pickled checkpoints .* are not read"):
        read_weights(tmp_path / "w.pth")
    with pytest.raises(FileNotFoundError, match="no weights file"):
        read_weights(tmp_path / "none.safetensors")
