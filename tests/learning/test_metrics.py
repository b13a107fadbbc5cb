"""The accuracy matrix: published numbers, definitions by loops, and its file."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remix.learning import metrics
from remix.learning.metrics import AccuracyMatrix

# CIFAR-100 in 10 tasks, means over 3 seeds: accuracy after each step, on the new task, on the old ones.
PUBLISHED = {
    "remix": (
        [92.0, 76.7, 68.64, 62.22, 58.73, 53.53, 49.92, 49.13, 46.98, 45.34],
        [92.0, 75.57, 70.97, 62.93, 65.83, 49.7, 49.3, 63.53, 49.2, 48.33],
        [77.83, 67.48, 61.99, 56.95, 54.3, 50.03, 47.08, 46.7, 45.01],
        60.32,
    ),
    "pmi": (
        [92.47, 76.0, 67.98, 61.01, 57.3, 51.98, 48.79, 48.15, 45.79, 44.41],
        [92.47, 73.67, 71.73, 62.23, 64.97, 49.87, 50.67, 63.43, 47.67, 47.63],
        [78.33, 66.1, 60.6, 55.38, 52.41, 48.48, 45.96, 45.55, 44.05],
        59.39,
    ),
}
LAST_ROWS = {
    "remix": [
        (45.8, 39.4, 43.5, 44.9, 48.7, 37.3, 43.0, 59.2, 47.7, 49.1),
        (48.2, 36.0, 41.3, 40.3, 47.3, 41.3, 39.6, 61.0, 50.0, 48.8),
        (47.0, 42.5, 39.0, 41.6, 48.8, 41.1, 38.5, 56.4, 45.9, 47.1),
    ],
    "pmi": [
        (45.7, 36.5, 39.2, 42.3, 45.0, 39.0, 42.2, 56.4, 49.0, 49.6),
        (45.1, 35.0, 40.7, 39.1, 44.6, 41.2, 41.7, 57.8, 45.3, 46.7),
        (43.2, 38.6, 37.7, 43.7, 47.4, 43.3, 42.2, 61.1, 46.3, 46.6),
    ],
}
# Mean over seeds of the last accuracy, of that on the new task, of that on the old ones.
LAST = {"remix": (45.34, 48.33, 45.01), "pmi": (44.41, 47.63, 44.05)}


def matrix_of(rows, count=1000):
    matrix = AccuracyMatrix()
    for row in rows:
        matrix.add_row([round(accuracy * count / 100) for accuracy in row], [count] * len(row))
    return matrix


@st.composite
def matrices(draw):
    counts = draw(st.lists(st.integers(1, 70), min_size=1, max_size=6))
    matrix = AccuracyMatrix()
    for step in range(len(counts)):
        seen = counts[: step + 1]
        matrix.add_row([draw(st.integers(0, count)) for count in seen], seen)
    return matrix


@pytest.mark.parametrize("method", ["remix", "pmi"])
def test_published_curves(method):
    curve, new, old, average = PUBLISHED[method]
    rows = [[new[0]]] + [[old[step - 1]] * step + [new[step]] for step in range(1, 10)]
    matrix = matrix_of(rows, count=10_000)
    for step in range(10):
        assert matrix.accuracy(step, average="macro") == pytest.approx(curve[step], abs=0.011)
        assert matrix.accuracy(step, average="micro") == pytest.approx(curve[step], abs=0.011)
        assert matrix.new_task_accuracy(step) == pytest.approx(new[step])
        assert matrix.old_task_accuracy(step) == (None if step == 0 else pytest.approx(old[step - 1]))
    assert matrix.average_incremental_accuracy(average="macro") == pytest.approx(average, abs=0.006)


@pytest.mark.parametrize("method", ["remix", "pmi"])
def test_published_last_rows(method):
    filler = [[50.0] * (step + 1) for step in range(9)]
    runs = [matrix_of([*filler, row]) for row in LAST_ROWS[method]]
    last, new, old = LAST[method]
    assert sum(run.accuracy(average="macro") for run in runs) / 3 == pytest.approx(last, abs=0.006)
    assert sum(run.new_task_accuracy() for run in runs) / 3 == pytest.approx(new, abs=0.006)
    assert sum(run.old_task_accuracy() for run in runs) / 3 == pytest.approx(old, abs=0.006)
    if method == "remix":
        assert [run.accuracy(average="macro") for run in runs] == pytest.approx([45.86, 45.38, 44.79])
    assert runs[0].row() == pytest.approx(LAST_ROWS[method][0])


def test_macro_and_micro_differ_with_unequal_test_sets():
    matrix = AccuracyMatrix()
    matrix.add_row([10], [10])
    matrix.add_row([10, 0], [10, 30])
    assert matrix.accuracy(average="macro") == 50
    assert matrix.accuracy(average="micro") == 25
    assert matrix.average_incremental_accuracy(average="macro") == 75
    assert matrix.average_incremental_accuracy(average="micro") == 62.5


def test_forgetting_is_from_the_best_and_backward_transfer_from_the_first():
    matrix = matrix_of([[80.0], [90.0, 70.0], [60.0, 75.0, 50.0]])
    assert matrix.forgetting() == pytest.approx(((90 - 60) + (70 - 75)) / 2)
    assert matrix.backward_transfer() == pytest.approx(((60 - 80) + (75 - 70)) / 2)
    assert matrix.forgetting(1) == pytest.approx(-10)
    assert matrix.forgetting(0) is None
    assert matrix.backward_transfer(0) is None


@given(matrices())
def test_definitions_by_loops(matrix):
    tasks = len(matrix)
    a = [[100 * matrix.correct(t)[i] / matrix.counts[i] for i in range(t + 1)] for t in range(tasks)]
    for t in range(tasks):
        macro = micro_right = micro_all = 0
        for i in range(t + 1):
            macro += a[t][i] / (t + 1)
            micro_right += matrix.correct(t)[i]
            micro_all += matrix.counts[i]
        assert matrix.accuracy(t, average="macro") == pytest.approx(macro)
        assert matrix.accuracy(t, average="micro") == pytest.approx(100 * micro_right / micro_all)
        if t:
            forgotten = transferred = 0
            for i in range(t):
                forgotten += max(a[s][i] for s in range(i, t)) - a[t][i]
                transferred += a[t][i] - a[i][i]
            assert matrix.forgetting(t) == pytest.approx(forgotten / t, abs=1e-9)
            assert matrix.backward_transfer(t) == pytest.approx(transferred / t, abs=1e-9)
            assert matrix.old_task_accuracy(t) == pytest.approx(sum(a[t][:t]) / t)
    assert matrix.summary()["last_accuracy_macro"] == matrix.accuracy(average="macro")
    assert matrix.summary()["forgetting"] == matrix.forgetting()


@given(matrices())
def test_csv_and_dict_give_the_matrix_back(matrix):
    assert AccuracyMatrix.from_csv(matrix.to_csv()) == matrix
    assert AccuracyMatrix.from_dict(json.loads(json.dumps(matrix.to_dict()))) == matrix


def test_csv_reads_as_a_table():
    matrix = matrix_of([[92.0], [78.1, 75.5]])
    assert matrix.to_csv() == "after_task,task_1,task_2\ntest_images,1000,1000\n1,92.0,\n2,78.1,75.5\n"


def test_an_empty_matrix():
    empty = AccuracyMatrix()
    assert AccuracyMatrix.from_csv(empty.to_csv()) == empty
    assert AccuracyMatrix.from_dict(empty.to_dict()) == empty
    with pytest.raises(IndexError, match="0 steps"):
        empty.accuracy(average="macro")


def test_file_has_the_same_bytes_every_time_and_leaves_nothing_else(tmp_path):
    matrix = matrix_of([[92.0], [78.1, 75.5]])
    path = tmp_path / "matrix.csv"
    matrix_of([[50.0]]).write(path)
    matrix.write(path)
    assert path.read_bytes() == matrix.to_csv().encode()
    assert AccuracyMatrix.read(path) == matrix
    assert [each.name for each in tmp_path.iterdir()] == ["matrix.csv"]


@pytest.mark.parametrize("content", [b"a\rb", b"after_task\n\xff", b'"' * 200_000, b""])
def test_a_file_that_is_no_matrix_is_a_sentence_with_its_name(tmp_path, content):
    (tmp_path / "matrix.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"matrix\.csv: "):
        AccuracyMatrix.read(tmp_path / "matrix.csv")


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "matrix.csv"
    before = matrix_of([[50.0]])
    before.write(path)

    def full(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        matrix_of([[60.0]]).write(path)
    assert AccuracyMatrix.read(path) == before
    assert [each.name for each in tmp_path.iterdir()] == ["matrix.csv"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "after_task,task_1\ntest_images,1000\n1,92.04\n",
        "after_task,task_1\ntest_images,1000\n1,inf\n",
        "after_task,task_1\ntest_images,1000\n1,101.0\n",
        "after_task,task_1,task_2\ntest_images,1000,1000\n1,92.0,\n",
        "after_task,task_1\ntest_images,1000\n2,92.0\n",
        "after_task,task_1\r\ntest_images,1000\r\n1,92.0\r\n",
    ],
)
def test_other_files_are_refused_by_name(tmp_path, text):
    path = tmp_path / "other.csv"
    path.write_bytes(text.encode())
    with pytest.raises(ValueError, match=r"other\.csv: not an accuracy matrix"):
        AccuracyMatrix.read(path)


@pytest.mark.parametrize(
    "content", [{}, {"counts": [10]}, {"counts": [10, 10], "correct": [[3]]}, {"counts": 3, "correct": [[1]]}]
)
def test_other_dicts_are_refused(content):
    with pytest.raises(ValueError, match="not an accuracy matrix"):
        AccuracyMatrix.from_dict(content)


@pytest.mark.parametrize(
    ("correct", "counts", "message"),
    [
        ([5], [10], "needs 2 correct and 2 counts"),
        ([5, 5], [10], "got 2 and 1"),
        ([5, 11], [10, 10], "task 1: 11 correct of 10"),
        ([-1, 5], [10, 10], "task 0: -1 correct"),
        ([5, 0], [10, 0], "0 correct of 0"),
        ([5, 0.5], [10, 10], "numbers of images"),
        ([5, 5], [11, 10], "had 10 images before and has 11 now"),
    ],
)
def test_bad_rows_add_nothing(correct, counts, message):
    matrix = AccuracyMatrix()
    matrix.add_row([7], [10])
    with pytest.raises(ValueError, match=message):
        matrix.add_row(correct, counts)
    assert len(matrix) == 1
    assert matrix.counts == (10,)


def test_averages_have_two_names():
    with pytest.raises(ValueError, match="'macro' or 'micro'"):
        matrix_of([[50.0]]).accuracy(average="mean")
    assert metrics.Average.__args__ == ("macro", "micro")


@pytest.mark.parametrize("step", [2, -3])
def test_steps_that_are_not_there(step):
    with pytest.raises(IndexError, match=f"2 steps, asked for step {step}"):
        matrix_of([[50.0], [40.0, 30.0]]).row(step)
