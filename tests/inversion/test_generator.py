import pytest
import torch

from remix.inversion import GeneratorSettings, ImageGenerator, Knowledge, Schedule, frozen, train_generator

SHORT = GeneratorSettings(schedule=Schedule(4, 1e-3), batch=16, noise=20)


def test_training_is_what_torch_would_do(knowledge):
    """The first steps, against a plain loop with torch's Adam and BatchNorm's own running averages."""
    from torch.nn.functional import cross_entropy

    from remix.inversion.losses import gaussian_kernel
    from remix.statistics import Hooks

    network = ImageGenerator((1, 8, 8), 20, torch.Generator().manual_seed(0)).double()
    plain = ImageGenerator((1, 8, 8), 20, torch.Generator().manual_seed(0)).double()
    source = train_generator(knowledge, torch.Generator().manual_seed(7), SHORT, network=network)
    assert source.network is network
    optimiser = torch.optim.Adam(plain.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(7)
    layers = knowledge.moments
    for _ in range(4):
        images = plain(torch.randn(16, 20, generator=generator, dtype=torch.float64))
        with frozen(*knowledge.networks), Hooks(knowledge.backbone, [layer.point for layer in layers]) as hooks:
            logits = knowledge.classify(knowledge.backbone.pooled(images))
        kl = 0
        for layer in layers:
            x = hooks[layer.point]
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0) + 1e-8
            ratio = layer.variance / variance
            kl = kl + 0.5 * (ratio - 1 - ratio.log() + (mean - layer.mean) ** 2 / variance).mean() / len(layers)
        p = logits.softmax(1).mean(0)
        balance = 1 + (p * p.log()).sum() / torch.tensor(4.0).double().log()
        padded = torch.nn.functional.pad(images, (2, 2, 2, 2), mode="reflect")
        blurred = torch.conv2d(padded, gaussian_kernel()[None, None])
        loss = cross_entropy(logits / 1000, logits.argmax(1)) + balance + 50 * kl
        loss = loss + 1e-3 * (images - blurred).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for (name, ours), theirs in zip(network.state_dict().items(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7, msg=name)


def test_interrupted_training_goes_on_with_the_same_bits(knowledge):
    def interrupt(progress):
        if progress.step.step == 1:
            raise KeyboardInterrupt

    whole = train_generator(knowledge, torch.Generator().manual_seed(0), SHORT)
    half = train_generator(knowledge, torch.Generator().manual_seed(0), SHORT, progress=interrupt)
    assert not half.finished
    rest = train_generator(knowledge, torch.Generator().manual_seed(0), SHORT, resume=half.checkpoint)
    assert rest.history == whole.history
    for one, other in zip(rest.network.state_dict().values(), whole.network.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_samples_carry_the_label_that_the_network_gives_them(knowledge, classifier):
    source = train_generator(knowledge, torch.Generator().manual_seed(0), SHORT)
    images, labels = source.sample(9, torch.Generator().manual_seed(1))
    assert images.shape == (9, 1, 8, 8)
    assert torch.equal(classifier(images).argmax(1), labels)
    again, _ = source.sample(9, torch.Generator().manual_seed(1))
    assert torch.equal(images, again)  # sampling does not move the running averages
    with pytest.raises(ValueError, match="count must be at least 1"):
        source.sample(0, torch.Generator())


def test_without_a_head_there_is_nothing_to_please(classifier):
    with pytest.raises(ValueError, match="give the head"):
        train_generator(Knowledge(classifier.backbone), torch.Generator(), SHORT)
