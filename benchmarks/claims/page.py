"""docs/claims.md and docs/claims/details.md from the findings."""

from __future__ import annotations

import re

from benchmarks.claims import (
    accuracy,
    cost,
    learning_curves,
    likelihood,
    mathematics,
    merging,
    own_numbers,
    samples,
    sensitivity,
    untested,
)
from benchmarks.claims.claim import Claim, Finding, Verdict
from benchmarks.claims.files import PUBLISHED, Results
from benchmarks.claims.seeds import ENOUGH_SEEDS, FEWEST_SEEDS

PARTS: tuple[tuple[str, tuple[Claim, ...]], ...] = (
    ("Learning", accuracy.CLAIMS + learning_curves.CLAIMS + sensitivity.CLAIMS),
    ("The paper's own numbers", own_numbers.CLAIMS),
    ("The covariance", mathematics.CLAIMS + merging.CLAIMS),
    ("Likelihood of features", likelihood.CLAIMS),
    ("Synthetic images", samples.CLAIMS),
    ("Time and memory", cost.CLAIMS),
    ("Others", untested.CLAIMS),
)
CLAIMS = tuple(claim for _, claims in PARTS for claim in claims)

HEAD = """# The paper's claims, tested

Made by `python -m benchmarks.claims` (needs a few seconds) from the result files. Every claim links to what was
measured, and how.

- **holds**: at the paper's scale, or by mathematics; **at mini scale**: with small networks, few images or epochs.
- **not shown**: no runs, too few seeds, a difference inside the noise, or the opposite at mini scale.
- **wrong as stated**: contradicted by mathematics, by the paper's own numbers, or by a direct measurement.

A difference counts when the bootstrap interval over paired seeds excludes 0; with fewer than {enough} seeds Student's
interval must exclude it too, and with fewer than {fewest} none counts.
"""
DETAILS = """# The paper's claims: what was measured

Made by `python -m benchmarks.claims` (needs a few seconds); [the overview](claims.md) says what the verdicts mean.
Numbers of the paper stand in [published.json](claims/published.json) and `src/remix/reproduce/paper.json`.
"""


def page(results: Results) -> str:
    """The overview: a line for every claim."""
    findings = {claim.name: claim.finding(results) for claim in CLAIMS}
    counts = {verdict: sum(finding.verdict is verdict for finding in findings.values()) for verdict in Verdict}
    lines = [HEAD.format(enough=ENOUGH_SEEDS, fewest=FEWEST_SEEDS)]
    lines.append(
        f"{len(CLAIMS)} claims: " + ", ".join(f"{count} {each.value}" for each, count in counts.items()) + ".\n"
    )
    for part, claims in PARTS:
        lines.append(f"## {part}\n")
        for claim in claims:
            finding = findings[claim.name]
            link = f"[{claim.title}](claims/details.md#{claim.name})"
            lines.append(f"- {link}: **{finding.verdict.value}**. {finding.because}")
        lines.append("")
    return "\n".join(lines)


def details(results: Results) -> str:
    """What was measured, claim by claim."""
    lines = [DETAILS.rstrip("\n")]
    for part, claims in PARTS:
        lines += ["", f"## {part}"]
        for claim in claims:
            lines += ["", *_section(claim, claim.finding(results), results)]
    return re.sub(r"\]\((?=[\w/]+\.(?:md|csv|json|png))", "](../", "\n".join(lines)) + "\n"  # a folder deeper


def _command(claim: Claim) -> str:
    if not claim.command:
        return ""
    return f"`{claim.command}`" + (f" (needs {claim.needs})" if claim.needs else "")


def _section(claim: Claim, finding: Finding, results: Results) -> list[str]:
    lines = [f'<a id="{claim.name}"></a>', "", f"### {claim.title}", ""]
    lines += [f"Claim: {claim.statement(results)} ({claim.place})", ""]
    lines += [f"**{finding.verdict.value.capitalize()}** (scale: {finding.scale}). {finding.because}", ""]
    lines += [f"- {sentence}" for sentence in finding.measured] + [""] * bool(finding.measured)
    if claim.command:
        lines.append(f"Command: {_command(claim)}")
    files = [name for name in claim.files if (results.folder / name).exists()]
    if files:
        lines[-1] += ". Files: " + ", ".join(f"[{name}]({name})" for name in files)
    elif not claim.command and finding.measured:
        lines.append(f"Computed from [{PUBLISHED}]({PUBLISHED})")
    if lines[-1] == "":
        lines.pop()
    return lines
