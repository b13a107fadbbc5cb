"""The two drawings, from a run of seconds."""

import pytest
import torch
from made_targets import make

from remix.reproduce import figures
from remix.reproduce.needed_runs import Variant


@pytest.mark.slow
def test_both_drawings_are_made_of_a_run(tmp_path, monkeypatch):
    quick = Variant("digits", "remix", ("data.tasks=1", "settings.first.epochs=1"))
    monkeypatch.setattr(figures, "one_task", lambda preset: quick)
    drawn = {}
    for name in ("_pipeline", "_sigma"):
        draw = getattr(figures, name)
        monkeypatch.setattr(figures, name, lambda shown, name=name, draw=draw: drawn.setdefault(name, draw(shown)))
    complete, text = make("figures", tmp_path / "figures")
    assert complete
    assert "1 runs to do" in text
    for name in ("pipeline", "sigma"):
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    low, own, whole = (torch.from_numpy(axis.images[0].get_array().data) for axis in drawn["_sigma"].axes[4:7])
    assert torch.allclose(low + own, whole)
    assert bool((torch.linalg.eigvalsh(whole.double()) > 0).all())
    assert len(drawn["_pipeline"].axes) == 3 * (5 + 2)  # images, five blocks, features
