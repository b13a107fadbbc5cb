"""What docs/artefact.md and docs/privacy.md say of the model file holds."""

from __future__ import annotations

import re
import shutil
import textwrap
from pathlib import Path

from remix.deploy.inspection import KINDS, inspect_file
from remix.learning import load_model
from remix.learning.model_file import VERSION

ROOT = Path(__file__).resolve().parent.parent.parent


def blocks(name: str, language: str) -> list[str]:
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.M | re.S)
    return [textwrap.dedent(block) for block in found]


def test_the_code_of_the_privacy_page_runs(model_file, tmp_path, monkeypatch):
    shutil.move(model_file, tmp_path / "photos.remix")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for block in blocks("privacy", "python"):
        exec(block, scope)
    assert load_model("bare.remix").memory is None
    assert scope["few"] == []
    kinds = {total.kind for total in inspect_file("noisy.remix").totals()}
    assert "class Gaussians" in kinds
    old, new = load_model("photos.remix").memory.gaussians, load_model("noisy.remix").memory.gaussians
    assert not old.mean.equal(new.mean)
    assert ((old.mean - new.mean).abs() < old.std).all()


def test_every_kind_and_version_is_explained():
    privacy = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    artefact = (ROOT / "docs" / "artefact.md").read_text(encoding="utf-8")
    for word in (
        "weights",
        "BatchNorm statistics",
        "moments",
        "dense covariances",
        "class Gaussians",
        "class sums",
        "selectors",
    ):
        assert word in privacy
    assert len(KINDS) == 11
    for version in range(1, VERSION + 1):
        assert f"| {version} | " in artefact
        assert (ROOT / "tests" / "learning" / "files" / f"model-v{version}.remix").is_file()
