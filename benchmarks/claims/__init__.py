"""The claims of the paper, each with the command that tests it here, what was measured, and a computed verdict.

``python -m benchmarks.claims`` writes docs/claims.md from the result files under docs/. No number of that page is typed
by hand: those of the paper stand in docs/claims/published.json, ours in the files that the commands write, and the
verdicts follow from them. Where a file is missing or has too few seeds, the verdict is "not shown", with the reason.
"""


def main() -> None:
    """The command; what it needs is imported here, so that `benchmarks.claims.merging` can be run by itself."""
    from benchmarks.claims.command import main as command

    command()
