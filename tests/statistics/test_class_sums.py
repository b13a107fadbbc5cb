"""Sums of classes are the same in whatever order and in how many parts the images came."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from remix.statistics import ClassSums, Memory, Scatter
from remix.statistics.scatter import full, packed
from remix.statistics.statistic import Tensors

EXACT = [("none", False), ("diagonal", False), ("dense", False), ("dense", True)]


def example(images: int = 60, dim: int = 7, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(images, dim, generator=generator, dtype=torch.float64)
    return rows @ torch.randn(dim, dim, generator=generator).double() + 3, torch.arange(images) % classes


def assert_same(one: ClassSums, other: ClassSums, tolerance: float = 1e-12) -> None:
    assert (one.labels, one.counts) == (other.labels, other.counts)
    for name, tensor in one.tensors().items():
        assert float((tensor - other.tensors()[name]).abs().max()) <= tolerance * float(tensor.abs().max())


@pytest.mark.parametrize(("kind", "own"), EXACT)
def test_classes_one_at_a_time_in_any_order_are_as_all_at_once(kind, own):
    x, y = example()
    whole = ClassSums.of(x, y, kind, own)
    for order in itertools.permutations(range(4)):
        parts = [ClassSums.of(x[y == label], y[y == label], kind, own) for label in order]
        found = parts[0]
        for part in parts[1:]:
            found = found.merge(part)
        assert_same(found, whole)


@pytest.mark.parametrize(("kind", "own"), EXACT)
def test_images_of_a_class_that_come_in_two_steps_are_as_in_one(kind, own):
    x, y = example()
    early = torch.arange(60) < 22
    parts = [ClassSums.of(x[mine], y[mine], kind, own) for mine in (early, ~early)]
    assert_same(parts[0].merge(parts[1]), ClassSums.of(x, y, kind, own))


def in_steps(kind: str, own: bool = False) -> tuple[ClassSums, list[ClassSums]]:
    """Sums of three steps, of which the last has further images of the first two classes; and those after each."""
    x, y = example()
    late = torch.arange(60) >= 40
    parts = [(y < 2) & ~late, y >= 2, (y < 2) & late]
    found = [ClassSums.of(x[parts[0]], y[parts[0]], kind, own)]
    for part in parts[1:]:
        found.append(found[-1].extended(ClassSums.of(x[part], y[part], kind, own)))
    return found[-1], found


@pytest.mark.parametrize(("kind", "own"), EXACT)
def test_steps_are_kept_apart_and_can_be_taken_back_to_the_last_bit(kind, own):
    sums, earlier = in_steps(kind, own)
    assert_totals(sums, ClassSums.of(*example(), kind, own))
    for count, expected in enumerate(earlier, 1):
        assert_totals(sums.of_parts(sums.parts[:count]), expected, 0.0)
    memory = Memory()
    memory.keep(sums)
    again = Memory.from_tensors(*memory.to_tensors()).get("sums")
    assert_totals(again, sums, 0.0)
    assert again.describe() == sums.describe()
    assert len(again.steps) == 3
    assert sum(item.bytes for item in memory.describe()) == sum(t.numel() * 8 for t in again.tensors().values())


def assert_totals(one: ClassSums, other: ClassSums, tolerance: float = 1e-12) -> None:
    assert_same(replace(one, steps=()), replace(other, steps=()), tolerance)


def test_the_oldest_steps_become_one_when_there_are_many():
    x, y = example(120, classes=12)
    sums = ClassSums.of(x[y == 0], y[y == 0], "dense")
    for label in range(1, 12):
        sums = sums.extended(ClassSums.of(x[y == label], y[y == label], "dense"))
    assert [part.labels for part in sums.steps] == [(0, 1, 2), *((label,) for label in range(3, 12))]
    assert_totals(sums, ClassSums.of(x, y, "dense"))


@pytest.mark.parametrize(("kind", "own"), [*EXACT, ("laplace", False)])
def test_classes_that_get_one_label_are_as_one_class_from_the_beginning(kind, own):
    x, y = example()
    labels = {0: 0, 1: 1, 2: 0, 3: 0}
    sums = ClassSums.of(x, y, kind, own) if kind == "laplace" else in_steps(kind, own)[0]
    found, new = sums.relabelled(labels), torch.tensor([labels[int(label)] for label in y])
    expected = ClassSums.of(x, new, kind, own)
    assert (found.labels, found.counts) == ((0, 1), (45, 15))
    assert torch.allclose(found.mean, expected.mean)
    if kind == "laplace":  # fitted again, so near it
        assert torch.allclose(found.scatter.squares(), expected.scatter.squares(), rtol=1e-6)
    else:
        assert_totals(found, expected)
    same = sums.relabelled({label: label for label in range(4)})
    assert_totals(same, sums, 0.0)


def test_a_class_that_goes_leaves_nothing_where_it_was_alone_in_its_step():
    x, y = example()
    alone = ClassSums.of(x[y < 3], y[y < 3], "dense").extended(ClassSums.of(x[y == 3], y[y == 3], "dense"))
    rest, told = alone.without([3])
    assert told == ""
    assert_totals(rest, ClassSums.of(x[y < 3], y[y < 3], "dense"), 0.0)
    rest, told = alone.without([1])
    assert told == "the scatter of features is of all classes together"
    assert (rest.labels, rest.mixed, rest.freedom) == ((0, 2, 3), 14, alone.freedom)
    again = ClassSums.from_tensors(Tensors(rest.tensors()), rest.describe())
    assert (again.mixed, again.steps[0].mixed, again.steps[1].mixed) == (14, 14, 0)


def test_one_image_of_a_class_that_goes_leaves_nothing_in_the_scatter():
    x, y = example()
    few = torch.cat([torch.nonzero(y != 1)[:, 0], torch.nonzero(y == 1)[:1, 0]])
    rest, told = ClassSums.of(x[few], y[few], "dense").without([1])
    assert (told, rest.mixed) == ("", 0)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": []}, {"steps": 3}, {"steps": [{"labels": [0, 1], "counts": [1, 1]}]}, {"kind": "laplace"},
        {"counts": [15, 15, 15, 14]}, {"labels": [0, 1, 2, 4]}, {"own": True},
    ],
)  # fmt: skip
def test_descriptions_of_steps_that_are_none_are_refused(change):
    sums, _ = in_steps("dense")
    with pytest.raises(ValueError, match=r"must|missing"):
        ClassSums.from_tensors(Tensors(sums.tensors()), sums.describe() | change)


def test_means_and_scatter_are_those_of_the_rows():
    x, y = example()
    shared, own = ClassSums.of(x, y, "dense"), ClassSums.of(x, y, "dense", own=True)
    apart = [x[y == label] - x[y == label].mean(0) for label in range(4)]
    for label, rows in enumerate(apart):
        assert torch.allclose(own.mean[label], x[y == label].mean(0))
        assert torch.allclose(own.scatter.matrix(label), rows.T @ rows)
    assert torch.allclose(shared.scatter.matrix(), sum(rows.T @ rows for rows in apart))
    assert torch.allclose(shared.scatter.squares()[0], ClassSums.of(x, y, "diagonal").scatter.matrix())
    assert (shared.images, shared.freedom) == (60, 56)


def test_many_rows_are_summed_in_parts(monkeypatch):
    x, y = example()
    whole = ClassSums.of(x, y, "dense", own=True)
    monkeypatch.setattr("remix.statistics.class_sums._ROWS", 13)
    assert_same(ClassSums.of(x, y, "dense", own=True), whole)


def test_a_triangle_is_half_of_a_matrix():
    matrix = torch.randn(9, 9)
    matrix = matrix + matrix.T
    assert packed(matrix).shape == (45,)
    assert torch.equal(full(packed(matrix), 9), matrix)


def test_a_laplace_scatter_has_three_vectors_and_the_right_variances_after_every_step():
    x, y = example(200, 6)
    first, later = y < 2, y >= 2
    found = ClassSums.of(x[first], y[first], "laplace").merge(ClassSums.of(x[later], y[later], "dense"))
    exact = ClassSums.of(x, y, "dense").scatter
    assert {name: tuple(t.shape) for name, t in found.scatter.tensors.items()} == dict.fromkeys(
        ("diag", "weight", "coord"), (1, 6)
    )
    assert torch.allclose(found.scatter.squares(), exact.squares())
    apart = (found.scatter.matrix() - exact.matrix()).norm()
    assert apart < (torch.diag(exact.matrix().diagonal()) - exact.matrix()).norm()


def test_a_laplace_scatter_of_identical_images_can_be_made():
    found = ClassSums.of(torch.ones(6, 3), torch.arange(6) % 2, "laplace")
    assert torch.isfinite(found.scatter.matrix()).all()


@pytest.mark.parametrize(("kind", "own"), [*EXACT, ("laplace", False)])
def test_a_memory_gives_the_same_sums_back(kind, own, tmp_path):
    x, y = example()
    memory = Memory()
    memory.keep(ClassSums.of(x, y, kind, own))
    memory.save(tmp_path / "memory")
    again = Memory.load(tmp_path / "memory").to("cpu").get("sums")
    assert_same(again, memory.get("sums"), 0.0)
    assert again.describe() == memory.get("sums").describe()
    assert sum(item.bytes for item in memory.describe()) == sum(t.numel() * 8 for t in again.tensors().values())


def test_what_another_kind_would_take_is_told():
    x, y = example()
    scatter = ClassSums.of(x, y, "dense").scatter
    for kind in ("dense", "diagonal", "laplace"):
        kept = ClassSums.of(x, y, kind).scatter.tensors.values()
        assert scatter.bytes(kind) == sum(8 * tensor.numel() for tensor in kept)


@pytest.mark.parametrize("own", [False, True])
def test_a_class_that_goes_takes_what_is_its_own(own):
    x, y = example()
    sums = ClassSums.of(x, y, "dense", own)
    rest, told = sums.without([1])
    assert rest.labels == (0, 2, 3)
    assert told == ("" if own else "the scatter of features is of all classes together")
    other = y != 1
    if own:
        assert_same(rest, ClassSums.of(x[other], y[other], "dense", own))
    else:
        assert torch.equal(rest.scatter.matrix(), sums.scatter.matrix())
    assert sums.without([0, 1, 2, 3])[0] is None


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mean", lambda t: t * torch.nan),
        ("mean", lambda t: t.float()),
        ("mean", lambda t: t[:2]),
        ("scatter", lambda t: t[:, :-1]),
        ("scatter", lambda t: -t),
        ("scatter", lambda t: t * torch.inf),
        ("scatter", lambda t: t.expand(3, -1)),
    ],
)
def test_tensors_that_are_no_sums_are_refused(name, change):
    x, y = example()
    sums = ClassSums.of(x, y, "dense")
    tensors = sums.tensors()
    with pytest.raises(ValueError, match="must"):
        ClassSums.from_tensors(Tensors(tensors | {name: change(tensors[name])}), sums.describe())


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "dens"}, {"counts": [0, 1, 1, 1]}, {"labels": [1, 0, 2, 3]}, {"own": 1}, {"strength": -1.0},
        {"scale": 0.0}, {"scale": float("nan")}, {"method": 3}, {"own": True},
    ],
)  # fmt: skip
def test_descriptions_that_are_of_no_sums_are_refused(change):
    x, y = example()
    sums = ClassSums.of(x, y, "dense")
    with pytest.raises(ValueError, match=r"must|kind|method"):
        ClassSums.from_tensors(Tensors(sums.tensors()), sums.describe() | change)


def test_a_scatter_of_no_kind_is_refused():
    with pytest.raises(ValueError, match="no scatter is of the kind"):
        Scatter("dense", {"squares": torch.zeros(1, 3).double()}, 3)
