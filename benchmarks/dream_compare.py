"""Dreams of `remix dream` side by side, scored by a network that had no part in them.

    python -m benchmarks.dream_compare --data DIR --out docs/dreams/maps NAME=FILE.safetensors [NAME=FILE ...]

Files of one name (several seeds) are scored together; of each name the first file is shown. DIR as for `dream_photos`,
whose judge this is.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from benchmarks.dream_data import IMAGENETTE_NAMES, Images
from benchmarks.dream_grids import grid
from benchmarks.dream_photos import Judge
from benchmarks.features import IMAGENET_MEAN, IMAGENET_STD
from remix.deploy.dream_files import load_dream


def read(files: list[Path]) -> Images:
    """Dreams as the judge takes them, labels in the order of `IMAGENETTE_NAMES`."""
    pixels, labels = [], []
    for file in files:
        dream = load_dream(file)
        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
        pixels.append((dream.images.float() - mean) / std)
        labels.append(torch.tensor([IMAGENETTE_NAMES.index(dream.classes[int(label)]) for label in dream.labels]))
    return Images(torch.cat(pixels), torch.cat(labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with imagenette/ and weights/")
    parser.add_argument("--out", type=Path, required=True, help="results, without their ending")
    parser.add_argument("dreams", nargs="+", help="NAME=FILE.safetensors")
    options = parser.parse_args()
    files: dict[str, list[Path]] = {}
    for word in options.dreams:
        name, _, file = word.partition("=")
        files.setdefault(name, []).append(Path(file))
    judge = Judge(options.data, 2)
    rows, columns = {}, {}
    for name, found in files.items():
        images = read(found)
        rows[name] = {"images": len(images), **judge(images)}
        present = sorted(set(images.labels.tolist()))
        first = read(found[:1])
        places = torch.tensor([present.index(int(label)) for label in first.labels])
        columns[name] = Images(first.pixels, places)
    names = [IMAGENETTE_NAMES[label] for label in present]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    record = {"judge's accuracy on held-out photographs": judge.accuracy, "rows": rows}
    options.out.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    grid(options.out.with_suffix(".png"), columns, names, (IMAGENET_MEAN, IMAGENET_STD), each=2)
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
