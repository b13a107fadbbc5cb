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
measured, and how. A difference counts when the bootstrap interval over paired seeds excludes 0; with fewer than
{enough} seeds Student's interval must exclude it too, and with fewer than {fewest} none counts.
"""
MEANINGS = {
    Verdict.HOLDS: "At the paper's scale or size, or by mathematics.",
    Verdict.HOLDS_AT_MINI_SCALE: "With small networks, few images or few epochs.",
    Verdict.WRONG_AS_STATED: "Contradicted by mathematics, by the paper's own numbers, or by a direct measurement.",
    Verdict.NOT_SHOWN: "No runs, too few seeds, a difference inside the noise, or the opposite at mini scale.",
}
DETAILS = """# The paper's claims: what was measured

Made by `python -m benchmarks.claims` (needs a few seconds); [the overview](claims.md) says what the verdicts mean.
Numbers of the paper stand in [published.json](claims/published.json) and `src/remix/reproduce/paper.json`.
"""


def page(results: Results) -> str:
    """The overview: a line for every claim, by verdict; why a claim is not shown is told among the details."""
    findings = {claim: claim.finding(results) for claim in CLAIMS}
    lines = [HEAD.format(enough=ENOUGH_SEEDS, fewest=FEWEST_SEEDS)]
    for verdict, meaning in MEANINGS.items():
        found = {claim: finding.because for claim, finding in findings.items() if finding.verdict is verdict}
        lines += [f"## {verdict.value.capitalize()}: {len(found)} of {len(CLAIMS)}", "", meaning, ""]
        for claim, because in found.items():
            link = f"[{claim.title}](claims/details.md#{claim.name})"
            lines.append(f"- {link}" + ("" if verdict is Verdict.NOT_SHOWN else f": {because}"))
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
