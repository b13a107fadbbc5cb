"""A network that somebody trained elsewhere -> a model: of a file of weights, or one that can learn more classes."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from remix.data import DataError, ImageDataset
from remix.data.intake import take_in
from remix.deploy.dream_options import DreamOptions
from remix.deploy.dream_plan import make_plan
from remix.deploy.recipe import LearnSettings, auto_method, frozen_blocks, make_recipe
from remix.deploy.step import new_engine, renamed
from remix.learning import LearnStep, Method, Model, Monitor
from remix.methods import method_class
from remix.networks import (
    Backbone,
    Classifier,
    Head,
    LinearHead,
    as_backbone,
    create_backbone,
    open_network,
    preprocessing_for,
)
from remix.networks.adapt import BlockPath
from remix.networks.probe import evaluating, probe_images
from remix.statistics import ClassSums, batchnorm_statistics
from remix.support.global_random import undisturbed

__all__ = ["adopted_model", "dreamed_data", "find_head", "model_of_weights"]

_DREAMS, _FEWEST, _MOST = 200, 8, 32  # in all, and per class
_DREAM_STEPS = 100


def model_of_weights(
    weights: str | Path | None,
    backbone: str,
    options: Mapping[str, Any] | None = None,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    names: Sequence[str] | None = None,
) -> Model:
    """Weights in a safetensors file as a model without statistics.

    Args:
        weights: the file, with the head; None for a backbone that has its own.
        backbone: name of the backbone, also ``hf:PATH_OR_NAME``.
        options: of the backbone.
        size: side of the images in pixels; by default the backbone's.
        mean, std: of each channel; by default those of ImageNet for colour, 0 and 1 for grey.
        names: of the head's outputs in their order; by default what the weights tell, or numbers.

    Raises:
        ValueError: if the file does not fit the backbone, or the names do not fit the head.
        FileNotFoundError: if there is no such file.

    """
    found = open_network(backbone, options, weights, size, mean, std)
    source = weights or backbone
    if found.head is None:
        raise ValueError(f"{source} holds no head (fc, linear or head), so it names no classes")
    outputs = found.head.num_classes
    classes = found.names or tuple(map(str, range(outputs))) if names is None else tuple(names)
    if len(classes) != outputs:
        raise ValueError(f"--names has {len(classes)} names, but the head in {source} has {outputs} outputs")
    classifier = Classifier(found.backbone, found.head).eval()
    return Model(classifier, found.name, found.options, classes, found.preprocessing, None, found.provenance)


@undisturbed()
def adopted_model(
    network: nn.Module,
    data: Any,
    classes: tuple[str, ...],
    *,
    blocks: Sequence[BlockPath] | None,
    input_shape: tuple[int, int, int] | None,
    head: str | None,
    name: str | None,
    options: Mapping[str, Any],
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    method: str,
    settings: LearnSettings,
    monitor: Monitor | None = None,
) -> Model:
    """A model of a trained network, with what a method remembers of its classes.

    Arguments and errors as in `remix.Learner.adopt`.
    """
    network = copy.deepcopy(network).cpu().eval()
    if isinstance(network, Classifier):
        backbone, top = network.backbone, network.head
    else:
        backbone = as_backbone(network, blocks=blocks, input_shape=input_shape)
        top = find_head(network, backbone, head)
    if len(classes) != top.num_classes:
        raise ValueError(f"the network's head has {top.num_classes} outputs, but classes has {len(classes)} names")
    preprocessing = preprocessing_for(backbone, mean, std)
    notes = []
    if name is None:
        notes.append(
            f"to save this learner, register a function that builds its backbone (remix.networks.register_backbone) "
            f"and give adopt(..., backbone=NAME); without that {type(network).__name__} lives in memory only"
        )
    else:
        _check_rebuilt(create_backbone(name, **options), backbone, name)
    method, why = auto_method(settings, top.kind) if method == "auto" else (method, "")
    notes += [why] * bool(why)
    exact = method_class(method).exact
    classifier = Classifier(backbone, top).eval()
    model = Model(classifier, name or type(network).__name__, dict(options), classes, preprocessing)
    measured: ImageDataset | None = None
    held: ImageDataset | None = None
    if data is not None:
        whole = take_in(data, preprocessing, classes=classes, holdout=settings.held_out(exact), seed=settings.seed)
        if foreign := [one for one in whole.classes if one not in classes]:
            raise DataError(
                f"the data have a class {foreign[0]!r} that is not among the network's: {', '.join(classes)}"
            )
        if missing := [one for one in classes if one not in whole.classes]:
            raise DataError(
                f"the data have no image of {', '.join(missing[:5])}: some of every class are needed, or data=None"
            )
        measured, held = (renamed(part, classes) for part in (whole.train, whole.held))
    elif exact:
        raise ValueError(
            f"the method {method} solves its head from images: give some of every class (data), or another method"
        )
    elif method_class(method).remember is not Method.remember:
        if not batchnorm_statistics(backbone):
            raise ValueError(
                "the network has no BatchNorm layers, from whose statistics images of its classes could be dreamed: "
                "give some of every class (data), or a method that needs none, such as lwf"
            )
        measured = dreamed_data(model, settings.seed, monitor)
        notes.append(
            f"no data: statistics are those of the BatchNorm layers and of {len(measured)} images dreamed from them; "
            "priors are diagonal"
        )
    return _measured(model, measured, held, method, notes, real=data is not None, settings=settings, monitor=monitor)


def find_head(network: nn.Module, backbone: Backbone, path: str | None) -> Head:
    """The linear layer that follows the pooled features, as a head that can grow.

    Raises:
        ValueError: if there is none, or what the network computes is not that layer of its pooled features.

    """
    linear = {one: m for one, m in network.named_modules() if isinstance(m, nn.Linear)}
    fitting = [one for one, module in linear.items() if module.in_features == backbone.feature_dim]
    if path is None and not fitting:
        raise ValueError(
            f"no linear layer takes the {backbone.feature_dim} pooled features: name the head with head=PATH"
        )
    chosen = path if path is not None else fitting[-1]
    if chosen not in linear:
        raise ValueError(f"head={chosen!r} is no linear layer; there are: {', '.join(linear) or 'none'}")
    layer = linear[chosen]
    if layer.in_features != backbone.feature_dim:
        raise ValueError(f"head={chosen!r} takes {layer.in_features} features, the blocks give {backbone.feature_dim}")
    head = LinearHead(backbone.feature_dim, [layer.out_features], bias=layer.bias is not None)
    head.classifier(0).load_state_dict(layer.state_dict())
    images = probe_images(network, backbone.input_shape)
    with evaluating(network):
        said, ours = network(images), head(backbone.pooled(images))
    if (
        not isinstance(said, torch.Tensor)
        or said.shape != ours.shape
        or not torch.allclose(said, ours, atol=1e-3, rtol=1e-3)
    ):
        raise ValueError(
            f"the network's output is not the layer {chosen!r} of the averaged output of its last block: "
            "what lies between must be part of a block"
        )
    return head


def dreamed_data(model: Model, seed: int = 0, monitor: Monitor | None = None) -> ImageDataset:
    """Images of a model's classes from its labels and BatchNorm statistics alone, with a diagonal prior.

    Raises:
        ValueError: if the network has no BatchNorm layers with running statistics.

    """
    each = max(_FEWEST, min(_MOST, _DREAMS // len(model.classes)))
    options = DreamOptions(model.classes, each, prior="diagonal", steps=_DREAM_STEPS, seed=seed)
    return make_plan(model, options).images(monitor.inversion if monitor else None)


def _measured(
    model: Model,
    data: ImageDataset | None,
    held: ImageDataset | None,
    method: str,
    notes: Sequence[str],
    *,
    real: bool,
    settings: LearnSettings,
    monitor: Monitor | None,
) -> Model:
    """The model with what the method remembers of data, as a first step would leave it."""
    backbone, exact = model.classifier.backbone, method_class(method).exact
    counts = dict.fromkeys(model.classes, 1) if data is None else data.counts()  # 1: no statistics that it would weigh
    frozen = frozen_blocks(settings.freeze, backbone, True, sum(counts.values()))
    frozen = len(backbone.blocks()) if exact and settings.freeze is None else frozen
    _, height, _ = backbone.input_shape
    recipe = make_recipe(
        method, settings, trained=True, frozen=frozen, channels=backbone.input_shape[0], size=height,
        images=sum(counts.values()), covariances=real,
    )  # fmt: skip
    engine = new_engine(model.classifier, model.preprocessing, recipe, frozen, None, settings.seed, monitor=monitor)
    engine.memory.record_task([(one, counts[one]) for one in model.classes])
    if data is not None:
        engine.method.remember(engine, data)
    accuracies = dict(engine.estimates)
    if held is not None and len(held):
        right, count = engine.evaluate(held)
        accuracies["held-out images"] = 100 * right / count
    images = tuple(counts.values()) if real else (0,) * len(counts)
    sums = engine.memory.get(ClassSums.name)
    if sums is not None:
        method = sums.method
        engine.notes.append(f"the head that {method} solved from the images stands in for the network's own")
    step = LearnStep(model.classes, images, method, accuracies, name="adopted", notes=(*notes, *engine.notes))
    return Model(
        model.classifier, model.backbone, model.options, model.classes, model.preprocessing, engine.memory,
        {"adopted": model.backbone}, (step,), frozen,
    )  # fmt: skip


def _check_rebuilt(built: Backbone, adopted: Backbone, name: str) -> None:
    shapes = [{k: tuple(v.shape) for k, v in one.state_dict().items()} for one in (built, adopted)]
    if shapes[0] != shapes[1]:
        different = sorted({*shapes[0].items()} ^ {*shapes[1].items()})
        raise ValueError(
            f"create_backbone({name!r}) builds another network than the one adopted: {different[0][0]} differs"
        )
