"""Dreamed photographs, from pictures to figure."""

import pytest

from remix.cli import main
from remix.reproduce import samples as reproduce_samples


@pytest.mark.slow
def test_samples_from_pictures_to_figure(capsys, tmp_path, photographs, weights, monkeypatch):
    monkeypatch.setattr(reproduce_samples, "CLASSES", tuple(f"class{label}" for label in range(4)))
    monkeypatch.setattr(reproduce_samples, "_SIZES", {"mini": (32, 1, 4)})
    monkeypatch.setattr(reproduce_samples, "_PRIORS", {"diagonal": ("none", "no correlations")})
    out = tmp_path / "out"
    words = ["reproduce", "samples", "--data", str(photographs), "--weights", str(weights), "--out", str(out)]
    main(words)
    shown = capsys.readouterr().out
    assert "4 images of class0, class1, class2, class3" in shown
    assert "what the network itself reads in them:" in shown
    assert "| diagonal | no correlations |" in shown
    assert f"written  {out}/samples.png, samples.csv, samples.md" in shown
    assert (out / "samples.png").read_bytes().startswith(b"\x89PNG")
    main([*words, "--resume"])  # nothing is dreamed again
    assert "4 images of" not in capsys.readouterr().out
