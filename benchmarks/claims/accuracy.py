"""Claims about the accuracy of learners, from the runs that `remix reproduce` gathers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from benchmarks.claims.claim import MINI, NOTHING, PAPER, Claim, Finding, Verdict
from benchmarks.claims.files import Missing, Results
from benchmarks.claims.seeds import Judgement, by_seed, holds_at, judge, presets_of, scale_of, why_not
from remix.experiments.paired import spread

TABLE = "reproduce/table1.csv"
COMMAND = "remix reproduce table1 --scale mini --data DIR"
CLIP_TABLE = "reproduce/table2.csv"
CLIP_COMMAND = "remix reproduce table2 --scale mini --data DIR"
LAST = "last_accuracy_macro"
NAMES = {
    "finetune": "fine-tuning",
    "lwf": "LwF",
    "deepinversion": "DeepInversion",
    "abd": "ABD",
    "rdfcil": "R-DFCIL",
    "pmi-paper": "PMI (paper)",
    "pmi-code": "PMI (code)",
    "pmi-ours": "PMI (ours)",
    "remix-paper": "REMIX (paper)",
    "remix-code": "REMIX (code)",
    "remix-ours": "REMIX (ours)",
    "joint": "joint training",
    "moe-adapter": "MoE-Adapter",
    "pmi + moe-adapter": "PMI + MoE-Adapter",
    "remix + moe-adapter": "REMIX + MoE-Adapter",
    "lda": "LDA on the same network",
}
SETTINGS = ("paper", "code")  # to the letter of the paper, and as its authors' code
ORDER = ("deepinversion", "abd", "rdfcil", "pmi", "remix", "joint")  # of the paper's table, lowest first
Judged = dict[tuple[str, str], Judgement]  # by preset and setting


def _rows(results: Results, table: str = TABLE) -> list[dict[str, str]]:
    return results.rows(table, "seed", LAST)


def _named(method: str, setting: str) -> str:
    return f"{method}-{setting}" if method in ("pmi", "remix") else method


def _compare(rows: list[dict[str, str]], preset: str, first: str, second: str) -> Judgement | None:
    values = [by_seed(rows, LAST, preset=preset, method=method) for method in (first, second)]
    return judge(*values, (NAMES[first], NAMES[second]), "points of last accuracy")


def _decide(judged: Judged, measured: list[str]) -> Finding:
    """By the paper's protocol where it was run, else by the small presets; the claim says "higher", in each setting."""
    if not judged:
        raise Missing("No runs yet: no preset has both methods with one seed.")
    scale = PAPER if any(scale_of(preset) == PAPER for preset, _ in judged) else MINI
    decisive = {place: judgement for place, judgement in judged.items() if scale_of(place[0]) == scale}
    lower = [f"{_at(*place)} ({one.mean:+.1f} points)" for place, one in decisive.items() if one.sign < 0]
    silent = [f"{_at(*place)}: {why_not(judgement)}" for place, judgement in decisive.items() if judgement.sign == 0]
    higher = [f"{_at(*place)} {judgement.mean:+.1f} points" for place, judgement in decisive.items()]
    if lower:
        because = f"The opposite is measured on {', '.join(lower)}."
    elif silent:
        because = "; ".join(silent) + "."
    else:
        because = f"Higher beyond chance wherever it was run: {', '.join(higher)}."
    verdict = Verdict.NOT_SHOWN if lower or silent else holds_at(scale)
    return Finding(tuple(measured), verdict, because, scale)


def _at(preset: str, setting: str) -> str:
    return f"`{preset}` ({setting})"


def _against(
    first: str,
    second: str,
    *,
    also: Sequence[tuple[str, str]] = (),
    data: str = "",
    table: str = TABLE,
    settings: Sequence[str] = SETTINGS,
    results: Results,
) -> Finding:
    """Whether the first is above the second, with presets whose names begin so; pairs of methods in ``also`` are
    reported and do not decide.
    """
    rows = _rows(results, table)
    judged, measured = {}, []
    for preset in (preset for preset in presets_of(rows) if preset.startswith(data)):
        for setting in settings:
            judgement = _compare(rows, preset, _named(first, setting), _named(second, setting))
            if judgement is not None:
                judged[preset, setting] = judgement
                measured.append(f"`{preset}`: {judgement.sentence}")
        others = [_compare(rows, preset, *pair) for pair in also]
        measured += [f"`{preset}`, which does not decide: {other.sentence}" for other in others if other is not None]
    return _decide(judged, measured)


def _remix_over_pmi(results: Results) -> Finding:
    others = ("pmi-ours", "remix-paper", "remix-code", "rdfcil")
    return _against("remix", "pmi", also=[("remix-ours", other) for other in others], results=results)


def _forgetting(results: Results) -> Finding:
    return _against("remix", "finetune", results=results)


def _tiny(results: Results) -> Finding:
    return _against("remix", "pmi", data="tiny-", results=results)


