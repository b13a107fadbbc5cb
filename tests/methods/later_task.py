"""An engine that has begun its second task and is not yet trained in it."""

from dataclasses import replace

import torch
from tiny import tiny_engine, tiny_stream

from remix.learning.engine import Engine

STREAM = tiny_stream()


def in_second_task(name: str, moved: float = 0.01, **changes) -> Engine:
    """The weights of its network differ from the old one's by ``moved``; both are in eval mode."""
    engine = tiny_engine(name, STREAM)
    engine.method = replace(engine.method, **changes)
    engine.learn(STREAM[0])
    engine.present = STREAM[1].train
    engine._prepare(STREAM[1])
    engine.student.eval()
    with torch.no_grad():
        for parameter in engine.backbone.parameters():
            parameter += moved
    return engine
