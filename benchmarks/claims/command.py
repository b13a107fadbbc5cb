"""``python -m benchmarks.claims [--docs DIR] [--check]``: docs/claims.md and its details from the result files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.claims.files import Results
from benchmarks.claims.page import CLAIMS, details, page


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="folder of the result files")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is older than its files")
    options = parser.parse_args()
    results = Results(options.docs)
    for name, text in (("claims.md", page(results)), ("claims/details.md", details(results))):
        target = options.docs / name
        if not options.check:
            target.write_text(text)
        elif not target.exists() or target.read_text() != text:
            sys.exit(f"{target} is not what the result files say: run python -m benchmarks.claims")
    if not options.check:
        print(f"{len(CLAIMS)} claims written to {options.docs / 'claims.md'}")
