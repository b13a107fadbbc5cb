import numpy as np

from remix.laplace.fitting.optimise import minimise


def test_quadratic_with_very_different_curvatures():
    curvature = np.logspace(0, 3, 20)
    wanted = np.linspace(-2, 2, 20)
    found = minimise(
        lambda p: (0.5 * curvature @ (p - wanted) ** 2, curvature * (p - wanted)), np.zeros(20), 200, 1e-14
    )
    np.testing.assert_allclose(found.point, wanted, atol=1e-4)


def test_rosenbrock():
    def rosenbrock(p):
        a, b = p
        value = (1 - a) ** 2 + 100 * (b - a**2) ** 2
        return value, np.array([-2 * (1 - a) - 400 * a * (b - a**2), 200 * (b - a**2)])

    found = minimise(rosenbrock, np.array([-1.2, 1.0]), 200, 1e-15)
    np.testing.assert_allclose(found.point, [1, 1], atol=1e-3)


def test_never_worse_than_the_start_and_counts_its_steps():
    found = minimise(lambda p: (float(np.cos(p).sum()), -np.sin(p)), np.full(3, 0.5), 3)
    assert found.value < 3 * np.cos(0.5)
    assert found.steps <= 3
    at_rest = minimise(lambda p: (1.0, np.zeros(2)), np.zeros(2), 10)
    assert at_rest.steps == 0