def _clip(results: Results) -> Finding:
    best = "remix + moe-adapter"
    also = [(best, "moe-adapter"), (best, "lda"), ("pmi + moe-adapter", "moe-adapter")]
    return _against(best, "pmi + moe-adapter", also=also, table=CLIP_TABLE, settings=("clip",), results=results)


def _order(results: Results) -> Finding:
    rows = _rows(results)
    measured: list[str] = []
    pairs: dict[tuple[str, str, str], Judgement] = {}
    for preset in presets_of(rows):
        values = {method: by_seed(rows, LAST, preset=preset, method=method) for method in NAMES}
        means = [f"{NAMES[m]} {spread([*values[m].values()])} ({_seeds(len(values[m]))})" for m in NAMES if values[m]]
        measured.append(f"`{preset}`, last accuracy, %: {'; '.join(means)}.")
        for setting in SETTINGS:
            order = [_named(method, setting) for method in ORDER]
            absent = [NAMES[method] for method in order if not values[method]]
            if absent:
                measured.append(f"{_at(preset, setting)}: no runs of {', '.join(absent)}.")
                continue
            for low, high in pairwise(order):
                judgement = _compare(rows, preset, high, low)
                if judgement is not None and (preset, low, high) not in pairs:
                    pairs[preset, low, high] = judgement
                    measured.append(f"`{preset}`: {judgement.sentence}")
    if not pairs:
        return Finding(
            tuple(measured), Verdict.NOT_SHOWN, "No preset has runs of all methods with common seeds.", NOTHING
        )
    scale = PAPER if any(scale_of(preset) == PAPER for preset, _, _ in pairs) else MINI
    decisive = {key: judgement for key, judgement in pairs.items() if scale_of(key[0]) == scale}
    shown = [key for key, judgement in decisive.items() if judgement.sign > 0]
    reversed_ = [key for key, judgement in decisive.items() if judgement.sign < 0]
    because = f"Of {len(decisive)} neighbouring pairs {len(shown)} are in the paper's order beyond chance"
    if reversed_:
        because += f", {len(reversed_)} in the opposite order"
    complete = len(decisive) == len(shown)
    return Finding(tuple(measured), holds_at(scale) if complete else Verdict.NOT_SHOWN, because + ".", scale)


def _seeds(count: int) -> str:
    return f"{count} seed{'s' if count > 1 else ''}"


def _clip_statement(results: Results) -> str:
    table = results.published["table 2"]
    rows = zip(table["columns"], table["REMIX + MoE-Adapter"], table["PMI + MoE-Adapter"], strict=True)
    each = "; ".join(f"{name} {remix:.2f} against {pmi:.2f}" for name, remix, pmi in rows)
    return f"With CLIP and adapters REMIX is the best method without stored images: {each} for PMI."


def _remix_statement(results: Results) -> str:
    table = results.published["table 1"]
    gains = [remix - pmi for remix, pmi in zip(table["REMIX"], table["PMI"], strict=True)]
    return (
        f"REMIX is above PMI in all {len(gains)} settings of Table 1, by {min(gains):.2f} to {max(gains):.2f} points."
    )


CLAIMS = (
    Claim(
        "remix-over-pmi",
        "REMIX is more accurate than PMI",
        _remix_statement,
        "Abstract; experiments, Table 1",
        COMMAND,
        "CIFAR-100 and hours",
        (TABLE,),
        _remix_over_pmi,
    ),
    Claim(
        "order",
        "The order of the methods in Table 1",
        lambda results: "From the lowest to the highest: DeepInversion, ABD, R-DFCIL, PMI, REMIX, joint training.",
        "Experiments, Table 1",
        COMMAND,
        "CIFAR-100 and hours",
        (TABLE,),
        _order,
    ),
    Claim(
        "forgetting",
        "Replaying synthetic images mitigates forgetting",
        lambda results: "Pseudo-samples from model inversion keep what fine-tuning forgets.",
        "Introduction; related work",
        COMMAND,
        "CIFAR-100 and hours",
        (TABLE,),
        _forgetting,
    ),
    Claim(
        "tiny-imagenet",
        "The same on Tiny-ImageNet",
        lambda results: "REMIX is more accurate than PMI on Tiny-ImageNet too.",
        "Table 1; appendix, Tiny-ImageNet",
        COMMAND,
        "CIFAR-100, Tiny-ImageNet and hours",
        (TABLE,),
        _tiny,
    ),
    Claim(
        "clip",
        "Accuracy with CLIP",
        _clip_statement,
        "Experiments, results on ViT backbone; appendix, ViT efficiency table",
        CLIP_COMMAND,
        "CUB-200, CIFAR-100, a ViT-B/16, a sentence encoder and hours; at the paper's scale CLIP ViT-B/16",
        (CLIP_TABLE,),
        _clip,
    ),
)
