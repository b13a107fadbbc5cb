"""Looking at the tensors inside a network while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

__all__ = ["Hooks", "Point", "check_points"]

Side = Literal["input", "output"]


class Point(NamedTuple):
    """A place in a network: what a module receives or what it gives. Written ``"stage_1.0.bn1:input"``."""

    module: str
    side: Side

    @classmethod
    def parse(cls, text: str | Point) -> Point:
        """Read ``"path.of.module:input"`` or ``":output"``; the empty path is the network itself.

        Raises:
            ValueError: if the side is missing or another word.

        """
        if isinstance(text, Point):
            return text
        module, colon, side = text.rpartition(":")
        if not colon or side not in ("input", "output"):
            name = text if not colon else module
            raise ValueError(f"point {text!r} must say which side of the module: '{name}:input' or '{name}:output'")
        return cls(module, "input" if side == "input" else "output")

    def __str__(self) -> str:
        return f"{self.module}:{self.side}"


def check_points(network: nn.Module, points: Iterable[str | Point]) -> list[Point]:
    """Parse points and check that the network has their modules.

    Raises:
        ValueError: for a point without a side, given twice, or whose module the network does not have; the message
            lists the names that come closest.

    """
    known = [name for name, _ in network.named_modules(remove_duplicate=False)]
    parsed = [Point.parse(point) for point in points]
    for point in parsed:
        if point.module not in known:
            close = get_close_matches(point.module, known, n=5, cutoff=0.5) or [name for name in known if name][:10]
            raise ValueError(
                f"{type(network).__name__} has no module {point.module!r}; the closest names are: {', '.join(close)}"
            )
        if parsed.count(point) > 1:
            raise ValueError(f"point '{point}' is given more than once")
    return parsed


class Hooks:
    """Captures what named modules receive or give, for as long as a ``with`` block lasts.

    The captured tensors are the network's own (no copies, gradients flow through them) and stay readable after the
    block until `clear` or the next run. Train and eval modes are not touched. Several ``Hooks`` may be open on one
    network, nested or in different threads: each sees only the runs of the thread that opened it.

    Example::

        with Hooks(network, ["stage_1.0.bn1:input"]) as hooks:
            network(images)
        hooks["stage_1.0.bn1:input"]  # (N, C, H, W)

    Args:
        network: any module.
        points: places, as `Point` or text.
        through: called with the point and the tensor when data reaches it; what it returns goes on in the tensor's
            place and is what is captured.

    Raises:
        ValueError: if a point is malformed or names a module that does not exist (see `check_points`).

    """

    def __init__(
        self,
        network: nn.Module,
        points: Iterable[str | Point],
        through: Callable[[Point, Tensor], Tensor] | None = None,
    ) -> None:
        self.points = check_points(network, points)
        self._through = through
        self._network = network
        self._handles: list[RemovableHandle] = []
        self._captured: dict[Point, tuple[Tensor, int | None]] = {}
        self._runs: dict[Point, int] = {}
        self._thread: int | None = None

    def __enter__(self) -> Hooks:
        if self._thread is not None:
            raise RuntimeError("these Hooks are open already: make a second Hooks object to look at another run")
        self.clear()
        self._thread = threading.get_ident()
        try:
            for point in self.points:
                self._attach(point)
        except BaseException:
            self._detach()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._detach()

    def _attach(self, point: Point) -> None:
        module = self._network.get_submodule(point.module)

        def look_at_input(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
            values = self._capture(point, (*arguments, *named.values()))
            count = len(arguments)
            return None if values is None else (values[:count], dict(zip(named, values[count:], strict=True)))

        def look_at_output(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
            if not isinstance(output, tuple | list):
                values = self._capture(point, (output,))
                return None if values is None else values[0]
            values = self._capture(point, output)
            make = getattr(output, "_make", type(output))  # a named tuple has its own way
            return None if values is None else make(values)

        if point.side == "input":
            self._handles.append(module.register_forward_pre_hook(look_at_input, with_kwargs=True))
        else:
            self._handles.append(module.register_forward_hook(look_at_output))

    def _detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._thread = None

    def _capture(self, point: Point, values: Sequence[Any]) -> tuple[Any, ...] | None:
        """Keep the first tensor of the values; returns them as they go on, or None for no change."""
        if threading.get_ident() != self._thread:
            return None
        place = next((i for i, value in enumerate(values) if isinstance(value, Tensor)), None)
        if place is None:
            verb = "receives" if point.side == "input" else "gives"
            raise TypeError(f"module {point.module!r} {verb} no tensor, so '{point}' cannot be captured")
        tensor = values[place] if self._through is None else self._through(point, values[place])
        self._captured[point] = (tensor, None if tensor.is_inference() else tensor._version)
        self._runs[point] = self._runs.get(point, 0) + 1
        return None if self._through is None else (*values[:place], tensor, *values[place + 1 :])

    def __getitem__(self, point: str | Point) -> Tensor:
        """The tensor captured in the latest run.

        Raises:
            KeyError: if nothing was captured there.
            RuntimeError: if the network has overwritten the tensor in place since.

        """
        place = Point.parse(point)
        if place not in self._captured:
            reason = "the module did not run inside the block" if place in self.points else "it is not watched"
            raise KeyError(f"nothing was captured at '{place}': {reason}")
        tensor, version = self._captured[place]
        if version is not None and tensor._version != version:
            raise RuntimeError(
                f"the tensor captured at '{place}' was overwritten in place by a later step of the network: set "
                "inplace=False in the module that follows, or watch that module's output"
            )
        return tensor

    def __iter__(self) -> Iterator[Point]:
        """Points captured so far, in the order in which data reached them."""
        return iter(self._captured)

    def __contains__(self, point: object) -> bool:
        return isinstance(point, str | Point) and Point.parse(point) in self._captured

    def runs(self, point: str | Point) -> int:
        """How often the point was passed since the block began or `clear` was called."""
        return self._runs.get(Point.parse(point), 0)

    def clear(self) -> None:
        """Forget what was captured, and with it the memory it holds."""
        self._captured.clear()
        self._runs.clear()
