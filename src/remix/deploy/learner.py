"""`remix.Learner`: an image classifier that learns new classes without the data of the old ones, in a few lines."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from remix.data import ImageDataset, Preprocessing, Skipped
from remix.data.intake import Intake, take_in
from remix.deploy.adoption import adopted_model
from remix.deploy.advice import untrained
from remix.deploy.classes import back_to, change_classes
from remix.deploy.dream_options import DreamOptions
from remix.deploy.dream_plan import make_plan
from remix.deploy.joint import check_old_images, train_jointly
from remix.deploy.learning_monitor import dream_bar, learning_bar
from remix.deploy.recipe import LearnSettings, auto_method, check_step_method, step_methods, usual_size
from remix.deploy.step import exact_step, learn_step, opened
from remix.learning import LearnStep, Model, Monitor, Team, load_model, save_model
from remix.methods import create_method
from remix.networks import create_head, open_module, open_network
from remix.networks.adapt import BlockPath

if TYPE_CHECKING:
    from remix.deploy.evaluation import Evaluation
    from remix.deploy.export import Exported
    from remix.deploy.prediction import Predictions

__all__ = ["Learner", "load"]


class Learner:
    """A classifier that learns step by step.

    What is done to images (size, channels, normalisation) is settled once, stored with the model and applied the same
    way in `predict`. After a step nothing of its images is kept, only statistics.

    Args:
        backbone: name of a network (see ``remix backbones``), or an ``nn.Module`` that is one; any other module joins
            with ``blocks`` and ``input_shape``.
        method: auto, which is an exact head (lda or ranpac), or drift on a network without weights that there are
            enough images for; ncm, lda, fecam, ranpac for an exact head on a network that stays as it is; remix, pmi,
            drift, lwf, finetune, which train; or one of your own.
        weights: a safetensors file to begin with; its head, if it has one, is not used.
        blocks: of a module of your own: its block modules in order, as paths.
        input_shape: of a module of your own: (C, H, W) of one image.
        options: of a named backbone, such as ``{"width": 8}``.
        head: linear or cosine, or one of your own.
        mean, std: per channel, of images within 0..1; by default those of ImageNet for colour, 0 and 1 for grey.
        device: where to learn: auto, cpu, cuda or mps. The model itself comes back to the processor.
        progress: whether to show a progress bar, in a terminal or a notebook.
        monitor: told of everything that happens, instead.
        settings: any of `LearnSettings`: freeze, epochs, lr, samples, size, batch, versions, flip, holdout, patience,
            covariance, minimum, removable, similar_names, seed.

    Raises:
        ValueError: for names, options or settings that do not exist or do not fit.
        TypeError: for a module that is not a backbone; the message says what to add.

    Examples:
        >>> learner = remix.Learner("resnet34", weights="resnet34.safetensors")
        >>> learner.learn("photos/first")
        >>> learner.learn("photos/more")  # without the first ones
        >>> learner.predict("photo.jpg").names
        >>> learner.save("model.remix")

    """

    def __init__(
        self,
        backbone: str | nn.Module = "resnet32",
        method: str = "auto",
        *,
        weights: str | Path | None = None,
        blocks: Sequence[BlockPath] | None = None,
        input_shape: tuple[int, int, int] | None = None,
        options: Mapping[str, Any] | None = None,
        head: str = "linear",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        device: str = "auto",
        progress: bool = False,
        monitor: Monitor | None = None,
        **settings: Any,
    ) -> None:
        self.settings = LearnSettings().changed(settings)
        self.method = check_step_method(method)
        if isinstance(backbone, str):
            if blocks is not None or input_shape is not None:
                raise ValueError(
                    f"{backbone!r} knows its blocks and shape: choose the side of its images with size=..."
                )
            size = self.settings.size or usual_size(backbone, options or {})
            self._network = open_network(backbone, options, weights, size, mean, std, self.settings.seed)
        else:
            if options or weights is not None or self.settings.size is not None:
                raise ValueError("options, weights and size go with a backbone's name; a module has its own")
            self._network = open_module(backbone, blocks, input_shape, mean, std)
        create_head(head, 1)  # raises for an unknown one
        self.head, self.device, self.progress, self.monitor = head, device, progress, monitor
        self._model: Model | None = None
        self._team: Team | None = None

    @classmethod
    def of(
        cls, model: Model, *, device: str = "auto", progress: bool = False, monitor: Monitor | None = None,
        **settings: Any,
    ) -> Learner:  # fmt: skip
        """Go on with a model; ``load`` does this with a file."""
        learner = cls.__new__(cls)
        learner.settings = LearnSettings().changed(settings)
        learner.method = model.history[-1].method if model.history else "remix"
        learner.method = learner.method if learner.method in step_methods() else "remix"
        learner.head, learner.device, learner._team = model.classifier.head.kind, device, None
        learner.progress, learner.monitor = progress, monitor
        learner._model, learner._network = model, opened(model)
        return learner

    @classmethod
    def adopt(
        cls,
        model: nn.Module,
        data: Any = None,
        *,
        classes: Sequence[str],
        blocks: Sequence[BlockPath] | None = None,
        input_shape: tuple[int, int, int] | None = None,
        head: str | None = None,
        backbone: str | None = None,
        options: Mapping[str, Any] | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        method: str = "remix",
        device: str = "auto",
        progress: bool = False,
        monitor: Monitor | None = None,
        **settings: Any,
    ) -> Learner:
        """Start from a network that was trained elsewhere, on data that may be gone.

        Args:
            model: the trained network, head included. It is copied.
            data: images that are still there, of its classes, to measure statistics on; None if there are none. Then
                images are dreamed from the network's BatchNorm statistics, if the method needs any, and priors are
                diagonal.
            classes: names of its outputs, in their order.
            blocks: its block modules in order, as paths; not needed for networks of REMIX.
            input_shape: (C, H, W) of one image; not needed for networks of REMIX.
            head: path of its last linear layer, if it is not found by itself.
            backbone: to save the learner, the name under which a function that builds the same backbone is registered
                (``remix.networks.register_backbone``).
            options: of that function.
            mean, std: of the images it was trained on, per channel, of values within 0..1.
            method: of the steps to come. One with an exact head (auto, lda, ...) solves it from the data, in place of
                the network's own.
            device, progress, monitor, settings: as for a new learner.

        Raises:
            TypeError, ValueError: if the network cannot be divided into blocks and a linear head, or data and names do
                not fit it; the message says what to do.

        """
        chosen, method = LearnSettings().changed(settings), check_step_method(method)
        adopted = adopted_model(
            model, data, tuple(classes), blocks=blocks, input_shape=input_shape, head=head, name=backbone,
            options=options or {}, mean=mean, std=std, method=method, settings=chosen, monitor=monitor,
        )  # fmt: skip
        learner = cls.of(adopted, device=device, progress=progress, monitor=monitor, **settings)
        # What is frozen was settled now.
        learner.settings = replace(chosen, freeze=None, size=None)
        return learner

    # --- what there is ---

    skipped: tuple[Skipped, ...] = ()
    """Files of the last step's folder that were left out, with reasons."""

    @property
    def model(self) -> Model:
        """Everything that was learned. Raises RuntimeError before the first step."""
        if self._model is None:
            raise RuntimeError("nothing is learned yet: call learn(data) first")
        return self._model

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, by label."""
        return self._model.classes if self._model else ()

    @property
    def history(self) -> tuple[LearnStep, ...]:
        """The steps so far, oldest first."""
        return self._model.history if self._model else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know about the last step; ``history`` has those of the others."""
        return self.history[-1].notes if self.history else ()

    @property
    def preprocessing(self) -> Preprocessing:
        """What is done to images."""
        return self._network.preprocessing

    @property
    def dreams(self) -> bool:
        """Whether its method dreams the old classes."""
        return create_method(self.method).dream_work(1)[0] > 0

    # --- learning ---

    def use_method(self, method: str) -> None:
        """Learn the next steps with another method; auto keeps the model's.

        Raises:
            ValueError: for one that cannot be used here.

        """
        if check_step_method(method) != "auto" or not self.history:
            self.method = method

    def learn(
        self, data: Any, name: str | None = None, *, classes: Sequence[str] | None = None, extend: bool = False,
        **changes: Any,
    ) -> LearnStep:  # fmt: skip
        """Learn the classes of the data; if it fails or is interrupted, the learner stays as it was.

        Args:
            data: an image folder, (images, labels), a ``Dataset`` or ``DataLoader`` of (image, label), or a Hugging
                Face dataset. Images may be Pillow images, uint8 or floats within 0..1, of any size, grey or colour.
            name: of the step, for the history.
            classes: names by label, where the data have none.
            extend: allow images of classes that are known already, and add them to these.
            changes: settings for this step only.

        Returns:
            what the history says of the step, with the accuracies in percent.

        Raises:
            DataError: for data that cannot be used; says why.
            ValueError: for settings that do not fit.

        """
        if "size" in changes and not self.history:
            raise ValueError("the size of images is chosen with the network: remix.Learner(..., size=...)")
        usual = self.settings if not self.history else replace(self.settings, freeze=None, size=None)
        settings = usual.changed(changes)
        return self.learn_intake(self.intake(data, classes, settings), settings, extend=extend, name=name or "")

    def intake(self, data: Any, classes: Sequence[str] | None = None, settings: LearnSettings | None = None) -> Intake:
        """Data as this learner's network takes them."""
        chosen = settings or self.settings
        method = auto_method(chosen, self.head)[0] if self.method == "auto" else self.method
        holdout = chosen.held_out(exact_step(self._network, self._model, method))
        return take_in(data, self.preprocessing, classes=classes, holdout=holdout, seed=chosen.seed)

    def learn_intake(self, data: Intake, settings: LearnSettings, *, extend: bool = False, name: str = "") -> LearnStep:
        """The step itself, on data that were read."""
        self._team = self._team or Team.on(self.device)
        plain = self.monitor is not None or not self.progress
        with nullcontext(self.monitor) if plain else learning_bar(bool(self.history) and self.dreams) as monitor:
            model = learn_step(
                self._network, self._model, data, self.method, settings, extend=extend, name=name, head=self.head,
                team=self._team, monitor=monitor,
            )  # fmt: skip
        self._model, self._network = model, opened(model)
        self.skipped = data.skipped
        self.method = model.history[-1].method if self.method == "auto" else self.method
        return model.history[-1]

    def warnings(self, data: Intake) -> list[str]:
        """What a person should know before these data are learned; it will be among the ``notes`` too."""
        return [] if self.history else untrained(self._network, data)

    def joint(self, old: Intake, new: Intake) -> Learner:
        """Train a copy of the network on old and new images together, the upper bound of a step that is to come.

        Raises:
            DataError: if there are old classes without images, or images of others.

        """
        check_old_images(self.model, old)
        self._team = self._team or Team.on(self.device)
        model = train_jointly(self.model, old, new, self.settings, self._team, self.monitor)
        return Learner.of(model, device=self.device)

    def change_classes(
        self, *, rename: Mapping[str, str] | None = None, remove: Sequence[str] = (),
        merge: Mapping[str, Sequence[str]] | None = None,
    ) -> tuple[str, ...]:  # fmt: skip
        """Rename, remove or merge classes; see `remix.deploy.classes`. Returns what still mixes removed ones in."""
        self._model, stays = change_classes(self.model, rename, remove, merge)
        self._network = opened(self._model)
        return stays

    def back_to(self, step: int) -> None:
        """Undo all steps after this one, as far as the model allows. Raises ValueError if it does not."""
        self._model = back_to(self.model, step)
        self._network = opened(self._model)

    # --- use ---

    def predict(self, images: Any, top: int = 5, *, unknown: float | None = None) -> Predictions:
        """The most probable classes of images; with ``unknown=0.95``, whether these are known (`deploy.prediction`)."""
        from remix.deploy.prediction import predict

        return predict(self.model, images, top, unknown=unknown)

    def evaluate(self, data: Any, classes: Sequence[str] | None = None) -> Evaluation:
        """Accuracy per class and confusions on labelled images of any kind that `learn` takes.

        Args:
            data: images with labels.
            classes: names by label. Without them, and where the data bring none, numbers are places in ``classes`` of
                this learner, or what its classes are called if these are numbers (``7``, ``class 7``).

        Raises:
            DataError: for data that cannot be used; says why.

        """
        from remix.deploy.evaluation import evaluate_data, evaluate_folder, label_names

        if isinstance(data, str | Path):
            return evaluate_folder(self.model, data)
        called = label_names(self.model.classes)
        tested = take_in(data, self.preprocessing, classes=classes, holdout=0.0, called=called).train
        return evaluate_data(self.model, tested)

    def dream(
        self, classes: Iterable[str | int] | None = None, n: int = 8, *, steps: int | None = None, seed: int = 0
    ) -> ImageDataset:
        """Dream ``n`` images of each class, from the model alone.

        Returns:
            images as bytes, with labels and class names, in the size that the network takes.

        Raises:
            ValueError: for a class that the model does not know.

        """
        wanted = None if classes is None else ((classes,) if isinstance(classes, str) else tuple(classes))
        plan = make_plan(self.model, DreamOptions(wanted or self.classes, n, steps=steps, seed=seed))
        if self.monitor is not None or not self.progress:
            return plan.images(self.monitor.inversion if self.monitor else None)
        with dream_bar(plan) as progress:
            return plan.images(progress)

    def export(self, path: str | Path) -> Exported:
        """Write a plain network for serving, without statistics, and check that it gives the same answers.

        Args:
            path: of the file; its ending says the format, as of ``remix export``: .onnx, .pt2 or .safetensors.

        Raises:
            ValueError: for another ending, or a network that cannot be written so; nothing is written then.
            OSError: if the file cannot be written; what was there before is unchanged.

        """
        from remix.deploy.export import export, format_of

        return export(self.model, format_of(path), path)

    def save(self, path: str | Path) -> None:
        """Write everything to one file, whole or not at all.

        Raises:
            ValueError: if the backbone is not registered under a name.
            OSError: if the file cannot be written; what was there before is unchanged.

        """
        save_model(path, self.model)

    def __repr__(self) -> str:
        about = f"Learner of {self._network.name}, method {self.method}"
        return f"{about}, nothing learned yet" if self._model is None else f"{about}\n{self._model!r}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Learner:
        """One that learns by itself; device and monitor are the same."""
        twin = Learner.__new__(Learner)
        memo |= {id(self): twin, id(self._team): self._team, id(self.monitor): self.monitor}
        twin.__dict__ = copy.deepcopy(self.__dict__, memo)
        return twin


def load(path: str | Path, *, device: str = "auto", **settings: Any) -> Learner:
    """Open a model file, to use it or to go on learning.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: (DamagedFileError) in one sentence, if it is damaged or no model.

    """
    return Learner.of(load_model(path), device=device, **settings)
