"""A routed head finds the task by prototypes, then the class by the task's classifier."""

import pytest
import torch

from remix.networks import RoutedHead


@pytest.fixture
def head():
    torch.manual_seed(0)
    head = RoutedHead(6, [2, 3, 1])
    for task in range(3):
        torch.nn.init.normal_(head.classifier(task).weight)
    head.prototypes.copy_(torch.randn(6, 6))
    return head


def test_the_answer_is_that_of_the_nearest_prototype_s_task(head):
    features, task_of = torch.randn(50, 6), [0, 0, 1, 1, 1, 2]
    logits, found = head(features).detach(), set()
    for row, feature in zip(logits, features, strict=True):
        scores = [float(feature @ p) / float(p.norm()) for p in head.prototypes]
        task = task_of[scores.index(max(scores))]
        own = head.classifier(task)(feature[None])[0].detach()
        first = task_of.index(task)
        assert int(row.argmax()) == first + int(own.argmax())
        torch.testing.assert_close(row[first : first + len(own)], own)
        others = torch.tensor([k for k in range(6) if task_of[k] != task])
        assert float(row[others].max()) <= float(own.min()) - 20 + 1e-4
        found.add(task)
    assert found == {0, 1, 2}


def test_the_length_of_a_prototype_does_not_matter(head):
    features = torch.randn(20, 6)
    before = head(features)
    head.prototypes[3] *= 100
    torch.testing.assert_close(head(features), before)


def test_a_class_without_a_prototype_attracts_nothing(head):
    head.prototypes[:2] = -1
    head.prototypes[2:] = 0
    away = torch.ones(4, 6)  # from both prototypes that there are
    assert set(head(away).argmax(1).tolist()) <= {0, 1}
    head.grow(["new"])
    assert head.prototypes.shape == (7, 6)
    assert not head.prototypes[6].any()
    assert set(head(away).argmax(1).tolist()) <= {0, 1}


def test_prototypes_are_saved_with_the_weights(head):
    assert list(head.state_dict()) == ["prototypes", *(f"classifiers.{task}.weight" for task in range(3))]


def test_without_classes_the_others_keep_rows_and_prototypes(head):
    rest = head.without([0, 5])
    assert rest.task_sizes == (1, 3)
    assert torch.equal(rest.prototypes, head.prototypes[1:5])
    assert torch.equal(rest.classifier(1).weight, head.classifier(1).weight)
    assert rest(torch.randn(4, 6)).shape == (4, 4)
