"""Table 2: adapters and prompts in transformers that classify by texts, on CIFAR-100 and CUB-200."""

from __future__ import annotations

from dataclasses import replace

from remix.reproduce import needed_runs
from remix.reproduce.methods_table import MethodsTable, make_table
from remix.reproduce.needed_runs import Variant
from remix.reproduce.published import paper_numbers, published_clip
from remix.reproduce.targets import Listener, Reproduction

__all__ = ["TAKES", "reproduce"]

TAKES = needed_runs.TAKES

# Of small presets, that of the paper's which has the same data.
_COUNTERPART = {"cub-vit-mini": "cub200-clip-10", "cifar100-vit-mini": "cifar100-clip-10"}
_PMI, _REMIX = "pmi + moe-adapter", "remix + moe-adapter"
_ANCHORS = ("finetune", "ncm", "lda", "ranpac", "joint")
_PUBLISHED_SEED = "1993"
_WORDS = (
    "Theirs, not ours, in %: iCaRL, MEMO, PROOF and CLAP4CLIP keep images, and are not built here. The paper does not "
    "say over what it averages: by its authors' code over all test images so far, of one run. Ours are over tasks; the "
    "CSV file has both (macro over tasks, micro over images)."
)
_PAIRS = (
    (_REMIX, _PMI), (_REMIX, "moe-adapter"), (_PMI, "moe-adapter"), (_REMIX, "lda"), (_REMIX, "ranpac"),
    (_REMIX, "finetune"), ("moe-adapter", "zs-clip"),
)  # fmt: skip


def variants(scale: str) -> list[Variant]:
    """What the table is made of: the paper's methods without stored images, and what they should be compared with."""
    if scale == "paper":
        presets = paper_numbers()["presets of table 2"]
        return [replace(variant, seeds=_PUBLISHED_SEED) for preset in presets for variant in _of_preset(preset)]
    main = ("finetune", "moe-adapter", _PMI, _REMIX)
    beside = (*main, "zs-clip", *_ANCHORS)
    cifar = [variant for variant in _of_preset("cifar100-vit-mini", main) if variant.name in beside]
    return [*_of_preset("cub-vit-mini", main), *cifar]


def _of_preset(preset: str, main: tuple[str, ...] | None = None) -> list[Variant]:
    """All methods; if some are named, these have the seeds of the scale, the others one."""
    plugged = {"vpt": "deep-prompts", "coda-p": "coda"}
    found = [
        *(Variant(preset, method) for method in ("zs-clip", "attriclip", "vpt", "coda-p", "moe-adapter")),
        *(Variant(preset, "pmi", (f"network.options.adapter={kind}",), f"pmi + {name}")
          for name, kind in plugged.items()),
        Variant(preset, "pmi", name=_PMI),
        Variant(preset, "remix", name=_REMIX),
        *(Variant(preset, method) for method in _ANCHORS),
    ]  # fmt: skip
    return [one if main is None or one.name in main else replace(one, seeds="0") for one in found]


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    table = MethodsTable("table2", published_clip(), _WORDS, _COUNTERPART, _PAIRS)
    return make_table(table, variants(wanted.scale), wanted, listener)
