"""Claims about synthetic images."""

from __future__ import annotations

from typing import Any

from benchmarks.claims.claim import MINI, Claim, Finding, Verdict
from benchmarks.claims.files import Missing, Results
from benchmarks.claims.seeds import Judgement, judge, why_not

LAYERWISE, PUBLISHED_STEPS = "dreams/quality_layerwise.json", "dreams/quality_published.json"
PHOTOS, MAPS = "dreams/photos.json", "dreams/maps.json"
COMMAND = "python -m benchmarks.dream_quality --data DIR --cache DIR --out docs/dreams --count 500"
COLLAPSED = 0.8  # of the natural mean quadratic form; dreams below are nearer to the mean than real images are


def _values(by_seed: dict[str, Any], row: str, score: str, factor: float = 1.0) -> dict[int, float]:
    if row not in by_seed:
        raise Missing(f"No runs yet of {row}.")
    return {int(seed): factor * scores[score] for seed, scores in by_seed[row].items()}


def _compare(
    results: Results, place: str, form: str, kinds: tuple[str, str], file: str = LAYERWISE
) -> tuple[Judgement, Judgement]:
    """Verifier accuracy in points, and Frechet distance."""
    by_seed = results.json(file)["by seed"]
    strategy = "published" if file == PUBLISHED_STEPS else "layerwise"
    rows = [f"{strategy}-{place}-{kind}-{form}" for kind in kinds]
    accuracy = judge(*(_values(by_seed, row, "accuracy", 100) for row in rows), kinds, "points of the judge's accuracy")
    distance = judge(*(_values(by_seed, row, "frechet") for row in rows), kinds, "of Frechet distance")
    if accuracy is None or distance is None:
        raise Missing(f"No seed is common to {' and '.join(rows)}.")
    return accuracy, distance


def _finding(measured: tuple[str, ...], accuracy: Judgement, distance: Judgement) -> Finding:
    good = accuracy.sign > 0 and distance.sign < 0
    if good:
        because = "Better in both scores, beyond chance."
    else:
        open_question = accuracy if accuracy.sign <= 0 else distance
        because = f"In one of the scores {why_not(open_question)}."
    return Finding(measured, Verdict.HOLDS_AT_MINI_SCALE if good else Verdict.NOT_SHOWN, because, MINI)


def _whole_maps(results: Results) -> Finding:
    accuracy, distance = _compare(results, "maps", "typical", ("laplace", "diagonal"))
    cosine = _compare(results, "maps", "typical", ("laplace", "diagonal-dct"))
    both = _compare(results, "maps", "typical", ("laplace-dct", "diagonal-dct"))
    longer = _compare(results, "maps", "typical", ("laplace-dct", "diagonal"), PUBLISHED_STEPS)
    images = results.json(LAYERWISE)["images per dream"]
    return _finding(
        (
            f"A CIFAR network, {images} dreams per prior and seed, another network as judge; prior on whole maps, in "
            f"the form that keeps the natural spread: {accuracy.sentence} {distance.sentence}",
            "Most of it is knowing how neighbouring pixels go together, which a diagonal over cosine frequencies "
            f"knows too: {cosine[0].sentence} {cosine[1].sentence} With the cosine transform in front of both: "
            f"{both[0].sentence}",
            f"With the published number of steps: {longer[0].sentence} {longer[1].sentence}",
        ),
        accuracy,
        distance,
    )


def _channels(results: Results) -> Finding:
    accuracy, distance = _compare(results, "channels", "nll", ("laplace", "diagonal"))
    dense = _compare(results, "channels", "nll", ("laplace", "dense"))
    weights = {
        row["kind"]: row["weight"]
        for row in results.json(LAYERWISE)["rows"]
        if (row["place"], row["form"]) == ("channels", "nll") and row["kind"] != "none"
    }
    return _finding(
        (
            f"The same network; prior on the channels of every BatchNorm input: {accuracy.sentence} "
            f"{distance.sentence}",
            f"Channels are few, so a dense matrix can be kept, and it does better: {dense[0].sentence}",
            "Each kind has the better of two weights by a small test on another seed: "
            + ", ".join(f"{kind} {weight:g}" for kind, weight in weights.items())
            + ".",
        ),
        accuracy,
        distance,
    )


