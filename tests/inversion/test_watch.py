import threading

import pytest
import torch
from torch import nn

from remix.inversion import CovariancePrior, FeatureMatch, StatisticsKl, TensorVariable, Term, frozen
from remix.inversion.terms import LayerMoments
from remix.inversion.total_loss import TotalLoss
from remix.inversion.watch import Watch


class Derived(nn.BatchNorm2d):
    """Somebody's own layer: what it does is not known."""


def network(kind=nn.BatchNorm2d, **options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 5, 3), kind(5, **options), nn.ReLU(), nn.Conv2d(5, 3, 3), nn.Flatten()).double()
    for _ in range(3):
        net(torch.randn(20, 2, 7, 7).double() * 3 + 1)
    return net.eval()


def plain_twin(backbone, terms, layers, images):
    """Every term from activations by autograd alone, in the network's own way."""
    found = {}
    hooks = [
        backbone.get_submodule(layer.point.module).register_forward_pre_hook(
            lambda _, x, key=layer.key: found.__setitem__(key, x[0])
        )
        for layer in layers
    ]
    x = images.clone().requires_grad_()
    output = backbone.pooled(x)
    for hook in hooks:
        hook.remove()
    kl, nll = 0, []
    for layer in layers:
        a = found[layer.key]
        rows = layer.view.rows(a)
        running = backbone.get_submodule(layer.point.module)
        mean, variance = rows.mean(0), rows.var(0, correction=0) + 1e-8
        ratio = variance / running.running_var
        kl = kl + 0.5 * (ratio - 1 - ratio.log() + (mean - running.running_mean) ** 2 / running.running_var).mean()
        nll.append(-layer.prior("laplace").log_prob(rows).mean() / layer.dim)
    features = terms[0].loss.targets
    values = [(output - features).square().mean(), kl, torch.stack(nll).mean()]
    total = sum(term.weight * value for term, value in zip(terms, values, strict=True))
    return [value.item() for value in values], torch.autograd.grad(total, x)[0]


def test_value_and_gradient_are_those_of_plain_autograd(knowledge, part, images, generator):
    backbone = knowledge.backbone
    layers = [layer for key, layer in knowledge.layers.items() if "bn:input" in key]
    targets = torch.randn(10, 12, generator=generator, dtype=torch.float64)
    terms = [
        Term("features", 1.0, FeatureMatch(targets)),
        Term("kl", 0.25, StatisticsKl(knowledge.moments)),
        Term("prior", 0.5, CovariancePrior(layers, "laplace")),
    ]
    with frozen(backbone):
        objective = TotalLoss(terms, *part, TensorVariable(images))
        values, (gradient,) = objective.evaluate(generator, lambda _: {term.name: term.weight for term in terms})
        expected, slow = plain_twin(backbone, terms, layers, images)
    assert list(values.values()) == pytest.approx(expected, rel=1e-10)
    torch.testing.assert_close(gradient, slow, rtol=1e-9, atol=1e-13)


def moments_of(layer_statistics, net, name="1"):
    return LayerMoments(layer_statistics(net, name), full=True)


@pytest.fixture
def layer_statistics():
    from remix.statistics import measure_layers

    def measure(net, name):
        images = torch.randn(30, 2, 7, 7, generator=torch.Generator().manual_seed(2)).double()
        return next(iter(measure_layers(net, [images], [f"{name}:input"], "channels", ()).values()))

    return measure


@pytest.mark.parametrize(
    "options", [{}, {"affine": False}, {"eps": 0.1}, {"track_running_stats": False}, {"kind": Derived}]
)
def test_output_and_gradient_are_those_of_the_layer(layer_statistics, generator, options):
    net = network(**options)
    moments = moments_of(layer_statistics, net)
    watch = Watch(net, net, [moments])
    x = torch.randn(6, 2, 7, 7, generator=generator, dtype=torch.float64).requires_grad_()
    with frozen(net):
        plain = net(x)
        slow = torch.autograd.grad(plain.sin().sum(), x)[0]
        with watch.run(x, x, slice(0, 6)) as seen:
            torch.testing.assert_close(seen.output, plain)
            torch.testing.assert_close(torch.autograd.grad(seen.output.sin().sum(), x)[0], slow)
            rows = net[0](x).movedim(1, 3).reshape(-1, 5) - moments.layer.mean
            torch.testing.assert_close(seen.passed[moments.key][0], rows.mean(0))


def test_a_layer_that_is_trained_or_changed_is_heeded(layer_statistics, generator):
    net = network()
    moments = moments_of(layer_statistics, net)
    watch = Watch(net, net, [moments])
    x = torch.randn(6, 2, 7, 7, generator=generator, dtype=torch.float64)

    def ours():
        with watch.run(x, x, slice(0, 6)) as seen:
            return seen.output

    with frozen(net):
        torch.testing.assert_close(ours(), net(x))
        for change in (
            lambda layer: layer.running_mean.add_(1),
            lambda layer: setattr(layer.weight, "data", layer.weight.data * 2),
            lambda layer: layer.bias.add_(0.5),
            lambda layer: layer.weight.detach().numpy().__imul__(2),
            lambda layer: layer.running_var.data.mul_(3),
        ):
            change(net[1])
            torch.testing.assert_close(ours(), net(x))
    gradient = torch.autograd.grad(ours().sum(), net[1].weight)[0]
    torch.testing.assert_close(gradient, torch.autograd.grad(net(x).sum(), net[1].weight)[0])
    net.train()
    before = net[1].running_mean.clone()
    output = ours()
    assert not torch.equal(net[1].running_mean, before)
    torch.testing.assert_close(output, net(x))


def test_the_layer_gets_its_own_forward_back_and_other_threads_keep_it(layer_statistics, generator):
    net = network()
    moments = moments_of(layer_statistics, net)
    x = torch.randn(6, 2, 7, 7, generator=generator, dtype=torch.float64)
    elsewhere = []

    def forward(inputs):
        worker = threading.Thread(target=lambda: elsewhere.append(net(2 * inputs)))
        worker.start()
        worker.join()
        return net(inputs)

    with frozen(net):
        with Watch(net, forward, [moments]).run(x, x, slice(0, 6)) as seen:
            (measured,) = seen.passed.values()
        torch.testing.assert_close(elsewhere[0], net(2 * x))
        rows = net[0](x).movedim(1, 3).reshape(-1, 5) - moments.layer.mean
        torch.testing.assert_close(measured[0], rows.mean(0))

        def fails(inputs):
            net(inputs)
            raise RuntimeError("later")

        with pytest.raises(RuntimeError, match="later"), Watch(net, fails, [moments]).run(x, x, slice(0, 6)):
            pass
    assert "forward" not in net[1].__dict__
