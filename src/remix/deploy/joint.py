"""Joint training, the upper bound of a step: the same network, trained on images of old and new classes together."""

from __future__ import annotations

from dataclasses import replace

import torch

from remix.data import DataError, ImageDataset
from remix.data.images import ImageFiles
from remix.data.intake import Intake
from remix.deploy.recipe import LearnSettings
from remix.deploy.step import learn_step, opened, renamed
from remix.learning import Model, Monitor, Team

__all__ = ["check_old_images", "train_jointly"]


def check_old_images(model: Model, old: Intake) -> None:
    """Whether images are of the classes that a model knows, all of them and no others. Raises DataError if not."""
    if missing := [name for name in model.classes if name not in old.classes]:
        raise DataError(f"joint training needs images of every old class, and there is none of {missing[0]}")
    if foreign := [name for name in old.classes if name not in model.classes]:
        raise DataError(f"the old images have a class {foreign[0]!r} that the model does not know")


def train_jointly(
    model: Model, old: Intake, new: Intake, settings: LearnSettings, team: Team | None, monitor: Monitor | None
) -> Model:
    """The network of a model, with a new head, trained on old and new images as in a first step.

    It begins where the step began, and what the model has frozen stays frozen; a network of which only an exact head
    was learned may train its last block, as it may in a first step.

    Args:
        model: before the step.
        old: images of its classes; see `check_old_images`.
        new: images of the step.
        settings: of the step.
        team, monitor: as of `remix.deploy.step.learn_step`.

    """
    names = (*model.classes, *(name for name in new.classes if name not in model.classes))
    train, held = (
        _joined(renamed(one, names), renamed(two, names)) for one, two in ((old.train, new.train), (old.held, new.held))
    )
    blocks = len(model.classifier.backbone.blocks())
    chosen = replace(settings, freeze=model.frozen if model.frozen < blocks else None, size=None, prior=None,
                     covariance=None, minimum=None)  # fmt: skip
    return learn_step(opened(model), None, Intake(train, held), "finetune", chosen, team=team, monitor=monitor)


def _joined(one: ImageDataset, other: ImageDataset) -> ImageDataset:
    """The images of both, which have the same classes; as files if both are."""
    labels = torch.cat([one.labels, other.labels])
    if isinstance(one.images, ImageFiles) and isinstance(other.images, ImageFiles):
        return ImageDataset(replace(one.images, paths=one.images.paths + other.images.paths), labels, one.classes)
    both = [part.decoded().images for part in (one, other)]
    return ImageDataset(torch.cat([part for part in both if isinstance(part, torch.Tensor)]), labels, one.classes)
