"""Folders of the `transformers` library as backbones in blocks."""

import json
import sys

import pytest
import torch
from tiny_hf import VISION_KINDS, features, make, save

from remix.experiments.config import resolve
from remix.networks import Hooks, check_backbone, create_backbone, open_network
from remix.networks.hf_folder import MissingPackageError, open_image_model
from remix.support.settings import SettingError


@pytest.fixture(params=VISION_KINDS, scope="module")
def case(request, tmp_path_factory):
    model = make(request.param)
    folder = save(model, tmp_path_factory.mktemp("hf") / request.param)
    return model, open_network(f"hf:{folder}")


@pytest.fixture
def vit(tmp_path):
    return save(make("vit"), tmp_path / "vit")


def pictures(side=32, count=2, width=None):
    return torch.randn(count, 3, side, width or side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("size", [(32, 32), (48, 48), (16, 40)])
def test_the_pooled_feature_is_that_of_the_library(case, size):
    model, opened = case
    images = pictures(*size[:1], width=size[1])
    torch.testing.assert_close(opened.backbone.pooled(images), features(model, images), atol=1e-5, rtol=0)


def test_any_cut_in_two_gives_the_same_bits(case):
    backbone = case[1].backbone
    images = pictures()
    whole = backbone.features(images)
    for cut in range(len(backbone.blocks()) + 1):
        assert torch.equal(backbone.features(backbone.features(images, 0, cut), cut), whole)


def test_blocks_are_patches_tokens_layers_and_the_last_norm(case):
    backbone = case[1].backbone
    check_backbone(backbone)
    assert [block.name for block in backbone.blocks()] == [
        "patches", "pre", "layers.0", "layers.1", "layers.2", "post",
    ]  # fmt: skip
    images = pictures()
    assert backbone.features(images, 0, 1).shape == (2, 16, 4, 4)
    assert backbone.features(images, 0, 2).shape == (2, backbone.kind.tokens + 16, 16)
    assert backbone.pooled(images).shape == (2, backbone.feature_dim)


def test_block_inputs_and_those_of_attention_and_mlp_are_watched_by_token_position(case):
    backbone = case[1].backbone
    assert not backbone.has_batchnorm
    places = backbone.watched()
    assert len(places) == 5 + 2 * 3
    assert [view.name for _, view in places] == ["channels"] + ["token-positions"] * 10
    with Hooks(backbone, [point for point, _ in places]) as hooks:
        backbone.features(pictures())
    assert {hooks[point].shape[1:] for point, _ in places[1:]} == {(backbone.kind.tokens + 16, 16)}
    assert [str(point) for point, _ in backbone.watched(4)][:2] == ["layers.2:input", "post:input"]
    assert len(backbone.watched(4)) == 4


def test_a_network_rebuilt_from_its_options_takes_its_weights(case):
    opened = case[1]
    rebuilt = create_backbone(opened.name, **opened.options).eval()
    rebuilt.load_state_dict(opened.backbone.state_dict())
    assert torch.equal(rebuilt.pooled(pictures()), opened.backbone.pooled(pictures()))


def test_the_classifier_of_the_folder_is_the_head_and_names_its_outputs(tmp_path):
    model = make("vit")
    model.config.id2label = {0: "cat", 1: "crane", 2: "dog", 3: "crane"}
    opened = open_network(f"hf:{save(model, tmp_path)}")
    with torch.no_grad():
        said = model(pixel_values=pictures()).logits
        ours = opened.head(opened.backbone.pooled(pictures()))
    torch.testing.assert_close(ours, said, atol=1e-5, rtol=0)
    assert opened.names == ("cat", "crane 1", "dog", "crane 3")
    assert open_network(f"hf:{save(model.vit, tmp_path / 'bare')}").head is None


def test_images_are_prepared_as_the_folder_says(tmp_path):
    processor = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "resample": 2}
    folder = save(make("vit"), tmp_path, **processor, size={"shortest_edge": 50}, crop_size={"height": 48, "width": 48})
    found = open_network(f"hf:{folder}").preprocessing
    assert (found.size, found.mean, found.std, found.resample) == (48, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "bilinear")
    assert open_network(f"hf:{folder}", size=16, mean=(0.5,) * 3).preprocessing.mean == (0.5,) * 3


def test_without_a_processor_images_are_prepared_as_usual_for_the_kind(case):
    model, opened = case
    mean = {"vit": 0.5, "deit": 0.485, "dinov2": 0.485, "clip": 0.48145466}[model.config.model_type]
    assert (opened.preprocessing.size, opened.preprocessing.mean[0]) == (32, mean)


