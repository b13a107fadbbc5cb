from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from remix.networks import create_backbone
from remix.networks.cifar_resnet import CifarResNet, ResidualBlock


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def batch_norms(module: nn.Module) -> list[int]:
    return [m.num_features for m in module.modules() if isinstance(m, nn.BatchNorm2d)]


def test_resnet32_has_the_counts_of_the_paper():
    net = create_backbone("resnet32")
    assert parameters(net) == 463_504
    assert parameters(net.stem) == 432 + 32
    assert [parameters(getattr(net, f"stage_{k}")) for k in (1, 2, 3, 4)] == [23_360, 88_192, 277_504, 73_984]
    assert len(net.blocks()) == 16
    assert net.feature_dim == 64
    widths = batch_norms(net)
    assert (len(widths), widths.count(16), widths.count(32), widths.count(64)) == (31, 11, 10, 10)


@pytest.mark.parametrize("depth", [20, 32, 44, 56])
def test_depth_counts_blocks_and_stages(depth):
    net = create_backbone(f"resnet{depth}", width=2)
    n = (depth - 2) // 6
    assert [len(getattr(net, f"stage_{k}")) for k in (1, 2, 3, 4)] == [n, n, n - 1, 1]
    assert len(net.blocks()) == 3 * n + 1
    assert len(batch_norms(net)) == depth - 1
    assert net.blocks()[0].name == "stem"
    assert net.blocks()[-1].name == "stage_4.0"


@pytest.mark.parametrize(("size", "expected"), [(32, 8), (64, 16)])
def test_feature_map_keeps_a_quarter_of_the_size(size, expected):
    net = create_backbone("resnet20", width=4, input_shape=(3, size, size)).eval()
    assert net.features(torch.zeros(1, 3, size, size)).shape == (1, 16, expected, expected)


def test_residual_branches_start_at_zero():
    net = create_backbone("resnet20", width=4).eval()
    x = torch.randn(2, 4, 8, 8)
    assert torch.equal(net.stage_1[0](x), x)


@pytest.mark.parametrize(("padding", "expected"), [("append", [0, 1, None, None]), ("symmetric", [None, 0, 1, None])])
def test_shortcut_takes_every_second_pixel_and_adds_zero_channels(padding, expected):
    block = ResidualBlock(2, 4, final_relu=False, padding=padding)
    x = torch.randn(3, 2, 6, 6)
    out = block.shortcut(x)
    for channel, source in enumerate(expected):
        want = torch.zeros(3, 3, 3) if source is None else x[:, source, ::2, ::2]
        assert torch.equal(out[:, channel], want)


def test_only_final_relu_makes_the_stream_non_negative():
    x = torch.randn(2, 3, 32, 32)
    assert create_backbone("resnet20", width=4, final_relu=True).features(x).min() >= 0
    assert CifarResNet(14, width=4, final_relu=False).stage_1[0](x[:, :1].expand(-1, 4, -1, -1)).min() < 0


@pytest.mark.parametrize("final_relu", [False, True])
@pytest.mark.parametrize("padding", ["append", "symmetric"])
def test_equals_the_network_written_out(final_relu, padding):
    net = create_backbone("resnet20", width=4, final_relu=final_relu, padding=padding).double().eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.normal_(module.running_mean)
    state = net.state_dict()

    def norm(x: torch.Tensor, key: str) -> torch.Tensor:
        mean, var, weight, bias = (
            state[f"{key}.{part}"].view(1, -1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    x = norm(F.conv2d(images, state["stem.conv.weight"], padding=1), "stem.bn").clamp(min=0)
    for key in ["1.0", "1.1", "1.2", "2.0", "2.1", "2.2", "3.0", "3.1", "4.0"]:
        key = f"stage_{key}"
        stride = 2 if key in ("stage_2.0", "stage_3.0") else 1
        h = norm(F.conv2d(x, state[f"{key}.conv1.weight"], padding=1, stride=stride), f"{key}.bn1").clamp(min=0)
        h = norm(F.conv2d(h, state[f"{key}.conv2.weight"], padding=1), f"{key}.bn2")
        if stride == 2:
            kept, zeros = x[..., ::2, ::2], torch.zeros_like(x[..., ::2, ::2])
            half = zeros[:, : zeros.shape[1] // 2]
            x = torch.cat([kept, zeros] if padding == "append" else [half, kept, half], 1)
        x = h + x
        x = x.clamp(min=0) if final_relu else x
    torch.testing.assert_close(net.features(images), x)


@pytest.mark.parametrize("depth", [8, 18, 33])
def test_impossible_depth_is_refused(depth):
    with pytest.raises(ValueError, match=rf"depth must be 6n \+ 2 .* got {depth}"):
        CifarResNet(depth)


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="padding must be 'append' or 'symmetric', got 'left'"):
        create_backbone("resnet20", padding="left")
    with pytest.raises(ValueError, match="width must be at least 1, got 0"):
        create_backbone("resnet20", width=0)


def test_a_stem_of_stride_2_gives_64_pixels_the_maps_of_32():
    small = create_backbone("resnet20", width=4).eval()
    large = create_backbone("resnet20", width=4, stem_stride=2, input_shape=(3, 64, 64)).eval()
    large.load_state_dict(small.state_dict())
    x = torch.randn(2, 3, 64, 64)
    stem = F.relu(large.stem.bn(F.conv2d(x, large.stem.conv.weight, padding=1)[:, :, ::2, ::2]))
    torch.testing.assert_close(large.stem(x), stem)
    assert large.features(x).shape == small.features(x[:, :, ::2, ::2]).shape == (2, 16, 8, 8)


def test_the_stride_of_the_stem_draws_the_same_weights_and_must_be_positive():
    one, two = (
        create_backbone("resnet20", width=4, stem_stride=stride, generator=torch.Generator().manual_seed(1))
        for stride in (1, 2)
    )
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    with pytest.raises(ValueError, match="stem_stride must be at least 1, got 0"):
        create_backbone("resnet20", stem_stride=0)
