"""Claims about memory, size and time."""

from __future__ import annotations

from typing import Any

from benchmarks.claims.claim import MINI, PAPER_SIZES, Claim, Finding, Verdict
from benchmarks.claims.files import Missing, Results
from benchmarks.claims.seeds import FEWEST_SEEDS, by_seed, holds_at, judge, presets_of, scale_of

MEMORY, SCALE, FIT = "reproduce/memory.json", "bench/scale.json", "bench/fit.json"
EFFICIENCY = "reproduce/efficiency.csv"
BYTES_PER_NUMBER = 4  # float32
SAME = 0.01  # relative difference below which two sizes are called the same
COMPARABLE = 0.25  # relative overhead up to which a cost is called comparable


def _memory(results: Results) -> Finding:
    rows = results.json(MEMORY)
    paper = results.published["memory"]
    size, file, dense, work = (
        sum(row[key] for row in rows) for key in ("D", "file", "dense", "process, one row with gradient")
    )
    vectors = [row["file"] / row["D"] / BYTES_PER_NUMBER for row in rows]
    counted = sum(row["paper"] for row in rows) / size / BYTES_PER_NUMBER
    good = (
        abs(file / 2**20 / paper["laplace, MiB"] - 1) < SAME
        and abs(dense / 2**30 / paper["dense, GiB"] - 1) < SAME
        and max(vectors) / min(vectors) - 1 < SAME
    )
    dims = ", ".join(f"{row['D']:,}" for row in rows)
    return Finding(
        (
            f"Files of the layers of a ResNet-34 (D = {dims}): {file / 2**20:.2f} MiB in all, {min(vectors):.3f} to "
            f"{max(vectors):.3f} float32 numbers per dimension. The dense matrices would take {dense / 2**30:.2f} GiB "
            f"(computed), {dense / file:,.0f} times as much.",
            f"The covariance is {paper['vectors of the covariance in the text']} vectors, as the text says; the table "
            f"counts {counted:.0f}, the mean included. Its units are MiB and GiB.",
            f"The table says nothing about working memory. The likelihood of one row with its gradient takes "
            f"{work / 2**20:.0f} MiB over all layers, {work / file:.0f} times the file.",
        ),
        Verdict.HOLDS if good else Verdict.NOT_SHOWN,
        "The sizes on disk are those of the table and grow in proportion to D." if good else "The sizes differ.",
        PAPER_SIZES,
    )


def _million(results: Results) -> Finding:
    rows = results.json(SCALE)["over D"]
    small, large = rows[0], rows[-1]
    paper = results.published["largest D in the memory table"]
    good = large["D"] >= paper and large["held-out gain"] > 0
    return Finding(
        (
            f"Rows drawn from a known covariance, N = {large['N']}. D = {large['D']:,}: fitted in "
            f"{large['fit']['processor seconds']:.0f} processor seconds with at most "
            f"{large['peak bytes of the process'] / 2**30:.1f} GiB in the whole process; {large['held-out gain']:.3f} "
            "nats per dimension above the diagonal on held-out rows, the truth "
            f"{large['held-out gain of the truth']:.3f}.",
            f"Time of a fit: {large['fit']['processor seconds'] / small['fit']['processor seconds']:.0f} times that of "
            f"D = {small['D']:,}, for {large['D'] / small['D']:.0f} times the dimensions.",
            f"The largest map in the paper's own table has D = {paper:,}; on real features we went as far as that too "
            "([likelihood](reproduce.md)).",
        ),
        Verdict.HOLDS if good else Verdict.NOT_SHOWN,
        "Fits and likelihoods of that size were made." if good else "Sizes of the paper were not reached.",
        PAPER_SIZES,
    )


def _frobenius_choice(results: Results) -> Finding:
    sets: dict[str, Any] = results.json(FIT)
    pairs = [
        (one["models"]["ours"], one["models"]["published recipe"], one["models"]["diagonal"]) for one in sets.values()
    ]
    better = sum(ours["nats"] > recipe["nats"] for ours, recipe, _ in pairs)
    faster = sum(ours["seconds"] < recipe["seconds"] for ours, recipe, _ in pairs)
    below = sum(recipe["nats"] < diagonal["nats"] for _, recipe, diagonal in pairs)
    contradicted = better == len(pairs) and faster > len(pairs) / 2
    return Finding(
        (
            f"Fit by likelihood against the paper's recipe (Frobenius distance, Adam) on {len(pairs)} sets of "
            f"features, held-out rows: the likelihood fit is better in {better}, faster in {faster}.",
            f"The recipe ends below the diagonal Gaussian in {below} of them. One split and one seed for each set.",
        ),
        Verdict.NOT_SHOWN,
        "A whole fit by likelihood was mostly faster here, and always better."
        if contradicted
        else "The comparison has no clear outcome.",
        MINI,
    )


