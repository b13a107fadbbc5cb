"""2,200 damaged and forged model files: each is refused in one sentence or loads; none crashes, hangs, executes
anything, or takes memory beyond a bound."""

from __future__ import annotations

import random
import resource
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import mutations
import pytest
import torch

from remix.learning import Model, load_model, save_model
from remix.statistics import DamagedFileError, Memory, Selectors, batchnorm_points, measure_classes, measure_layers

pytestmark = pytest.mark.slow

FILES = Path(__file__).with_name("files")
LONGEST = 10.0  # seconds of processor time for one file; sound ones take hundredths
MOST_MEMORY = 200 << 20  # bytes above what opening a sound file takes; the files have 100 KB
FORBIDDEN = ("exec", "compile", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class",
             "ctypes.dlopen", "socket.connect", "os.remove", "os.rename", "shutil.rmtree")  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> list[bytes]:
    """Files with every kind of content: statistics of channels and maps, dense ones, Gaussians, selectors, history."""
    small = load_model(FILES / "model-v2.remix")
    images = torch.randn(40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    backbone, points = small.classifier.backbone, batchnorm_points(small.classifier.backbone)
    memory = Memory()
    memory.layers = {
        **measure_layers(backbone, [images], points, kinds=("laplace", "dense")),
        **measure_layers(backbone, [images], points[-1:], "map", kinds=("laplace",)),
    }
    memory.gaussians = measure_classes(backbone, [(images, torch.arange(40) % 4)])
    vectors = {name: torch.ones(4, 2, 16) for name in ("bias", "scale", "shift", "mean", "variance")}
    memory.selectors = Selectors((0, 1, 2, 3), torch.zeros(4, 32, 16), **vectors)
    memory.classes, memory.tasks = small.memory.classes, small.memory.tasks
    path = tmp_path_factory.mktemp("sound") / "full.remix"
    save_model(path, replace(small, memory=memory))
    return [path.read_bytes(), (FILES / "model-v2.remix").read_bytes(), (FILES / "model-v1.remix").read_bytes()]


class Watch:
    """Notes what Python is made to do while it is on. Audit hooks cannot be taken off, so it can be switched."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.on:
            return
        writes = event == "open" and any(letter in str(arguments[1] or "r") for letter in "wax+")
        if event in FORBIDDEN or writes:
            self.seen.append(f"{event} {str(arguments)[:200]}")


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


def _stop(*_: object) -> None:
    raise AssertionError("a file kept the reader busy for too long")


@pytest.mark.parametrize("kind", mutations.KINDS, ids=lambda kind: kind.__name__)
def test_no_file_does_harm(kind, sound, watch, tmp_path):
    draw = random.Random(f"seed of {kind.__name__}")
    path = tmp_path / "file.remix"
    for data in sound:  # so that everything is imported and allocated once
        path.write_bytes(data)
        load_model(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    old = signal.signal(signal.SIGPROF, _stop)
    refused = 0
    try:
        for number in range(mutations.KINDS[kind]):
            data = kind(draw.choice(sound), draw.choice(sound), draw)
            path.write_bytes(data)
            signal.setitimer(signal.ITIMER_PROF, LONGEST)
            began = time.process_time()
            watch.on = True
            message = None
            try:
                assert isinstance(load_model(path), Model)
            except DamagedFileError as error:
                message = str(error)
            finally:
                watch.on = False
                signal.setitimer(signal.ITIMER_PROF, 0)
            assert time.process_time() - began < LONGEST
            if message is not None:
                refused += 1
                assert message.isprintable(), number
                assert len(message) < len(str(path)) + 500, number
    finally:
        signal.signal(signal.SIGPROF, old)
    assert watch.seen == []
    assert refused > 0.6 * mutations.KINDS[kind]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    assert grown < MOST_MEMORY


def test_there_are_enough_of_them():
    assert sum(mutations.KINDS.values()) >= 2000