def _photographs(results: Results) -> Finding:
    photos, maps = results.json(PHOTOS), results.json(MAPS)["rows"]
    nll = {row["kind"]: row for row in photos["rows"] if row["form"] == "nll" and row["kind"] != "none"}
    rows = "; ".join(f"{kind} {row['accuracy']:.0%}" for kind, row in nll.items())
    more = "; ".join(f"{kind} {row['accuracy']:.0%}" for kind, row in maps.items())
    count = next(iter(maps.values()))["images"]
    real = photos["2 held-out photographs per class in place of dreams, the others as reference"]["accuracy"]
    return Finding(
        (
            f"ResNet-34, dreams of photographs, judge's accuracy: {rows}. Through the command line with the polish "
            f"stage, {count} images for each: {more}. Real held-out photographs in place of dreams: {real:.0%}.",
            "One seed, few images; the paper shows chosen images and no score.",
        ),
        Verdict.NOT_SHOWN,
        "So few images cannot tell the priors apart.",
        MINI,
    )


def _likelihood_ascent(results: Results) -> Finding:
    data = results.json(LAYERWISE)
    real = data["facts"]["held-out test images under each covariance"]["channels laplace"]["quadratic"]
    tuning = next(value for key, value in data.items() if key.startswith("tuning"))["layerwise-channels-laplace-nll"]
    dreams = {float(weight): scores["quadratic"] for weight, scores in tuning.items()}
    typical = next(
        row["quadratic"]
        for row in data["rows"]
        if (row["place"], row["kind"], row["form"]) == ("channels", "laplace", "typical")
    )
    bad = [weight for weight, value in dreams.items() if value < COLLAPSED * real]
    each = ", ".join(f"{value:.2f} with weight {key:g}" for key, value in sorted(dreams.items()))
    return Finding(
        (
            f"Mean quadratic form per dimension under the Laplace covariance: held-out images {real:.2f}; dreams that "
            f"maximise the likelihood {each}; dreams with the form that asks for the natural value {typical:.2f}.",
            "The likelihood is highest at the mean, so its maximum is no typical image. With a small weight the "
            "BatchNorm terms keep the spread up.",
        ),
        Verdict.NOT_SHOWN if bad else Verdict.HOLDS_AT_MINI_SCALE,
        f"True only while the term is weak: with weight {min(bad):g} it pulls features to their mean."
        if bad
        else "The spread stays natural.",
        MINI,
    )


CLAIMS = (
    Claim(
        "samples-maps",
        "Better synthetic images from whole maps",
        lambda results: (
            "With a Laplace covariance over whole feature maps synthetic images are more coherent than with a "
            "diagonal one."
        ),
        "Experiments, qualitative analysis of generated samples",
        COMMAND,
        "CIFAR-100 and hours",
        (LAYERWISE, PUBLISHED_STEPS),
        _whole_maps,
    ),
    Claim(
        "samples-channels",
        "Better synthetic images from channels",
        lambda results: (
            "In the learner the Laplace covariance of channels, maximised as a likelihood, gives better "
            "pseudo-samples than marginal statistics."
        ),
        "Method, integration; appendix on generator training",
        COMMAND,
        "CIFAR-100 and hours",
        (LAYERWISE,),
        _channels,
    ),
    Claim(
        "samples-photographs",
        "Better photographs from a ResNet-34",
        lambda results: (
            "Photographs dreamed by a ResNet-34 have clearer objects and fewer artefacts with the full covariance."
        ),
        "Experiments and appendix, qualitative analysis of generated samples",
        "python -m benchmarks.dream_photos --data DIR --cache DIR --out docs/dreams",
        "Imagenette and the weights of a ResNet-34",
        (PHOTOS, MAPS),
        _photographs,
    ),
    Claim(
        "likelihood-ascent",
        "Maximising the likelihood matches the distribution of features",
        lambda results: (
            "Pseudo-samples made by maximising the exact likelihood follow the distribution of real features."
        ),
        "Method, integration; appendix on computational efficiency",
        COMMAND,
        "CIFAR-100 and hours",
        (LAYERWISE,),
        _likelihood_ascent,
    ),
)
