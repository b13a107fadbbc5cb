"""What a run is: data, network, method and its settings. Presets by name, files of one's own, and ``key=value`` words.

A configuration holds everything that decides the result, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from remix.data import Augment
from remix.experiments.own_data import BASE, folder_data, is_folder
from remix.experiments.text_config import TextConfig
from remix.learning.method import Method
from remix.methods import list_methods, method_class
from remix.networks import backbone_options, create_head
from remix.support.documents import DocumentError, parse_yaml, read_yaml
from remix.support.files import why_unreadable
from remix.support.settings import SettingError, merged, overlay, plain, set_path, unknown_name
from remix.support.text import did_you_mean, printable, shown

__all__ = [
    "DEFAULT_METHOD",
    "DataConfig",
    "NetworkConfig",
    "RunConfig",
    "as_preset",
    "build_config",
    "differences",
    "list_presets",
    "parse_assignments",
    "read_preset",
    "resolve",
]

DEFAULT_METHOD = "lda"  # of a run that names none: the best at every scale that was measured (docs/results.md)

Accelerator = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["32", "bf16-mixed"]
_DEEPEST = 20  # dots in the name of a setting


@dataclass(frozen=True)
class DataConfig:
    """Which classes arrive when.

    Attributes:
        name: of the data set, or the path of an image folder.
        tasks: how many.
        order: of the classes; see `remix.data.class_order`.
        first: number of classes of the first task, if it differs.
        classes: use only so many, the first of the order.
        images: use only so many training images of each class, the first ones.
        test_images: the same of test images.
        validation: this fraction of the training images stands in for the test images, for choosing settings; 0 to
            test on the test images.
        validation_seed: decides which ones. It is not ``seed``: runs of several seeds are tested on the same images.
        options: of the reader, such as ``{size: 32}`` for the images of a folder.

    """

    name: str = "digits"
    tasks: int = 5
    order: str = "natural"
    first: int | None = None
    classes: int | None = None
    images: int | None = None
    test_images: int | None = None
    validation: float = 0.0
    validation_seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("images", "test_images"):
            if (count := getattr(self, name)) is not None and count < 1:
                raise ValueError(f"{name} must be at least 1, or null for all, got {count}")
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation must be a fraction from 0 to below 1, got {self.validation}")
        if not 0 <= self.validation_seed < 2**63:
            raise ValueError(f"validation_seed must be from 0 to 2^63 - 1, got {self.validation_seed}")

    @property
    def tested_on(self) -> str:
        """The images that accuracies are of, in words."""
        if not self.validation:
            return "test"
        drawn = f" (validation_seed {self.validation_seed})" if self.validation_seed else ""
        return f"{self.validation:.0%} of the training images{drawn}"


@dataclass(frozen=True)
class NetworkConfig:
    """The network.

    Attributes:
        backbone: by name.
        options: of the backbone.
        weights: safetensors file to begin with, instead of weights that the seed draws; a head in it is not used.
        head: linear, cosine or text.
        bias: whether the classifiers of a linear head have a bias.
        text: of a text head.

    """

    backbone: str = "convnet8"
    options: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None
    head: str = "linear"
    bias: bool = False
    text: TextConfig = TextConfig()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        known = [name for name in backbone_options(self.backbone) if name != "generator"]
        for name in self.options:
            if name not in known:
                raise unknown_name(name, known, "network.options")
        create_head(self.head, 1)  # raises for an unknown one
        if self.bias and self.head != "linear":
            raise ValueError(f"a head of the kind {self.head!r} has no bias: leave network.bias out")


@dataclass(frozen=True)
class RunConfig:
    """A run.

    Attributes:
        data: which classes arrive when.
        network: that learns them.
        augment: of real images in training; None for none.
        batch_size: real images per step, and as many pseudo-samples.
        method: its name.
        settings: of the method.
        seed: of everything random.
        accelerator: which kind of device.
        devices: how many processes.
        precision: of the network's passes.

    """

    data: DataConfig
    network: NetworkConfig
    augment: Augment | None
    batch_size: int
    method: str
    settings: Method
    seed: int = 0
    accelerator: Accelerator = "cpu"
    devices: int = 1
    precision: Precision = "32"

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.devices < 1:
            raise ValueError(f"batch_size and devices must be at least 1, got {self.batch_size} and {self.devices}")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed must be from 0 to 2^63 - 1, got {self.seed}")

    def to_plain(self) -> dict[str, Any]:
        """Nested mappings of primitives, every setting spelled out; `build_config` makes the same run of them."""
        return plain(self)


def resolve(
    preset: str,
    *,
    method: str | None = None,
    tasks: int | None = None,
    seed: int | None = None,
    accelerator: str | None = None,
    devices: int | None = None,
    precision: str | None = None,
    validation: bool = False,
    assignments: Sequence[str] = (),
) -> RunConfig:
    """The run that is asked for: the preset, then what is given here, then the assignments.

    Args:
        preset: name of a preset, a YAML file, or a folder of images.
        method, tasks, seed, accelerator, devices, precision: instead of the preset's.
        validation: whether a tenth of the training images stands in for the test images.
        assignments: words ``key=value``, as after ``--set``.

    Raises:
        SettingError: in one sentence.

    """
    chosen: dict[str, Any] = {
        "method": method,
        "data.tasks": tasks,
        "seed": seed,
        "accelerator": accelerator,
        "devices": devices,
        "precision": precision,
        "data.validation": 0.1 if validation else None,
    }
    given = {key: value for key, value in chosen.items() if value is not None} | parse_assignments(assignments)
    return build_config(read_preset(preset, given.get("data.tasks")), assignments=given)


def as_preset(values: Mapping[str, Any], config: RunConfig) -> dict[str, Any]:
    """A preset for the run that was made of the preset ``values``, which other methods can be run with as well."""
    found = config.to_plain()
    by_method = dict(values.get("methods", {})) | {config.method: found.pop("settings")}
    return {"about": values.get("about", ""), **found, "methods": by_method}


def build_config(values: Mapping[str, Any], *, assignments: Mapping[str, Any] | None = None) -> RunConfig:
    """A run of a preset, a file or a saved configuration.

    Args:
        values: of the fields of `RunConfig`; besides, ``methods`` may hold settings by method, of which those of the
            chosen method count, ``settings`` going before them.
        assignments: by dotted path; they go before everything.

    Raises:
        SettingError: in one sentence.

    """
    given = {key: value for key, value in values.items() if key != "about"}
    by_method = given.pop("methods", {})
    if not isinstance(by_method, Mapping):
        raise SettingError(f"methods must map names of methods to settings, got {shown(by_method)}")
    for name in by_method:
        if name not in list_methods():
            raise unknown_name(str(name), list(list_methods()), "methods")
    changes: dict[str, Any] = {}
    for path, value in (assignments or {}).items():
        set_path(changes, path, value)
    name = changes.get("method", given.get("method", DEFAULT_METHOD))
    try:
        kind = method_class(str(name))
    except ValueError as error:
        raise SettingError(str(error)) from error
    if given.get("settings") and given.get("method", name) != name:
        raise SettingError(
            f"these settings are of method {shown(given['method'])} and mean nothing to {shown(name)}: "
            "leave --method out, or begin with a preset"
        )
    layers = [by_method.get(str(name)) or {}, given.pop("settings", {}), changes.pop("settings", {})]
    try:
        settings = _method_settings(kind, layers)
    except SettingError as error:
        why = "" if "method" in {*changes, *given} else f"; no method was named, so it is {name}"
        raise SettingError(f"{error}{why}") from None
    start = RunConfig(DataConfig(), NetworkConfig(), None, 128, str(name), settings)
    try:
        for layer in (given, changes):
            start = overlay(_without_stale_options(start, layer), layer)
    except SettingError as error:
        raise _with_place(error, changes, start) from None
    return replace(start, settings=settings)


def _method_settings(kind: type[Method], layers: Sequence[Any]) -> Method:
    """Layers of settings, the last ones first; ``setting`` names what they lie over (see `Method.named`).

    What a layer has under the name of such a setting counts with that one only.
    """
    known = [layer for layer in layers if isinstance(layer, Mapping)]
    setting = next((layer["setting"] for layer in reversed(known) if kind.named and "setting" in layer), None)
    try:
        settings = kind() if setting is None else kind.of(str(setting))
    except ValueError as error:
        raise SettingError(f"settings.setting: {error}") from error
    chosen = getattr(settings, "setting", None)
    for layer in layers:
        if isinstance(layer, Mapping):
            own = layer.get(chosen) or {} if chosen in kind.named else {}
            apart = {*kind.named, "setting"} if kind.named else set()
            everything = {key: value for key, value in layer.items() if key not in apart}
            layer = {kind.renamed.get(key, key): value for key, value in merged(everything, own).items()}
        settings = overlay(settings, layer, "settings")
    return settings


def _without_stale_options(config: RunConfig, layer: Mapping[str, Any]) -> RunConfig:
    """Options belong to a backbone and to a data set: another one begins without."""
    for part, key in (("network", "backbone"), ("data", "name")):
        before, now = getattr(config, part), layer.get(part)
        if isinstance(now, Mapping) and now.get(key, getattr(before, key)) != getattr(before, key):
            config = replace(config, **{part: replace(before, options={})})
    return config


def parse_assignments(texts: Sequence[str]) -> dict[str, Any]:
    """``key=value`` words as a mapping; values are YAML, so numbers, lists and true/false mean what they look like.

    Raises:
        SettingError: for a word without "=", or a value that is not YAML.

    """
    found: dict[str, Any] = {}
    for text in texts:
        path, sign, value = text.partition("=")
        if not sign or not path.strip(".") or path.count(".") > _DEEPEST:
            raise SettingError(f"--set takes key=value, such as data.tasks=2, got {shown(text)}")
        try:
            found[path.strip()] = parse_yaml(value)
        except DocumentError as error:
            raise SettingError(f"--set {shown(path)}: {shown(value)} is not a value, it is {error}") from error
    return found


def differences(one: Mapping[str, Any], other: Mapping[str, Any], at: str = "") -> list[str]:
    """Where two plain configurations differ, as "path: this, that"."""
    found = []
    for key in sorted({*one, *other}, key=str):
        path = f"{at}.{key}" if at else str(key)
        mine, theirs = one.get(key), other.get(key)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            found += differences(mine, theirs, path)
        elif mine != theirs or (key in one) != (key in other):
            found.append(f"{printable(path[:80])}: {shown(mine)}, now {shown(theirs)}")
    return found


def _with_place(error: SettingError, changes: Mapping[str, Any], config: RunConfig) -> SettingError:
    """If what was typed exists somewhere else, say where: ``network.lr`` is ``settings.network.lr``."""
    known = _paths(config.to_plain())
    for path in _paths(changes):
        last = path.rpartition(".")[2]
        places = [other for other in known if other.endswith(f".{path}")] or [
            other for other in known if other.rpartition(".")[2] == last
        ]
        if path not in known and places and f"{last!r}" in str(error) + f"{path.partition('.')[0]!r}":
            return SettingError(f"there is no setting {shown(path)}; did you mean {places[0]!r}?")
    return error


def _paths(values: Mapping[str, Any], at: str = "") -> list[str]:
    found = []
    for key, value in values.items():
        path = f"{at}.{key}" if at else str(key)
        found += _paths(value, path) if isinstance(value, Mapping) and value else [path]
    return found


def list_presets() -> dict[str, str]:
    """Every preset with its one line, smallest first."""
    return {name: _read_preset(name)["about"] for name in _presets()}


def read_preset(name: str, tasks: int | None = None) -> dict[str, Any]:
    """The content of a preset, of a YAML file given by its path, or what is chosen for a folder of images.

    With ``base: NAME`` a file says only what differs from the preset of that name.

    Args:
        name: of a preset, which goes before a folder of the same name, or a path.
        tasks: into which a folder is divided.

    Raises:
        SettingError: if there is none, or it is not a mapping in YAML.
        DataError: for a folder that cannot be learned from.

    """
    if name not in _presets() and is_folder(name):
        return folder_data(name).values(read_preset(BASE), tasks)
    values = _read_preset(name)
    if "base" not in values:
        return values
    base = _read_preset(str(values.pop("base")))
    if "base" in base:
        raise SettingError(f"the base of {printable(name)} has a base itself; name the last one")
    return merged(base, values)


def _read_preset(name: str) -> dict[str, Any]:
    path, presets = Path(name), _presets()
    if path.suffix in (".yaml", ".yml"):
        try:
            values = read_yaml(path)
        except (OSError, DocumentError) as error:
            raise SettingError(why_unreadable(path, error)) from error
    elif name in presets:
        values = parse_yaml(presets[name].read_text())
    else:
        known = f"{', '.join(presets)}; or give a file NAME.yaml, or a folder of images"
        raise SettingError(f"there is no preset {shown(name)}{did_you_mean(name, presets)}; there are: {known}")
    if not isinstance(values, Mapping):
        raise SettingError(f"{printable(name)} must hold settings as key: value")
    return dict(values)


def _presets() -> dict[str, Any]:
    """The files of those that come with REMIX, small runs first, then by data set and number of tasks."""

    def rank(name: str) -> tuple[int, int, str]:
        families = ["digits", "fashion", "cifar100-mini", "cifar100", "tiny"]
        place = next((i for i, family in enumerate(families) if name.startswith(family)), len(families))
        tasks = name.rpartition("-")[2]
        return place, int(tasks) if tasks.isdigit() else 0, name

    files = resources.files("remix").joinpath("presets").iterdir()
    found = {file.name.removesuffix(".yaml"): file for file in files if file.name.endswith(".yaml")}
    return {name: found[name] for name in sorted(found, key=rank)}
