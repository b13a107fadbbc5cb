"""The head of AttriCLIP: texts about a class with prompts that the image itself chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from remix.networks.heads import register_head
from remix.networks.text_head import TextHead, spoken

__all__ = ["AttributeHead", "Attributes"]

_PAIRS, _CHOSEN, _LENGTH, _STD, _WIDEST = 10, 3, 12, 0.02, 1 << 16


class Attributes(nn.Module):
    """Pairs of a key, which an image feature is compared with, and a prompt, embedded tokens of a text.

    Args:
        feature_dim: length of a key.
        width: of an embedded token.

    """

    def __init__(self, feature_dim: int, width: int) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.empty(_PAIRS, feature_dim))
        self.prompts = nn.Parameter(torch.empty(_PAIRS, _LENGTH, width))
        self.draw(torch.Generator().manual_seed(0))

    @torch.no_grad()
    def draw(self, generator: torch.Generator) -> None:
        """Begin anew."""
        for parameter in self.parameters():
            if not parameter.is_meta:
                parameter.copy_(_STD * torch.randn(parameter.shape, generator=generator, device=generator.device))

    def chosen(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """For features (N, F) the pairs whose keys are nearest, (N, 3) in ascending order, and their cosines (N, 3)."""
        cosines = normalize(features) @ normalize(self.keys).T
        pairs = cosines.topk(_CHOSEN, 1).indices.sort(1).values
        return pairs, cosines.gather(1, pairs)


@register_head("attributes")
class AttributeHead(TextHead):
    """Cosines between features and texts that begin with the prompts of the three keys nearest to the feature.

    So texts are not the same for all images, and the tower is needed wherever images are classified.

    Attributes:
        attributes: keys and prompts, which learn.

    Args:
        feature_dim, place, projection, templates: as of `TextHead`; prompts stand in for templates.
        adapted: must be False.
        width: of an embedded token, where there is no tower to tell.

    """

    _room = _CHOSEN * _LENGTH

    def __init__(self, feature_dim: int, *, adapted: bool = False, width: int = 1, **options: Any) -> None:
        if adapted:
            raise ValueError("a head of attributes learns prompts, not adapters: leave adapters out")
        super().__init__(feature_dim, **options)
        self.attributes = Attributes(feature_dim, width if self.place is None else self._tower().encoder.width)

    def newest(self) -> nn.Module:
        """Keys and prompts, which all classes share."""
        return self.attributes

    def start_over(self, *, generator: torch.Generator | None = None) -> None:
        """Forget what keys and prompts learned."""
        self.attributes.draw(generator or torch.Generator().manual_seed(0))

    def texts(self, pairs: Tensor, first: int = 0) -> Tensor:
        """Vectors (P, K, F) of classes from ``first`` on, with the prompts of several choices of pairs (P, 3)."""
        names = [spoken(name) + "." for task in self.names for name in task][first:]
        tower = self._tower()
        numbers, mask = tower.tokens(names, self._room)
        prompts = self.attributes.prompts[pairs].flatten(1, 2)
        return torch.stack([self._encoded(tower.encoder.embed(numbers), mask, prompt) for prompt in prompts])

    def prompted(self) -> Tensor:
        """Vectors (pairs, F) of texts of the prompts alone."""
        tower = self._tower()
        numbers, mask = tower.tokens(["."])
        embedded = tower.encoder.embed(numbers)
        return torch.cat([self._encoded(embedded, mask, prompt) for prompt in self.attributes.prompts])

    def _encoded(self, embedded: Tensor, mask: Tensor, prompt: Tensor) -> Tensor:
        """Vectors of unit length of embedded texts (K, L, D) with a prompt (P, D) behind their first token."""
        count = len(embedded)
        x = torch.cat([embedded[:, :1], prompt.expand(count, -1, -1), embedded[:, 1:]], 1)
        real = torch.cat([mask[:, :1], mask.new_ones(count, len(prompt)), mask[:, 1:]], 1)
        return normalize(self._tower().encoder.encode(x, real))

    def logits(self, features: Tensor, first: int = 0) -> Tensor:
        """Of classes from ``first`` on: (N, K). Texts are made once for every choice of pairs."""
        choices, which = self.attributes.chosen(features)[0].unique(dim=0, return_inverse=True)
        vectors = self.texts(choices, first)[which]
        return self.scale * torch.einsum("nf,nkf->nk", normalize(features), vectors)

    def forward(self, features: Tensor) -> Tensor:
        """Pooled features (N, feature_dim) -> logits (N, classes). Raises RuntimeError without classes."""
        if not self.names:
            raise RuntimeError("the head has no classes yet: call grow(names) first")
        return self.logits(features)

    def describe(self) -> dict[str, Any]:
        """As of `TextHead`, and the width of a token."""
        return {**super().describe(), "width": self.attributes.prompts.shape[2]}

    @classmethod
    def from_description(cls, feature_dim: int, described: Mapping[str, Any]) -> AttributeHead:
        """Build it again; the tower is opened when it is needed."""
        width = _width(described)
        head = super().from_description(feature_dim, described)
        assert isinstance(head, AttributeHead)
        head.attributes = Attributes(feature_dim, width)
        return head

    @classmethod
    def shapes(cls, feature_dim: int, described: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Of keys and prompts besides those of a text head."""
        found = super().shapes(feature_dim, described)
        found["attributes.keys"] = (_PAIRS, feature_dim)
        found["attributes.prompts"] = (_PAIRS, _LENGTH, _width(described))
        return found

    def plain(self) -> nn.Module:
        """There is none."""
        raise ValueError("a head of attributes reads texts for every image: it cannot be exported without its tower")


def _width(described: Mapping[str, Any]) -> int:
    width = described["width"]
    if type(width) is not int or not 1 <= width <= _WIDEST:
        raise ValueError(f"the tokens of its head are described as {str(width)[:60]}")
    return width
