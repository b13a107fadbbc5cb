"""The table of bytes."""

import json

import pytest

from remix.cli import main
from remix.reproduce import memory as reproduce_memory


@pytest.mark.slow
def test_memory_table_has_the_bytes_of_the_files(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce_memory, "MAPS", {"layer4, 512 x 7 x 7": 25_088})
    main(["reproduce", "memory", "--out", str(tmp_path / "out")])
    (row,) = json.loads((tmp_path / "out" / "memory.json").read_text())
    assert row["file"] == (tmp_path / "out" / "layer4.safetensors").stat().st_size
    assert 16 * 25_088 <= row["file"] < 16 * 25_088 + 1000
    assert row["dense"] / 2**30 == pytest.approx(2.3448, abs=1e-4)
    assert 0.2 * row["file"] < row["process, read"] < 20 * row["file"]
    assert row["process, one row with gradient"] < row["dense"] / 20
    shown = capsys.readouterr().out
    assert "0.3828" in shown
    assert (tmp_path / "out" / "memory.csv").read_text().startswith("features,D,file")


def test_dense_bytes_are_those_of_the_paper():
    sizes = {200_704: 150.0632, 100_352: 37.5160, 50_176: 9.3791, 25_088: 2.3448}
    for size, gibibytes in sizes.items():
        assert reproduce_memory.dense_bytes(size) / 2**30 == pytest.approx(gibibytes, abs=1e-4)
