"""``python -m benchmarks [--quick] [--out DIR]``: measures, prints a table, writes JSON, Markdown and a picture."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks import report, speed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast it is")
    parser.add_argument("--out", type=Path, default=Path("docs/bench"), help="folder for the results")
    options = parser.parse_args()
    results = speed.measure(options.quick)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "speed.json").write_text(json.dumps(results, indent=1) + "\n")
    page = report.markdown(results)
    (options.out / "speed.md").write_text(page)
    report.picture(results, options.out / "speed.png")
    print(page)
    print(f"written to {options.out}/speed.json, speed.md, speed.png")


if __name__ == "__main__":
    main()
