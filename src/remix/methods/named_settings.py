"""The settings of `pmi` and `remix` that have names: what each changes of the defaults, which are the code's.

docs/methods.md has them side by side, with where every value comes from (`python -m benchmarks.settings_table`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from remix.support.settings import merged

__all__ = ["PMI", "REMIX", "Setting"]

Setting = Literal["paper", "code", "ours"]
"""To the letter of the paper's appendices; as its authors' code, its slips corrected; with our changes."""

_PAPER: dict[str, Any] = {
    "head": {"epochs": 0},
    "last_block": {"epochs": 0},
    "network": {"epochs": 160, "lr": 0.1, "milestones": [80, 120]},
    "classifiers": "all",
    "scales": {"head": 0.0},
    "balance_weights": "task",
    "balance_distils": False,
    "selectors": {"score": "log-mean-exp", "pool": True, "again": False},
    "inversion": {
        "refine_features": 0.0,
        "labels": 1.0,
        "top": "labels",
        "normalised": True,
        "variation": 0.001,
        "boosting": False,
    },
}
_OURS: dict[str, Any] = {
    "head": {"epochs": 0},
    "last_block": {"epochs": 0},
    "network": {"epochs": 160, "lr": 0.1, "milestones": [80, 120]},
    "balance": {"lr": 0.05, "milestones": [20]},
    "scales": {"head": 0.0, "hard": 0.5},
    "together": True,
    "augment_replay": True,
    "follow": "drift",
    "measure_augmented": False,
    "selectors": {"score": "log-mean-exp"},
}
_LIKELIHOOD = {"statistics_form": "nll", "prior": {"kind": "laplace-paper", "form": "frobenius"}}

PMI: Mapping[str, Mapping[str, Any]] = {"paper": _PAPER, "code": {}, "ours": _OURS}
REMIX: Mapping[str, Mapping[str, Any]] = {
    "paper": merged(_PAPER, {"inversion": _LIKELIHOOD}),
    "code": {},
    "ours": merged(_OURS, {"inversion": {"prior": {"kind": "laplace"}}}),
}
