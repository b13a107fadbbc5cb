"""What makes features of the tokens of texts: the text tower of CLIP, in layers of our own, and sentence encoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from remix.networks.transformer_layer import TransformerLayer

__all__ = ["ClipTexts", "Encoder", "Sentences"]


class Encoder(nn.Module):
    """Base class: tokens of texts -> features, frozen.

    Attributes:
        feature_dim: length of a feature.
        width: of an embedded token.
        longest: most tokens of a text.
        adapted: how many adapters it takes, one for every layer; 0 if it takes none.
        scale: of cosines between texts and images.

    """

    feature_dim: int
    width: int
    longest: int
    adapted: int = 0
    scale: float = 100.0

    def embed(self, numbers: Tensor) -> Tensor:
        """Tokens (N, L) as vectors (N, L, D)."""
        raise NotImplementedError

    def encode(self, embedded: Tensor, mask: Tensor, adapters: Sequence[nn.Module] = ()) -> Tensor:
        """Features (N, F) of embedded tokens (N, L, D), of which the mask (N, L) says which are real."""
        raise NotImplementedError


class ClipTexts(Encoder):
    """The text tower of CLIP: causal layers, then the projection of the last token.

    Args:
        config: of a ``CLIPTextModelWithProjection``.

    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.width, self.longest, self.feature_dim = (
            config.hidden_size, config.max_position_embeddings, config.projection_dim,
        )  # fmt: skip
        self.tokens = nn.Embedding(config.vocab_size, self.width)
        self.positions = nn.Embedding(self.longest, self.width)
        self.layers = nn.ModuleList(
            TransformerLayer(
                self.width, config.num_attention_heads, config.intermediate_size, config.hidden_act,
                config.layer_norm_eps, causal=True,
            )
            for _ in range(config.num_hidden_layers)
        )  # fmt: skip
        self.norm = nn.LayerNorm(self.width, eps=config.layer_norm_eps)
        self.projection = nn.Linear(self.width, self.feature_dim, bias=False)
        self.adapted = len(self.layers)

    def embed(self, numbers: Tensor) -> Tensor:
        """Without positions."""
        found: Tensor = self.tokens(numbers)
        return found

    def encode(self, embedded: Tensor, mask: Tensor, adapters: Sequence[nn.Module] = ()) -> Tensor:
        """What the last real token of every text has seen; what comes behind it, it does not see."""
        x = embedded + self.positions.weight[: embedded.shape[1]]
        for number, layer in enumerate(self.layers):
            x = layer(x, adapters[number]) if adapters else layer(x)
        last = self.norm(x[torch.arange(len(x), device=x.device), mask.sum(1) - 1])
        features: Tensor = self.projection(last)
        return features


class Sentences(Encoder):
    """A sentence encoder and a linear map to the features of an image network.

    Features are (unit(mean over tokens) - mean) projection.

    Args:
        model: a ``BertModel``.
        projection: (D, F).
        mean: (D,).

    Raises:
        ValueError: if these do not fit together.

    """

    def __init__(self, model: Any, projection: Tensor, mean: Tensor) -> None:
        super().__init__()
        self.width, self.longest = model.config.hidden_size, model.config.max_position_embeddings
        if projection.dim() != 2 or len(projection) != self.width or mean.shape != (self.width,):
            raise ValueError(
                f"the projection is {tuple(projection.shape)} and its text_mean {tuple(mean.shape)}, and the sentence "
                f"encoder gives {self.width} numbers: they belong to different models"
            )
        self.model, self.feature_dim = model, projection.shape[1]
        self.projection: Tensor
        self.mean: Tensor
        self.register_buffer("projection", projection.float())
        self.register_buffer("mean", mean.float())

    def embed(self, numbers: Tensor) -> Tensor:
        """Without positions."""
        found: Tensor = self.model.embeddings.word_embeddings(numbers)
        return found

    def encode(self, embedded: Tensor, mask: Tensor, adapters: Sequence[nn.Module] = ()) -> Tensor:
        """The mean of all real tokens, projected."""
        found: Tensor = self.model(inputs_embeds=embedded, attention_mask=mask).last_hidden_state
        weights = mask[..., None].to(found)
        sentences = normalize((found * weights).sum(1) / weights.sum(1))
        projected: Tensor = (sentences - self.mean) @ self.projection
        return projected