def _efficiency_rows(results: Results) -> list[dict[str, str]]:
    return results.rows(EFFICIENCY, "seed", "processor_minutes", "peak_memory_mib")


def _overhead(results: Results) -> Finding:
    rows = _efficiency_rows(results)
    measured, overheads, scales = [], [], []
    for preset in presets_of(rows):
        time = {m: by_seed(rows, "processor_minutes", preset=preset, method=m) for m in ("remix", "pmi")}
        memory = {m: by_seed(rows, "peak_memory_mib", preset=preset, method=m) for m in ("remix", "pmi")}
        longer = judge(time["remix"], time["pmi"], ("REMIX", "PMI"), "processor minutes")
        more = judge(memory["remix"], memory["pmi"], ("REMIX", "PMI"), "MiB at most")
        if longer is None or more is None:
            continue
        common = sorted(time["remix"].keys() & time["pmi"].keys())
        overhead = [
            sum(part["remix"][s] for s in common) / sum(part["pmi"][s] for s in common) - 1 for part in (time, memory)
        ]
        measured.append(
            f"`{preset}`: REMIX takes {overhead[0]:+.1%} time and {overhead[1]:+.1%} memory. {longer.sentence} "
            f"{more.sentence}"
        )
        if len(common) >= FEWEST_SEEDS:
            overheads += overhead
            scales.append(scale_of(preset))
    if not measured:
        raise Missing("No runs yet: no preset has both methods with one seed.")
    scale = scales[0] if len(set(scales)) == 1 else MINI
    if not overheads:
        return Finding(tuple(measured), Verdict.NOT_SHOWN, f"Fewer than {FEWEST_SEEDS} seeds of both methods.", scale)
    good = max(overheads) <= COMPARABLE
    return Finding(
        tuple(measured),
        holds_at(scale) if good else Verdict.NOT_SHOWN,
        f"No overhead is above {COMPARABLE:.0%}." if good else f"An overhead is above {COMPARABLE:.0%}.",
        scale,
    )


def _overhead_statement(results: Results) -> str:
    table = results.published["efficiency, ResNet-32"]
    pmi, remix = table["PMI"], table["REMIX"]
    return (
        f"REMIX takes about the time and memory of PMI: {remix['minutes']} minutes against {pmi['minutes']} "
        f"({remix['minutes'] / pmi['minutes'] - 1:+.0%}), {remix['GB']} GB against {pmi['GB']} GB."
    )


def _memory_statement(results: Results) -> str:
    table = results.published["memory"]
    return (
        f"Memory is linear in D: {table['laplace, MiB']} MB in place of {table['dense, GiB']:.2f} GB for full maps of "
        f"a ResNet-34, a {table['saving']:,}th."
    )


CLAIMS = (
    Claim(
        "memory",
        "Memory is linear in the number of features",
        _memory_statement,
        "Abstract; contributions; appendix on computational efficiency, memory table",
        "remix reproduce memory",
        None,
        (MEMORY,),
        _memory,
    ),
    Claim(
        "full-maps",
        "Whole feature maps, up to a million numbers",
        lambda results: "The model works on whole feature maps of up to millions of elements.",
        "Method, results on samples and their captions",
        "python -m benchmarks --only scale",
        "minutes",
        (SCALE,),
        _million,
    ),
    Claim(
        "frobenius-choice",
        "Frobenius distance in place of likelihood saves effort in the fit",
        lambda results: (
            "Fitting by likelihood brings computational and numerical overhead, so the covariance is "
            "fitted by the Frobenius distance, which is efficient in spite of many epochs."
        ),
        "Method, Laplace Covariance Model; appendix on implementation",
        "python -m benchmarks.fit_quality --data DIR",
        "CIFAR-100, Imagenette and the weights of a ResNet-34",
        (FIT,),
        _frobenius_choice,
    ),
    Claim(
        "overhead",
        "REMIX costs hardly more than PMI",
        _overhead_statement,
        "Appendix on computational efficiency, ResNet-32 table",
        "remix reproduce efficiency --scale mini --data DIR",
        "CIFAR-100 and hours",
        (EFFICIENCY,),
        _overhead,
    ),
)
