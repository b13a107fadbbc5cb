"""`remix measure`: a network's weights and a folder of images -> a model that can dream."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

from remix.cli import main
from remix.deploy.dream_files import load_dream
from remix.deploy.measuring import map_bytes
from remix.learning import load_model
from remix.networks import load_classifier
from remix.statistics import batchnorm_points, block_input_points


def measure(trained, out):
    main(["measure", str(trained.images), *trained.network, "--out", str(out)])
    return load_model(out)


def test_the_model_has_what_every_strategy_needs(trained):
    model = trained.load()
    memory = model.memory
    backbone = model.classifier.backbone
    for point in batchnorm_points(backbone):
        assert memory.layers[f"{point}:channels"].kinds == ("diagonal", "laplace", "dense")
        assert memory.layers[f"{point}:map"].kinds == ("diagonal", "laplace")
    for point in block_input_points(backbone).values():
        assert memory.layers[f"{point}:channels"].images == 160
    assert memory.gaussians.labels == (0, 1, 2, 3)
    assert [(record.name, record.images) for record in memory.classes] == [(name, 40) for name in trained.names]
    assert model.preprocessing.size == 8
    assert model.options == {"width": 4}


def test_the_order_of_the_head_is_found(trained, tmp_path, capsys):
    model = measure(trained, tmp_path / "model.remix")
    said = capsys.readouterr().out
    assert "do not follow the alphabet" in said
    assert "zero, one, two, three" in said
    assert model.classes == trained.names
    # What a class is called and what its Gaussian describes belong together.
    centre = model.memory.gaussians.mean[trained.names.index("three")]
    assert int(model.classifier.head(centre[None]).argmax()) == trained.names.index("three")


def test_names_that_are_given_count(trained, tmp_path, capsys):
    command = ["measure", str(trained.images), *trained.network]
    names = tmp_path / "names.txt"
    names.write_text("\n".join(trained.names) + "\n")
    main([*command, "--names", str(names), "--out", str(tmp_path / "right.remix")])
    said = capsys.readouterr().out
    assert "WARNING" not in said
    assert "note" not in said
    main([*command, "--names", "one,two,three,zero", "--out", str(tmp_path / "wrong.remix")])
    said = capsys.readouterr().out
    assert "WARNING" in said
    assert "if the outputs meant zero, one, two, three" in said
    assert load_model(tmp_path / "wrong.remix").classes == ("one", "two", "three", "zero")


def test_weights_are_those_of_the_file(trained):
    model = trained.load()
    expected = load_classifier("convnet8", trained.weights, width=4).state_dict()
    found = model.classifier.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_files_that_are_no_images_are_left_out_and_listed(trained, tmp_path, capsys):
    images = tmp_path / "images"
    for name in ("two", "three"):
        (images / name).mkdir(parents=True)
        for i, file in enumerate(sorted((trained.images / name).iterdir())[:5]):
            Image.open(file).save(images / name / f"{i}.png")
    (images / "two" / "broken.png").write_bytes(b"not an image")
    names = ("--names", ",".join(trained.names))
    main(["measure", str(images), *trained.network, *names, "--out", str(tmp_path / "model.remix")])
    assert "broken.png" in capsys.readouterr().out
    model = load_model(tmp_path / "model.remix")
    assert model.memory.gaussians.labels == (2, 3)
    assert model.memory.gaussians.counts == (5, 5)
    with pytest.raises(SystemExit):
        main(["dream", str(tmp_path / "model.remix"), "--classes", "one", "--out", str(tmp_path / "grid.png")])
    assert "no images of 'one' were measured" in capsys.readouterr().err


def test_the_memory_that_maps_take_is_said(trained, tmp_path, capsys):
    out = str(tmp_path / "model.remix")
    main(["measure", str(trained.images), *trained.network, "--views", "map", "--out", out])
    assert "GiB of memory" in capsys.readouterr().out
    # 4 x 8 x 8, then twice 8 x 4 x 4, then twice 16 x 2 x 2; a thousand of each in float32.
    assert map_bytes(trained.load()) == 4000 * (256 + 2 * 128 + 2 * 64)


def test_whole_maps_of_chosen_blocks_are_measured(trained, tmp_path):
    out = tmp_path / "model.remix"
    start = ["measure", str(trained.images), *trained.network, "--views", "map", "--out", str(out), "--overwrite"]
    main([*start, "--maps", "stages", "--transform", "none"])
    layers = [layer for layer in load_model(out).memory.layers.values() if layer.view.name == "map"]
    sizes = [layer.shape[1:] for layer in layers]
    assert len(sizes) == len(set(sizes)) > 1
    assert all(layer.point.side == "output" and layer.normal.basis is None for layer in layers)
    blocks = [layer.point.module for layer in layers]
    main([*start, "--maps", blocks[0], "--transform", "dct"])
    (layer,) = [layer for layer in load_model(out).memory.layers.values() if layer.view.name == "map"]
    assert layer.point.module == blocks[0]
    assert layer.normal.basis is not None


def test_the_statistics_of_one_class_alone(trained, tmp_path):
    words = ["measure", str(trained.images), *trained.network, "--out", str(tmp_path / "two.remix"), "--classes", "two"]
    main([*words, "--views", "map", "--maps", "stages", "--kinds", "laplace-paper"])
    model = load_model(tmp_path / "two.remix")
    images = len(list((trained.images / "two").iterdir()))
    assert model.memory.gaussians.labels == (2,)
    assert {layer.images for layer in model.memory.layers.values()} == {images}
    main(["dream", str(tmp_path / "two.remix"), "--classes", "two", "--strategy", "pyramid", "--prior", "laplace-paper",
          "--form", "nll", "--count", "2", "--steps", "3", "--out", str(tmp_path / "grid.png")])  # fmt: skip
    assert load_dream(tmp_path / "grid.safetensors").about["request"]["settings"]["prior"]["kind"] == "laplace-paper"


def test_what_cannot_be_measured_is_refused_in_a_sentence(trained, tmp_path, refusal):
    out = tmp_path / "model.remix"
    start = ("measure", trained.images, *trained.network, "--out", out)
    other = tmp_path / "other"
    (other / "zero").mkdir(parents=True)
    (other / "tree").mkdir()
    for name in ("zero", "tree"):
        Image.new("L", (8, 8), 90).save(other / name / "1.png")
    names = ("--names", ",".join(trained.names))
    plain = ("measure", trained.images, "--weights", trained.weights, "--out", out, "--backbone")
    for arguments, expected in (
        ((*start, "--kinds", "laplace,sparse"), "--kinds knows laplace, laplace-paper, dense, got 'sparse'"),
        ((*start, "--views", "pixels"), "--views knows channels, map, token-channels, patches, got 'pixels'"),
        ((*start, "--views", "map", "--kinds", "dense"), "of maps only Laplace covariances"),
        ((*start, "--classes", "tow"), "no class 'tow' (did you mean 'two'?)"),
        ((*start, "--maps", "stages"), "--maps goes with --views map"),
        ((*start, "--views", "map", "--maps", "nowhere"), "--maps knows stages and the blocks"),
        ((*start, "--views", "map", "--transform", "fft"), "--transform must be auto, dct or none"),
        ((*start, "--batch", "0"), "--batch must be at least 1"),
        ((*start, "--names", "a,b"), "--names has 2 names, but the head"),
        ((*start, "--size", "16"), "leave size (--size) out"),
        (("measure", tmp_path / "none", *start[2:]), "there is no folder"),
        (
            ("measure", other, *start[2:], *names),
            "the folder 'tree' is not among the --names",
        ),
        ((*plain, "convnet9"), "did you mean 'convnet8'?"),
        (
            ("measure", trained.images, "--weights", trained.weights, "--backbone", "convnet8", "--out", out),
            "does not fit",
        ),
    ):
        assert expected in refusal(*arguments)
    assert not out.exists()
    out.write_text("precious")
    assert "is there already" in refusal(*start)
    assert out.read_text() == "precious"
