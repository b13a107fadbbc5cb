from __future__ import annotations

import pytest
import torch

from remix.statistics import as_view, list_views

X4 = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
X3 = torch.arange(2 * 3 * 4.0).reshape(2, 3, 4)


def test_channels_makes_a_row_of_every_position():
    rows = as_view("channels").rows(X4)
    expected = [X4[n, :, h, w] for n in range(2) for h in range(4) for w in range(5)]
    assert torch.equal(rows, torch.stack(expected))
    assert torch.equal(as_view("channels").rows(X4[:, :, 0, 0]), X4[:, :, 0, 0])


def test_map_makes_a_row_of_every_image():
    assert torch.equal(as_view("map").rows(X4), X4.flatten(1))
    assert as_view("map").layout((3, 4, 5)) == (3, 4, 5)


def test_token_positions_makes_a_row_of_every_feature():
    expected = [X3[n, :, d] for n in range(2) for d in range(4)]
    assert torch.equal(as_view("token-positions").rows(X3), torch.stack(expected))


def test_token_channels_makes_a_row_of_every_token():
    expected = [X3[n, i] for n in range(2) for i in range(3)]
    assert torch.equal(as_view("token-channels").rows(X3), torch.stack(expected))


def test_patches_are_the_map_that_they_were_cut_from_without_the_tokens_before():
    maps = torch.randn(2, 3, 4, 4)
    tokens = torch.cat([torch.full((2, 2, 3), 99.0), maps.flatten(2).mT], 1)  # CLS and distillation tokens come first
    assert torch.equal(as_view("patches").rows(tokens), maps.flatten(1))
    assert as_view("patches").layout((18, 3)) == (3, 4, 4)
    torch.testing.assert_close(as_view("pooled-patches").rows(tokens), maps.mean((2, 3)))


@pytest.mark.parametrize("name", list_views())
def test_names_round_trip_and_dim_is_that_of_the_rows(name):
    view = as_view(name)
    assert as_view(view.name) is view
    assert as_view(view) is view
    x = X4 if name in ("channels", "map") else X3
    assert view.dim(tuple(x.shape[1:])) == view.rows(x).shape[1]


@pytest.mark.parametrize("name", list_views())
def test_wrong_rank_is_refused_with_both_shapes(name):
    wrong = X3 if name in ("channels", "map") else X4
    with pytest.raises(ValueError, match=rf"view '{name}' reads activations \(N, .*got \(N, 3, 4"):
        as_view(name).rows(wrong)


def test_unknown_view_lists_the_known():
    with pytest.raises(ValueError, match="channels, token-positions, token-channels, map"):
        as_view("pixels")


def test_rows_are_differentiable():
    x = X4.clone().requires_grad_()
    as_view("channels").rows(x).square().sum().backward()
    assert torch.equal(x.grad, 2 * X4)
