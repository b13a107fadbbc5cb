"""A real ViT-B/16 through ``hf:PATH`` on photographs: how often its first guess of 1,000 classes is right.

    python -m benchmarks.real_vit --network FOLDER --data DIR --out docs/bench/real_vit.json

The folder is a ViT with its ImageNet head, DIR has one sub-folder of photographs per class, called as ImageNet does.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from remix.data import load
from remix.networks import open_network


def main() -> None:
    """Test at every size and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", required=True, help="transformers folder")
    parser.add_argument("--data", required=True, help="folder of photographs")
    parser.add_argument("--sizes", default="224,112", help="pixels")
    parser.add_argument("--out", default="docs/bench/real_vit.json")
    typed = parser.parse_args()
    found: dict[str, Any] = {"command": f"python -m benchmarks.real_vit --sizes {typed.sizes}", "sizes": {}}
    for size in map(int, typed.sizes.split(",")):
        found["sizes"][str(size)] = tested(typed.network, Path(typed.data), size)
        print(size, json.dumps(found["sizes"][str(size)]), flush=True)
        Path(typed.out).write_text(json.dumps(found, indent=2) + "\n")


@torch.no_grad()
def tested(network: str, folder: Path, size: int) -> dict[str, Any]:
    """Percent of the photographs that are read right, of all classes and among those of the folder."""
    opened = open_network(f"hf:{network}", size=size)
    prepared = opened.preprocessing
    data = load("folder", folder, size=size, holdout=0.0, resample=prepared.resample).train
    known = {name.lower().replace(" ", "_"): number for number, name in enumerate(opened.names)}
    outputs = torch.tensor([known[name] for name in data.classes])
    assert opened.head is not None
    right, among, began = 0, 0, time.process_time()
    for rows in torch.arange(len(data)).split(20):
        images, labels = data.batch(rows)
        logits = opened.head(opened.backbone.pooled(prepared.normalisation.normalise(images)))
        right += int((logits.argmax(1) == outputs[labels]).sum())
        among += int((logits[:, outputs].argmax(1) == labels).sum())
    count = len(data)
    return {
        "photographs": count, "classes": len(outputs), "top1_of_1000": round(100 * right / count, 2),
        "top1_among_these": round(100 * among / count, 2), "processor_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


if __name__ == "__main__":
    main()
