"""Accuracies of `benchmarks.adopt_cifar` are those of counting."""

import torch

import remix
from benchmarks.adopt_cifar import row
from remix.data import ImageDataset


def test_a_row_counts_right_answers_of_old_and_new_classes():
    names = ("a", "b", "c")
    images = torch.randint(0, 255, (30, 1, 8, 8), generator=torch.Generator().manual_seed(0)).byte()
    data = ImageDataset(images, torch.arange(30) % 3, names)
    learner = remix.Learner("convnet8", method="finetune", epochs=1, device="cpu")
    learner.learn((images, data.labels), classes=list(names))
    right = [learner.predict(images, top=1).names[i][0] == names[i % 3] for i in range(30)]
    found = row(learner, data, 2, 0.0)
    assert found["all"] == round(100 * sum(right) / 30, 1)
    assert found["old"] == round(100 * sum(one for i, one in enumerate(right) if i % 3 < 2) / 20, 1)
    assert found["new"] == round(100 * sum(right[2::3]) / 10, 1)
