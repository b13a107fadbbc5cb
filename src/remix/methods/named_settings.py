"""The settings of `pmi` and `remix` that have names: what each changes of the defaults, which are the code's.

docs/methods.md has them side by side, with where every value comes from (`python -m benchmarks.settings_table`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from remix.support.settings import merged

__all__ = ["PMI", "REMIX", "Setting"]

Setting = Literal["paper", "code", "ours", "clip"]
"""To the letter of the paper's appendices; as its authors' code, its slips corrected; with our changes; as that code is
for the adapters of CLIP."""

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

_ADAPTERS: dict[str, Any] = {
    "epochs": 3, "lr": 1e-3, "milestones": [], "weight_decay": 0.0, "optimiser": "adamw", "schedule": "quarter-cosine",
    "warm_up": 30.0,
}  # fmt: skip
_CLIP: dict[str, Any] = {
    "first": _ADAPTERS,
    "head": {"epochs": 0},
    "last_block": {"epochs": 0},
    "network": _ADAPTERS,
    "balance": {"epochs": 0},
    # Published is 0.001 for real images and as much for pseudo-samples; here it is of the mean of both.
    "scales": {"local": 1.0, "head": 0.002, "hard": 0.1, "relational": 0.0, "text": 0.2, "head_follows": False},
    "samples": 0,
    "samples_per_task": 50,
    "balanced": True,
    "replacement": True,
    "depth": 1,
    "follow": "kept",
    "inversion": {
        "block": {"steps": 200, "rate": 0.1},
        "refine": {"steps": 600, "rate": 0.01, "warm_up": 0, "milestones": [], "cosine_period": 2000},
        "statistics": 0.002,
        "input": 0.002,
        "block_factor": 15 / 14,  # published is the number of blocks with that of patches, which is not inverted
        "entry": {"steps": 1200, "rate": 0.1},
        "entry_side": 2,
        "refine_at": "blocks",
        "refine_variation": 0.005,
        "boosting": False,
        "batch": 40,
        "micro_batch": 10,
    },
}

PMI: Mapping[str, Mapping[str, Any]] = {"paper": _PAPER, "code": {}, "ours": _OURS, "clip": _CLIP}
REMIX: Mapping[str, Mapping[str, Any]] = {
    "paper": merged(_PAPER, {"inversion": _LIKELIHOOD}),
    "code": {},
    "ours": merged(_OURS, {"inversion": {"prior": {"kind": "laplace"}}}),
    "clip": merged(_CLIP, {"inversion": {"prior": {"weight": 1e-4, "summed": True}}}),
}
