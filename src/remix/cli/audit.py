"""`remix audit`."""

from __future__ import annotations

from typing import Literal

__all__ = ["audit"]


def audit(
    model: str,
    *,
    train: str,
    held_out: str | None = None,
    dreams: str | None = None,
    classes: str | None = None,
    count: int = 8,
    strategy: Literal["layerwise", "pixels", "pyramid", "generator"] | None = None,
    steps: int | None = None,
    seed: int = 0,
    out: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
) -> None:
    """Whether dreams of a model are nearer to its training images than other images of the same kind are.

    For those who still have the training images: measures the distance from every dream to the nearest of them, and
    the same for held-out images, in pixels and in the network's features, and says what may be concluded.

    Args:
        model: Model file.
        train: Folder of the training images, one sub-folder per class.
        held_out: Folder of images that the model was not trained on; by default the test part of --train, if it has
            one. Without any, training images are compared with each other.
        dreams: File of dreams that remix dream wrote (NAME.safetensors), instead of dreaming now.
        classes: Names separated by commas; all by default, of more than ten the first ten.
        count: Dreams per class.
        strategy: As in remix dream.
        steps: As in remix dream.
        seed: Of the dreams.
        out: Figure of the nearest pairs to write, NAME.png; the numbers go to NAME.json.
        device: auto, cpu, cuda, mps, ...
        overwrite: Replace files that exist.

    Examples:
        remix audit photos.remix --train photos/train --held-out photos/test --out audit.png
        remix audit photos.remix --train photos --dreams grid.safetensors
    """
    from remix.deploy.audit_command import AuditFiles, audit_command
    from remix.deploy.dream_options import DreamOptions

    named = None if classes is None else tuple(word.strip() for word in classes.split(",") if word.strip())
    options = DreamOptions(named, count, strategy, steps=steps, seed=seed)
    audit_command(model, AuditFiles(train, held_out, dreams), options, out=out, device=device, overwrite=overwrite)
