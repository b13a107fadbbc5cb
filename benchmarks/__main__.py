"""``python -m benchmarks [--quick] [--only PART] [--out DIR]``: prints tables, writes JSON, Markdown, pictures."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks import (
    inversion,
    inversion_report,
    report,
    scale,
    scale_report,
    speed,
    transformer,
    transformer_report,
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast it is")
    parser.add_argument(
        "--only",
        choices=("speed", "inversion", "transformer", "scale"),
        help="one part: remix.laplace, remix.inversion, that of a ViT-B/16, large fits",
    )
    parser.add_argument("--out", type=Path, default=Path("docs/bench"), help="folder for the results")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    parts: tuple[tuple[str, Any, Any], ...] = (
        ("speed", speed, report),
        ("inversion", inversion, inversion_report),
        ("transformer", transformer, transformer_report),
        ("scale", scale, scale_report),
    )
    for name, module, pages in parts:
        if options.only not in (None, name):
            continue
        results = {
            "command": f"python -m benchmarks --only {name}",
            "machine": speed.machine(),
            **module.measure(options.quick),
        }
        (options.out / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
        page = pages.markdown(results)
        (options.out / f"{name}.md").write_text(page)
        written = [f"{name}.json", f"{name}.md"]
        if hasattr(pages, "picture"):
            pages.picture(results, options.out / f"{name}.png")
            written.append(f"{name}.png")
        print(page)
        print(f"written to {options.out}/{', '.join(written)}", flush=True)


if __name__ == "__main__":
    main()
