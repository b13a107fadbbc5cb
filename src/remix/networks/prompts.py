"""Prompts: learned tokens that a layer of a transformer sees beside those of the image, while all else stays."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

__all__ = ["CodaPrompts", "DeepPrompts", "PassedQuery", "VisualPrompts"]

_PROMPTS, _STD = 10, 0.02
_POOL, _TASKS, _LENGTH = 100, 10, 8
Run = Callable[[Tensor], Tensor]


def _new_prompts(width: int) -> nn.Parameter:
    return nn.Parameter(_STD * torch.randn(1, _PROMPTS, width))


class VisualPrompts(nn.Module):
    """Tokens that come behind those of the image and go with them through all layers.

    Args:
        width: of a token.

    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens = _new_prompts(width)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (N, L, D) with the prompts."""
        return torch.cat([x, self.tokens.expand(len(x), -1, -1)], 1)


class DeepPrompts(nn.Module):
    """Tokens of one layer's own: the layer sees them behind those of the image, and what it makes of them is dropped.

    Args:
        width: of a token.

    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens = _new_prompts(width)

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """What the layer ``run`` makes of tokens (N, L, D)."""
        return _beside(x, self.tokens.expand(len(x), -1, -1), run)


class CodaPrompts(nn.Module):
    """Prompts put together for every image (CODA-P): of a pool, each component by how well its key fits a query.

    The query, the CLS feature that the network has without prompts, is the last of the tokens and is passed on as it
    is. prompts(q) = sum_k cos(q a_k, key_k) component_k. A tenth of the pool learns with every task; begun at values
    orthogonal to all before, which stay as they are. Before the first task the whole pool learns.

    Args:
        width: D of a token.

    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.components = nn.Parameter(torch.rand(_POOL, _LENGTH, width))
        self.keys = nn.Parameter(torch.rand(_POOL, width))
        self.attention = nn.Parameter(torch.rand(_POOL, width))
        self.used: Tensor
        self.register_buffer("used", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def begin_task(self, task: int) -> None:
        """Let the next part of the pool learn. Raises ValueError where it is used up."""
        share = _POOL // _TASKS
        if task >= _TASKS:
            raise ValueError(f"the pool of coda prompts has room for {_TASKS} tasks, and this is task {task + 1}")
        self.used.fill_((task + 1) * share)
        for parameter in self.parameters():
            _orthogonalise(parameter.view(_POOL, -1), task * share, (task + 1) * share)

    def prompts(self, query: Tensor) -> Tensor:
        """Those of queries (N, D): (N, length, D)."""
        components, keys, attention = (self._used(one) for one in (self.components, self.keys, self.attention))
        fits = (normalize(query[:, None] * attention, dim=2) * normalize(keys, dim=1)).sum(2)
        return torch.einsum("nk,kld->nld", fits, components)

    def _used(self, parameter: Tensor) -> Tensor:
        used = int(self.used)
        if not used:
            return parameter
        new = used - _POOL // _TASKS
        return torch.cat([parameter[:new].detach(), parameter[new:used]])

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """What the layer ``run`` makes of tokens (N, L, D) before a query (N, 1, D), and the query."""
        tokens, query = x[:, :-1], x[:, -1:]
        return torch.cat([_beside(tokens, self.prompts(query[:, 0]), run), query], 1)


class PassedQuery(nn.Module):
    """A layer without prompts in a network that has them: the query is passed on beside it."""

    def forward(self, x: Tensor, run: Run) -> Tensor:
        """What the layer ``run`` makes of all tokens but the last, and that one."""
        return torch.cat([run(x[:, :-1]), x[:, -1:]], 1)


def _beside(x: Tensor, prompts: Tensor, run: Run) -> Tensor:
    return run(torch.cat([x, prompts], 1))[:, : x.shape[1]]


def _orthogonalise(rows: Tensor, first: int, end: int) -> None:
    """Make rows ``first`` to ``end`` of unit length and orthogonal to those before, in place (Gram-Schmidt).

    As many as there are dimensions can be; further ones stay as they are, of unit length.
    """
    for row in range(first, end):
        before = normalize(rows[:row], dim=1)
        rest = rows[row] - (rows[row] @ before.T) @ before if row < rows.shape[1] else rows[row]
        rows[row] = normalize(rest, dim=0)