def test_a_size_that_patches_do_not_fit_into_is_refused(vit):
    with pytest.raises(
        ValueError, match=r"images of 30 x 30 pixels cannot be cut into patches of 8 x 8: .* such as 32"
    ):
        open_network(f"hf:{vit}", size=30)
    with pytest.raises(ValueError, match="images of 33 x 32 pixels cannot be cut"):
        open_network(f"hf:{vit}").backbone.features(pictures(33, width=32))


def test_what_is_no_such_folder_is_refused_in_one_sentence(tmp_path, vit):
    with pytest.raises(ValueError, match="hf: is followed by a transformers folder"):
        open_network("hf:")
    with pytest.raises(FileNotFoundError, match=r"there is no folder '\./nowhere'"):
        open_network("hf:./nowhere")
    with pytest.raises(ValueError, match=r"it has no config\.json"):
        open_network(f"hf:{tmp_path}")
    (vit / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ValueError, match="a model of the kind 'bert'; those that can be used are vit, deit"):
        open_network(f"hf:{vit}")


def test_a_name_that_the_hub_does_not_give_is_refused(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="nobody/nothing is no folder here and no model of the hub that can be read: "):
        open_network("hf:nobody/nothing")


def test_pickled_weights_and_none_at_all_are_refused(vit):
    (vit / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"has no weights: model\.safetensors is missing"):
        open_network(f"hf:{vit}")
    (vit / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch /tmp/never'\ntR.")
    with pytest.raises(ValueError, match="has pickled weights only, and reading those can run code"):
        open_network(f"hf:{vit}")


def test_weights_that_do_not_fit_the_config_are_refused(vit):
    told = json.loads((vit / "config.json").read_text())
    (vit / "config.json").write_text(json.dumps({**told, "num_hidden_layers": 4}))
    with pytest.raises(ValueError, match=r"do not fit its config.json: .* is missing"):
        open_network(f"hf:{vit}")
    (vit / "config.json").write_text(json.dumps({**told, "hidden_size": 32}))
    with pytest.raises(ValueError, match="they have other shapes"):
        open_network(f"hf:{vit}")


def test_a_damaged_file_of_weights_is_refused(vit):
    (vit / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ValueError, match=r"the weights of .* cannot be used: "):
        open_network(f"hf:{vit}")


def test_half_precision_in_the_file_is_single_precision_on_the_processor(tmp_path):
    model = make("vit")
    found = open_image_model(str(save(model.half(), tmp_path)))
    assert {parameter.dtype for parameter in found.backbone.parameters()} == {torch.float32}
    with pytest.raises(SettingError, match="precision must be one of 32, bf16-mixed"):
        resolve("digits", precision="16-mixed")


def test_weights_and_unknown_options_beside_a_folder_are_refused(vit):
    with pytest.raises(ValueError, match="has its own weights"):
        open_network(f"hf:{vit}", weights="more.safetensors")
    with pytest.raises(ValueError, match="has no option 'width'; it takes: input_shape, view, adapter"):
        open_network(f"hf:{vit}", {"width": 8})


def test_a_folder_with_adapters_begins_as_it_was(vit):
    plain, adapted = (open_network(f"hf:{vit}", options) for options in ({}, {"adapter": "moe"}))
    assert torch.equal(adapted.backbone.pooled(pictures()), plain.backbone.pooled(pictures()))
    assert adapted.options["adapter"] == "moe"
    again = open_network(f"hf:{vit}", {"adapter": "moe"}).backbone
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), adapted.backbone.parameters(), strict=True))


def test_another_view_of_tokens_can_be_asked_for(vit):
    backbone = open_network(f"hf:{vit}", {"view": "token-channels"}).backbone
    assert {view.name for _, view in backbone.watched(2)} == {"token-channels"}


@pytest.mark.parametrize(
    "config",
    ["{", '{"model_type": "bert"}', '{"model_type": "vit", "num_hidden_layers": 100000}',
     '{"model_type": "vit", "auto_map": 1}', '{"model_type": "vit", "hidden_act": "no such"}'],
)  # fmt: skip
def test_a_config_of_elsewhere_is_checked(config):
    with pytest.raises(ValueError, match=r"transformer|ViT"):
        create_backbone("transformer", config=config)


def test_without_the_library_one_sentence_says_what_to_install(vit, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "transformers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_NoTransformers(), *sys.meta_path])
    with pytest.raises(MissingPackageError, match=r"pip install 'remix-dfcil\[vit\]'"):
        open_network(f"hf:{vit}")


class _NoTransformers:
    def find_spec(self, name, *_):
        if name.split(".")[0] == "transformers":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
