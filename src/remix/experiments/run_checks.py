"""Whether a run can come to its end, asked before it begins."""

from __future__ import annotations

from remix.data import TaskStream
from remix.experiments.config import RunConfig
from remix.experiments.run_network import create_network
from remix.learning.class_names import check_class_names
from remix.support.settings import SettingError

__all__ = ["check_run"]


def check_run(config: RunConfig, stream: TaskStream | None) -> None:
    """Whether method, network and data fit, every task can be learned and tested, and the result saved as a model.

    Args:
        config: the run.
        stream: its tasks; None if the data are not there, then method and network are looked at.

    Raises:
        ValueError: (SettingError, DataError) if not.

    """
    backbone = create_network(config)
    config.settings.check(backbone)
    if stream is None:
        return
    if tuple(backbone.input_shape) != stream[0].train.input_shape:
        raise SettingError(
            f"network.backbone {config.network.backbone!r} takes images {tuple(backbone.input_shape)}, those of "
            f"{stream.name} are {stream[0].train.input_shape}; choose another, or set network.options.input_shape"
        )
    check_class_names(stream.classes)
    for index in range(len(stream)):
        counts = stream[index].train.counts()
        for name in stream[index].classes:
            if not counts.get(name):
                raise SettingError(
                    f"the class {name} has no training images in {stream.name}; give it some, or leave it out "
                    "(data.classes, data.order)"
                )
        if not len(stream.test(index)):
            raise SettingError(
                f"task {index + 1} ({', '.join(stream[index].classes)}) has no test images in {stream.name}; give its "
                "classes some, or learn them in one task with others (data.tasks)"
            )
    _ = stream.splits.preprocessing  # raises for images that are not square
