from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from remix.networks import Hooks, Point


def hooked(network: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in network.modules())


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def test_inputs_and_outputs_are_the_networks_own_tensors():
    network, x = small(), torch.randn(5, 3)
    with Hooks(network, ["0:input", "0:output", "1:input", ":output"]) as hooks:
        y = network(x)
    assert hooks["0:input"] is x
    assert hooks["1:input"] is hooks["0:output"]
    assert hooks[":output"] is y


def test_points_are_listed_in_the_order_data_reached_them():
    network = small()
    with Hooks(network, ["3:input", "0:input", "1:output"]) as hooks:
        network(torch.randn(5, 3))
    assert [str(point) for point in hooks] == ["0:input", "1:output", "3:input"]


def test_gradients_flow_through_a_capture():
    network, x = small(), torch.randn(5, 3, requires_grad=True)
    with Hooks(network, ["1:input"]) as hooks:
        network(x)
        hooks["1:input"].square().sum().backward()
    expected = 2 * network[0](x.detach()) @ network[0].weight
    assert torch.allclose(x.grad, expected, atol=1e-6)


def test_hooks_are_gone_afterwards_also_after_an_exception():
    network = small()
    with Hooks(network, ["1:input", "2:output"]):
        assert hooked(network) == 2
    assert hooked(network) == 0
    with pytest.raises(RuntimeError, match="shapes"), Hooks(network, ["1:input", "2:output"]):
        network(torch.randn(5, 7))
    assert hooked(network) == 0


def test_modes_are_left_as_they_are():
    network = small()
    network[1].eval()
    modes = [module.training for module in network.modules()]
    with Hooks(network, ["1:input"]):
        network(torch.randn(5, 3))
        assert [module.training for module in network.modules()] == modes
    assert [module.training for module in network.modules()] == modes


def test_nested_taps_see_the_same_run_and_leave_each_other_alone():
    network, x = small(), torch.randn(5, 3)
    with Hooks(network, ["1:input"]) as outer:
        with Hooks(network, ["1:input"]) as inner:
            network(x)
        first = inner["1:input"]
        assert outer["1:input"] is first
        network(x)
        assert outer["1:input"] is not first
        assert inner["1:input"] is first


def test_one_object_cannot_be_open_twice():
    hooks = Hooks(small(), ["1:input"])
    with hooks, pytest.raises(RuntimeError, match="open already"), hooks:
        pass


def test_taps_of_another_thread_do_not_see_this_ones_run():
    network = small()
    opened, ran, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        with Hooks(network, ["1:input"]) as hooks:
            opened.set()
            ran.wait(10)
            seen.append("1:input" in hooks)

    thread = threading.Thread(target=other)
    thread.start()
    opened.wait(10)
    network(torch.randn(5, 3))
    ran.set()
    thread.join()
    assert seen == [False]


def test_unknown_module_lists_close_names(network):
    with pytest.raises(ValueError, match=r"no module 'stage_1.0.bn3'.*stage_1.0.bn1"):
        Hooks(network, ["stage_1.0.bn3:input"])


def test_point_without_a_side_says_how_to_write_it():
    with pytest.raises(ValueError, match="'1:input' or '1:output'"):
        Hooks(small(), ["1"])


def test_point_given_twice_is_refused():
    with pytest.raises(ValueError, match="more than once"):
        Hooks(small(), ["1:input", Point("1", "input")])


def test_point_round_trips_through_text():
    for text in ("stage_1.0.bn1:input", ":output", "a:b:output"):
        assert str(Point.parse(text)) == text


def test_reading_what_was_not_captured_says_why():
    network = small()
    with Hooks(network, ["1:input"]) as hooks:
        with pytest.raises(KeyError, match="did not run"):
            hooks["1:input"]
        with pytest.raises(KeyError, match="not watched"):
            hooks["2:input"]


def test_a_tensor_overwritten_in_place_is_not_handed_out():
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with Hooks(network, ["0:output"]) as hooks, torch.no_grad():
        network(torch.randn(5, 3))
        with pytest.raises(RuntimeError, match="overwritten in place"):
            hooks["0:output"]


def test_inference_mode_works():
    network = small().eval()
    with Hooks(network, ["1:input"]) as hooks, torch.inference_mode():
        network(torch.randn(5, 3))
    assert hooks["1:input"].shape == (5, 4)


def test_keyword_inputs_and_tuple_outputs_are_captured():
    attention = nn.MultiheadAttention(4, 1, batch_first=True)
    x = torch.randn(2, 3, 4)
    with Hooks(attention, [":input", ":output"]) as hooks:
        y, _ = attention(query=x, key=x, value=x)
    assert hooks[":input"] is x
    assert hooks[":output"] is y


def test_runs_are_counted_and_cleared():
    shared = nn.ReLU()
    network = nn.Sequential(nn.Linear(3, 3), shared, nn.Linear(3, 3), shared)
    with Hooks(network, ["1:input"]) as hooks:
        network(torch.randn(5, 3))
        assert hooks.runs("1:input") == 2
        hooks.clear()
        assert hooks.runs("1:input") == 0


def test_what_goes_through_a_tap_can_be_replaced():
    class Sum(nn.Module):
        def forward(self, x, *, y):
            return x + y, "note"

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Sum()

        def forward(self, x):
            total, note = self.inner(x=x, y=x)
            assert note == "note"
            return total

    net, ones = Outer(), torch.ones(2)
    seen = []

    def through(point, tensor):
        seen.append(str(point))
        return tensor * 10

    with Hooks(net, ["inner:input", "inner:output"], through) as hooks:
        assert torch.equal(net(ones), torch.full((2,), 110.0))  # (10 + 1) * 10: the first tensor is replaced
    assert seen == ["inner:input", "inner:output"]
    assert torch.equal(hooks["inner:input"], torch.full((2,), 10.0))
    assert torch.equal(hooks["inner:output"], torch.full((2,), 110.0))
    assert torch.equal(net(ones), torch.full((2,), 2.0))
