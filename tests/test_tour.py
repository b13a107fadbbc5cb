"""The notebook examples/tour.ipynb: it runs, and it is stored as it ran."""

import json
import time
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

TOUR = Path(__file__).resolve().parent.parent / "examples" / "tour.ipynb"
CODE = [cell for cell in json.loads(TOUR.read_text())["cells"] if cell["cell_type"] == "code"]


def test_it_is_stored_with_what_every_cell_showed_and_is_small():
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    shown = [output for cell in CODE for output in cell["outputs"]]
    assert not [output for output in shown if output["output_type"] == "error"]
    assert sum("image/png" in output.get("data", {}) for output in shown) == 4
    assert TOUR.stat().st_size < 300_000


def test_a_progress_bar_left_one_line():
    bars = [cell for cell in CODE if ".learn(" in "".join(cell["source"])]
    assert len(bars) == 3
    for cell in bars:
        first, *rest = ["".join(output.get("data", {}).get("text/plain", "")) for output in cell["outputs"]]
        assert first.startswith("done in ")
        assert len(rest) == 1


@pytest.mark.slow
def test_it_runs_within_a_minute_of_one_core(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, began = {}, time.process_time()
    with mpl.rc_context({"backend": "agg"}):
        for cell in CODE:
            exec(compile("".join(cell["source"]), str(TOUR), "exec"), names)
        assert len(plt.get_fignums()) == 4
        plt.close("all")
    assert time.process_time() - began < 60
    assert names["tested"].micro > names["forgotten"].micro + 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.json", "digits.remix", "digits.safetensors"]
