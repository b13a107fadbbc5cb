"""What README.md, docs/ and examples/ promise: Python blocks and examples run, commands and files exist."""

import csv
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.digits_chart import curves
from remix.data import registry as data_registry
from remix.methods import registry as method_registry
from remix.networks import registry as network_registry

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXT = {page.relative_to(ROOT).as_posix(): page.read_text() for page in PAGES}
BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page, text in TEXT.items()
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
]


@pytest.fixture(autouse=True)
def own_names():
    """What a page or an example registers is forgotten again: other tests list every name there is."""
    registries = (data_registry._entries, network_registry._factories, method_registry._METHODS)
    before = [dict(registry) for registry in registries]
    yield
    for registry, names in zip(registries, before, strict=True):
        registry.clear()
        registry.update(names)


@pytest.mark.parametrize("block", BLOCKS)
def test_python_block_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests" / "learning" / "files" / "model-v2.remix", "photos.remix")  # some pages begin with one
    exec(compile(block, "<block>", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs_and_says_what_it_wrote(example, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(example), str(tmp_path)])
    runpy.run_path(str(example), run_name="__main__")
    assert list(tmp_path.iterdir())
    assert str(tmp_path) in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize("page", TEXT)
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"`make ([a-z]+)", TEXT[page])) | set(re.findall(r"^make ([a-z]+)", TEXT[page], re.M))
    assert named <= targets


@pytest.mark.parametrize("page", TEXT)
def test_linked_files_exist(page):
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", TEXT[page])
    missing = [link for link in links if "://" not in link and not (ROOT / page).parent.joinpath(link).exists()]
    assert not missing


def test_the_first_screen_has_what_a_newcomer_looks_for():
    lines = TEXT["README.md"].splitlines()
    assert lines[0] == "# REMIX: data-free class-incremental learning in PyTorch"
    assert {"make demo", "make test", "import remix"} <= {line.split("#")[0].strip() for line in lines[:40]}
    assert "![" in "".join(lines[:15])
    order = [
        "catastrophic forgetting",
        "*Stop Marginalizing",
        "![",
        "| joint training",
        "make demo",
        "import remix",
        "- To **",
    ]
    places = [next(n for n, line in enumerate(lines) if part in line) for part in (*order, "**When not to use it.**")]
    assert places == sorted(places)
    assert places[-1] < 40


def test_the_table_of_the_readme_is_that_of_the_chart():
    with (ROOT / "docs" / "images" / "digits_tasks.csv").open(newline="") as file:
        found = curves(list(csv.DictReader(file)))
    names = {"finetune": "fine-tuning", "remix": "REMIX (synthetic images)", "joint": "joint training"}
    for method, name in names.items():
        last = found[method][:, -1]
        assert re.search(rf"\| {re.escape(name)}.* \| {last.mean():.1f} ± {last.std(ddof=1):.1f} \|", TEXT["README.md"])


def test_remix_beside_the_readme_says_what_to_type_where_nothing_is_set_up(tmp_path):
    shutil.copy(ROOT / "remix", tmp_path)
    said = subprocess.run([tmp_path / "remix"], capture_output=True, text=True)
    assert (said.returncode, "setup" in said.stderr) == (2, True)
