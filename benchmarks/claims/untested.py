"""Claims that little here tests, and what stands in the way; and privacy, which the paper takes for granted."""

from __future__ import annotations

from statistics import fmean

from scipy.stats import fisher_exact

from benchmarks.claims.claim import MINI, Claim, Finding, Verdict
from benchmarks.claims.files import Missing, Results
from benchmarks.claims.seeds import by_seed
from remix.experiments.paired import CONFIDENCE

SAMPLES_VIT = "reproduce/samples_vit.csv"
JUDGED = "read as it by another network"
CONVERGENCE = "reproduce/convergence.csv"
AUDITS = ("privacy/audit_cifar.json", "privacy/audit_imagenette.json")


def _samples_vit(results: Results) -> Finding:
    rows = results.rows(SAMPLES_VIT, "images", JUDGED)
    counts = {
        prior: [sum(int(row[key]) for row in rows if row["prior"] == prior) for key in (JUDGED, "images")]
        for prior in ("none", "laplace")
    }
    if not all(images for _, images in counts.values()):
        raise Missing(f"No runs yet: `{SAMPLES_VIT}` has not both priors.")
    (plain, of_plain), (ours, of_ours) = counts["none"], counts["laplace"]
    table = [[ours, of_ours - ours], [plain, of_plain - plain]]
    chance = float(fisher_exact(table, alternative="greater").pvalue)
    shown = chance < 1 - CONFIDENCE
    return Finding(
        (
            f"A ResNet-34 that had no part in it reads {ours} of {of_ours} images with the Laplace covariances as "
            f"their class, {plain} of {of_plain} without ([grids](reproduce/transformers.md)). By chance as many: "
            f"{chance:.0%} (Fisher's test).",
        ),
        Verdict.HOLDS_AT_MINI_SCALE if shown else Verdict.NOT_SHOWN,
        "More are recognised, beyond chance." if shown else "Not more are recognised, or no more than by chance.",
        MINI,
    )


def _privacy(results: Results) -> Finding:
    audits = [results.json(name) for name in AUDITS]
    copies = any(space["stands_out"] for audit in audits for space in audit["spaces"].values())
    dreams = " and ".join(f"{audit['counts']['dreams']}" for audit in audits)
    images = " and ".join(f"{audit['counts']['training images']:,}" for audit in audits)
    return Finding(
        (
            f"Nearest training images of {dreams} dreams among {images} images: dreams are "
            f"{'nearer to' if copies else 'not nearer to'} training images than held-out images are, in "
            f"{'some' if copies else 'any'} of {len(audits[0]['spaces'])} measures ([privacy](privacy.md)).",
        ),
        Verdict.NOT_SHOWN,
        "Some dreams stand out as near copies."
        if copies
        else "No copies were found, which is no proof that there can be none.",
        MINI,
    )


def _layer_wise(results: Results) -> Finding:
    rows = results.rows(CONVERGENCE, "seed", "passes", "objective")
    names = {row["method"] for row in rows}
    measured, faster = [], 0
    for passes in sorted({int(row["passes"]) for row in rows}):
        mine = [row for row in rows if int(row["passes"]) == passes]
        values = {name: by_seed(mine, "objective", method=name) for name in names}
        layered = values.pop("layer-wise", {})
        ratios = [layered[seed] / min(one[seed] for one in values.values() if seed in one) for seed in layered]
        if not ratios:
            continue
        faster += max(ratios) < 1
        measured.append(
            f"`{mine[0]['preset']}`, {passes} network passes: the objective of layer-wise inversion is "
            f"{fmean(ratios):.2f} times that of pixels at the better rate ({len(ratios)} seeds, {min(ratios):.2f} to "
            f"{max(ratios):.2f})."
        )
    if not measured:
        raise Missing("No runs yet: no budget has both ways with one seed.")
    because = f"Lower with every seed at {faster} of {len(measured)} budgets."
    return Finding(
        tuple(measured), Verdict.HOLDS_AT_MINI_SCALE if faster == len(measured) else Verdict.NOT_SHOWN, because, MINI
    )


CLAIMS = (
    Claim(
        "samples-vit",
        "Better synthetic images from a vision transformer",
        lambda results: "Images dreamed by a ViT-B/16 are more coherent with the Laplace covariance.",
        "Experiments and appendix, qualitative analysis of generated samples",
        "remix reproduce samples --data DIR --vit vit/ --weights resnet34.safetensors",
        "Imagenette, a ViT-B/16, the weights of a ResNet-34 and a quarter of an hour",
        (SAMPLES_VIT,),
        _samples_vit,
    ),
    Claim(
        "layer-wise",
        "Inversion layer by layer converges faster",
        lambda results: (
            "Splitting inversion into layers turns one hard problem into easy ones, and converges faster than "
            "inverting the whole network at once."
        ),
        "Appendices on generator training and on qualitative analysis",
        "remix reproduce convergence",
        "a minute",
        (CONVERGENCE,),
        _layer_wise,
    ),
    Claim(
        "privacy",
        "Synthetic images in place of private data",
        lambda results: (
            "Where data must not be stored, images from model inversion can stand in for them (the paper's "
            "motivation; it does not test it)."
        ),
        "Introduction",
        "python -m benchmarks.dream_audit --data DIR --cache DIR --out docs/privacy",
        "CIFAR-100",
        AUDITS,
        _privacy,
    ),
)
