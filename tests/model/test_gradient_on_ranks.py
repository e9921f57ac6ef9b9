"""The gradient check on several ranks: no wrong gradient hides behind the symmetry of two parts."""

import numpy as np
import pytest
from models.threaded import on_ranks

from ckio import ArrayModel, check_gradient
from ckio.model.comm import SOLO

STEPS = 8


class Halves(ArrayModel):
    """Each rank has a part of x; J is the sum of all squares, over ranks and steps."""

    def __init__(self, comm=SOLO, *, adjoint=1.0, sign=1.0, rate=0.1):
        x = sign * np.linspace(0.5, 1.0, 5)
        self._comm, self._factor = comm, adjoint
        super().__init__({"x": x, "J": 0.0}, control={"x": x, "rate": rate}, tape=["x"])

    def step(self, state, i):
        x = state["x"]
        state["J"] += (x**2).sum()
        x *= 1 - self.control["rate"]

    def adjoint_step(self, adjoint, tape, i):
        x, bar = tape["x"], adjoint["x"]
        self.gradient["rate"] -= self._factor * (x * bar).sum()
        bar *= self._factor * (1 - self.control["rate"])
        bar += self._factor * 2 * x * adjoint["J"]

    @property
    def functional(self):
        return sum(self._comm.gather(float(super().functional)))


def checked(size, *, signs, adjoint=1.0, seed=0):
    def work(comm):
        def make():
            return Halves(comm, adjoint=adjoint, sign=signs[comm.rank])

        model = make()
        model.record(0, STEPS)
        model.reverse(0, STEPS)
        return check_gradient(make, STEPS, model.gradient, comm=comm, seed=seed)

    return on_ranks(size, work)


@pytest.mark.parametrize("signs", [(1.0, -1.0), (1.0, 1.0)])
@pytest.mark.parametrize("adjoint", [0.0, 0.5, 1.01])
def test_a_wrong_gradient_of_two_equal_parts_is_refused(signs, adjoint):
    for check in checked(2, signs=signs, adjoint=adjoint):
        assert not check.verified


@pytest.mark.parametrize("signs", [(1.0, -1.0), (1.0, 1.0), (1.0, -2.0, 0.5)])
def test_a_right_gradient_is_verified_on_all_ranks(signs):
    for seed in range(5):
        checks = checked(len(signs), signs=signs, seed=seed)
        assert all(check.verified for check in checks), f"seed {seed}: {checks[0].summary()}"
        assert len({check.slope for check in checks}) == 1


def test_a_gradient_of_zeros_is_refused_on_one_rank_too():
    (check,) = checked(1, signs=(1.0,), adjoint=0.0)
    assert not check.verified
    assert "the gradient is 0, but J has the slope -9.85" in check.summary()


def test_directions_in_shared_controls_do_not_depend_on_the_number_of_ranks():
    def directions(comm):
        drawn = []

        class Recorded(Halves):
            def advance(self, begin, end):
                drawn.append(float(self.control["rate"]))
                return super().advance(begin, end)

        gradient = {"x": np.zeros(5), "rate": np.zeros(())}
        check_gradient(lambda: Recorded(comm), STEPS, gradient, comm=comm)
        return drawn[-1]

    alone, several = on_ranks(1, directions), on_ranks(3, directions)
    assert set(alone) == set(several)
