"""Waves on many ranks: the same bits as on one, whatever the strips are."""

from functools import partial

import numpy as np
import pytest
from models.threaded import on_ranks
from small_models import reverse_all

from ckio.actions import Key, Kind
from ckio.errors import BadInput, RunFailed
from ckio.model.comm import SOLO, Comm
from ckio.models.wave import HALO, Wave

STEPS = 60
SMALL = {"grid": 22, "frequency": 25.0}

Bits = dict[str, bytes]


def bits(model: Wave) -> Bits:
    """All of the state, of its adjoint and of the gradient, put together from all ranks."""
    parts = {"": model._state, "adjoint ": model._adjoint.cotangent}
    arrays = {
        f"{of}{name}": model.gathered(name, part[name])
        for of, part in parts.items()
        for name in ("u", "du", "response")
    }
    arrays["gradient"] = model.gathered("m", model.gradient["m"])
    return {name: array.tobytes() for name, array in arrays.items()}


def half_way(comm: Comm, **options: object) -> tuple[Bits, float]:
    """Where the adjoint is half of the way back."""
    model = Wave(**SMALL | options, comm=comm)
    model.record(0, STEPS)
    model.reverse(STEPS // 2, STEPS)
    return bits(model), model.functional


def all_the_way(comm: Comm, **options: object) -> tuple[Bits, float]:
    model = reverse_all(Wave(**SMALL | options, comm=comm), STEPS)
    return bits(model), model.functional


@pytest.mark.parametrize("work", [half_way, all_the_way])
def test_ranks_compute_the_bits_of_one(work):
    """11 ranks have the two rows that others read, and no more."""
    expected, functional = work(SOLO)
    assert functional > 0
    assert len(set(expected.values())) == len(expected)
    for ranks in (1, 2, 3, 4, 5, 11):
        assert on_ranks(ranks, work) == [(expected, functional)] * ranks, ranks
    for options in ({"border": 0}, {"grid": 33, "border": 3}, {"layers": 1}):
        other = work(SOLO, **options)
        assert on_ranks(3, partial(work, **options)) == [other] * 3, options


def test_each_rank_stores_its_own_rows():
    def stored(comm: Comm) -> list[tuple[int, ...]]:
        return [field.shape for field in Wave(**SMALL, comm=comm).layout(Key(Kind.RESTART, 0))]

    found = on_ranks(4, stored)
    assert [shapes[0][0] - 2 * HALO for shapes in found] == [5, 6, 5, 6]
    assert all(shapes == [shapes[0], (shapes[0][0], 22 + 2 * HALO), ()] for shapes in found)


def test_what_is_gathered_is_the_same_on_all_ranks():
    def gathered(comm: Comm) -> tuple[np.ndarray, float]:
        model = Wave(**SMALL, comm=comm)
        return model.gathered("m", model.control["m"]), float(
            model.gathered("J", np.array(2.0**comm.rank))
        )

    for m, total in on_ranks(3, gathered):
        np.testing.assert_array_equal(m, Wave(**SMALL).control["m"])
        assert total == 7.0


def test_ranks_that_would_have_too_few_rows_are_refused():
    message = "22 rows are too few for 12 ranks, each of which needs 2; take a larger grid, or 11"
    with pytest.raises(BadInput, match=message):
        on_ranks(12, lambda comm: Wave(**SMALL, comm=comm))


def test_a_control_that_is_not_stable_on_one_rank_stops_all_of_them():
    def outcome(comm: Comm) -> str:
        model = Wave(**SMALL, comm=comm)
        if comm.rank == 1:
            model.control["m"][0, 3] = np.nan
        try:
            model.advance(0, 1)
        except RunFailed as error:
            return str(error)
        return "went on"

    first, *others = on_ranks(3, outcome)
    assert "the control is smaller, or NaN, at some point" in first
    assert others == [first] * 2
