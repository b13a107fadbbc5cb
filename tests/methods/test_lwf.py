"""Learning without forgetting: the old model's answers hold the new one."""

from types import SimpleNamespace

import torch

from remix.learning.losses import local_cross_entropy, soft_distillation
from remix.methods import create_method


def test_old_answers_are_distilled_with_their_weight_and_temperature_and_new_classes_learned_among_themselves():
    draw = torch.Generator().manual_seed(0)
    logits, answers = torch.randn(6, 5, generator=draw), torch.randn(6, 2, generator=draw)
    labels = torch.tensor([2, 3, 4, 2, 3, 4])
    student = SimpleNamespace(head=lambda features: features)
    engine = SimpleNamespace(student=student, teacher=lambda x: answers, old_classes=2, pooled=lambda real: real[0])
    method = create_method("lwf", distillation=3.0, temperature=4.0)
    found = method.losses(engine)(SimpleNamespace(real=(logits,), labels=labels))
    torch.testing.assert_close(found["local"], local_cross_entropy(logits, labels, 2))
    torch.testing.assert_close(found["distillation"], 3 * soft_distillation(logits[:, :2], answers, 4.0))
    assert found["distillation"] > 0.01
