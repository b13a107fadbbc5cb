"""Table 1: ResNets on CIFAR-100 and Tiny-ImageNet. It is of last accuracy, whatever its label says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from remix.methods import list_methods, method_class
from remix.reproduce import needed_runs
from remix.reproduce.methods_table import MethodsTable, make_table
from remix.reproduce.needed_runs import Variant
from remix.reproduce.published import UNSELECTED, paper_numbers, published_last
from remix.reproduce.targets import Listener, Reproduction

__all__ = ["TAKES", "reproduce"]

TAKES = needed_runs.TAKES

# Of small presets, that of the paper's which has the same data and number of tasks.
_COUNTERPART = {"cifar100-mini": "cifar100-5", "tiny-mini": "tiny-5"}
_FAITHFUL = ("paper", "code")  # of the named settings, those that are the paper's method
_PAIRS = (
    ("remix-paper", "pmi-paper"), ("remix-code", "pmi-code"), ("remix-paper", "remix-code"), ("remix-code", "rdfcil"),
    ("remix-ours", "pmi-ours"), ("remix-ours", "remix-code"), ("remix-ours", "rdfcil"), ("remix-ours", "finetune"),
    ("lda", "rdfcil"), ("lda", "remix-ours"), ("lda", "drift"), ("lda, rotations", "lda"),
)  # fmt: skip


def reproduce(wanted: Reproduction, listener: Listener) -> bool:
    """See `remix.reproduce`."""
    runs = paper_numbers()["runs in table 1"]
    words = (
        f"Theirs, not ours: last accuracy, %, mean ± standard deviation over {runs} runs. The paper calls it average "
        "incremental accuracy; by its own curves it is last accuracy."
    )
    table = MethodsTable("table1", published_last(), words, _COUNTERPART, _PAIRS, _FAITHFUL)
    return make_table(table, variants(wanted.scale), wanted, listener)


def variants(scale: str) -> list[Variant]:
    """What the table is made of."""
    if scale == "paper":
        return [variant for preset in published_last() for variant in _of_preset(preset, _FAITHFUL)]
    everything = (*_FAITHFUL, "ours")
    few = {"finetune": "0", "rdfcil": "0", "pmi-paper": "", "remix-paper": "", "remix-ours": "0"}
    tiny = [variant for variant in _of_preset("tiny-mini", everything) if variant.name in few]
    return [
        *_of_preset("digits", everything),
        *_exact("digits"),
        *_of_preset("cifar100-mini", everything, unselected="0"),
        *_exact("cifar100-mini"),
        *(replace(variant, seeds=few[variant.name]) for variant in tiny),
        *_exact("tiny-mini"),
    ]


def _exact(preset: str) -> list[Variant]:
    """Heads on a network that only learns in the first task: the paper has none, and whoever reads its table asks."""
    turned = Variant(preset, "lda", ("settings.rotations=true",), "lda, rotations")
    return [Variant(preset, "lda"), *([turned] if preset == "cifar100-mini" else []), Variant(preset, "ranpac")]


def _of_preset(preset: str, settings: Sequence[str], unselected: str = "") -> list[Variant]:
    """Every method, in all of these settings where they have names; before PMI that without selection, as the paper has
    it, with these seeds.
    """
    found = []
    for method in list_methods():
        if method_class(method).exact or method_class(method).transformers:  # the paper's has none
            continue
        if method == "pmi":
            found.append(Variant(preset, method, ("settings.selection=false",), UNSELECTED, seeds=unselected))
        if not method_class(method).named:
            found.append(Variant(preset, method))
            continue
        words = [(f"settings.setting={setting}", f"{method}-{setting}") for setting in settings]
        found += [Variant(preset, method, (word,), name) for word, name in words]
    return found
