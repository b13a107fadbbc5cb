"""Tables of commands: nothing is cut, whatever the width of the terminal."""

import io

import pytest
from rich.console import Console

from remix.cli.output import accuracy_table, fitted_table
from remix.learning.metrics import AccuracyMatrix

HEADS = ["method", "stages", "last accuracy", "peak MiB"]
ROWS = [["finetune", "first task (10), later tasks (20)", "12.34 ± 0.56", "1234"], None, ["all", "", "1.00", ""]]


def printed(table, width):
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    assert all(len(line) <= width for line in out.getvalue().splitlines())
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_word_is_cut_and_columns_that_may_go_are_dropped(width):
    shown = printed(fitted_table(HEADS, ROWS, width, texts=("method", "stages"), drop=["peak MiB"]), width)
    assert "…" not in shown
    for word in ["finetune", "first", "task", "(10),", "later", "tasks", "(20)", "accuracy"]:
        assert word in shown
    assert "12.34 ± 0.56" in shown
    assert ("1234" in shown) == (width > 40)


def test_all_on_one_line_where_there_is_room():
    assert "first task (10), later tasks (20)" in printed(fitted_table(HEADS, ROWS, 120, texts=HEADS[:2]), 120)


@pytest.mark.parametrize("tasks", [1, 5, 7, 10, 20, 60])
@pytest.mark.parametrize("width", [80, 120])
def test_the_matrix_of_any_number_of_tasks_fits(tasks, width):
    matrix = AccuracyMatrix()
    for step in range(tasks):
        matrix.add_row([100 if task == step else 37 for task in range(step + 1)], [100] * (step + 1))
    shown = printed(accuracy_table("remix", matrix.to_dict(), width), width)
    assert "…" not in shown
    assert "100" in shown
    assert f"{matrix.accuracy(average='macro'):.1f}" in shown
