"""`remix reproduce`: the paper's tables and figures again, one module for each.

`targets` lists them, `catalogue` what the paper has. Those that are made of runs say what they need to `needed_runs`,
which plans, finds what is there already, and runs the rest; `likelihood`, `memory` and `samples` compute
for themselves.
"""

from remix.reproduce.catalogue import PAPER, Part
from remix.reproduce.targets import TARGETS, Listener, Reproduction, reproduce_target

__all__ = ["PAPER", "TARGETS", "Listener", "Part", "Reproduction", "reproduce_target"]
