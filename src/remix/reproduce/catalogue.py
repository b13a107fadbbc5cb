"""Every table and figure of the paper: what makes it here, and what has to be brought for it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PAPER", "Part"]


@dataclass(frozen=True)
class Part:
    """A table or figure of the paper, or what it only says.

    Attributes:
        name: "table 1", numbered in the order of the paper's text, the appendix included; or "text".
        shows: what is in it.
        command: that makes it at the paper's scale; empty where nothing here does.
        needs: what has to be brought; where nothing makes it, why.
        gpu: whether the paper's scale needs one; smaller scales never do.

    """

    name: str
    shows: str
    command: str
    needs: str = ""
    gpu: bool = False


_BOTH = "CIFAR-100, Tiny-ImageNet"
_CLIP = "CLIP ViT-B/16"
_PHOTOGRAPHS = "photographs of 4 ImageNet classes, a ResNet-34"

PAPER = (
    Part("figure 1", "the pipeline, a drawing", "figures"),
    Part("figure 2", "how the covariance is built, a drawing", "figures"),
    Part("table 1", "methods on CIFAR-100 and Tiny-ImageNet, ResNet-32", "table1 --scale paper", _BOTH, gpu=True),
    Part("table 2", "methods on CIFAR-100 and CUB-200, CLIP", "table2 --scale paper", f"CIFAR-100, CUB-200, {_CLIP}",
         gpu=True),
    Part("figure 3", "samples, ResNet-34 and ViT", "samples --scale paper", f"{_PHOTOGRAPHS}; with --vit DIR a ViT",
         gpu=True),
    Part("figure 4", "log-likelihood of maps, ResNet-34", "likelihood --scale paper", _PHOTOGRAPHS),
    Part("figure 5", "weight of the Laplace term, CLIP on CUB-200",
         "lambda --scale paper --preset cub200-clip-10", f"CUB-200, {_CLIP}", gpu=True),
    Part("figure 6", "new and old tasks, CIFAR-100", "retention --scale paper", "CIFAR-100", gpu=True),
    Part("table 3", "chosen weights of the Laplace term", "lambda --scale paper --preset tiny-10",
         f"{_BOTH}, CUB-200, {_CLIP}: a preset at a time", gpu=True),
    Part("table 4", "table 1 with standard deviations", "table1 --scale paper", _BOTH, gpu=True),
    Part("figure 7", "new and old tasks, Tiny-ImageNet", "retention --scale paper --preset tiny-10", "Tiny-ImageNet",
         gpu=True),
    Part("text", "layer-wise inversion converges faster than that of pixels", "convergence --scale paper",
         "CIFAR-100", gpu=True),
    Part("figure 8", "samples, ViT-B/16", "samples --scale paper --vit DIR",
         "photographs of 4 ImageNet classes, a ViT-B/16", gpu=True),
    Part("figure 9", "samples, ResNet-34", "samples --scale paper", _PHOTOGRAPHS, gpu=True),
    Part("figure 10", "log-likelihood of blocks, ViT-B/16", "likelihood --scale paper --vit DIR",
         "photographs of 4 ImageNet classes, a ViT-B/16"),
    Part("table 5", "memory of covariances", "memory"),
    Part("table 6", "time and memory of PMI and REMIX, ResNet-32", "efficiency --scale paper", "CIFAR-100", gpu=True),
    Part("table 7", "time and memory of PMI and REMIX, CLIP",
         "efficiency --scale paper --preset cifar100-clip-10", f"CIFAR-100, {_CLIP}", gpu=True),
)  # fmt: skip
"""In the order of the paper."""
