"""How often to store the adjoint: Daly's estimate, and what it is worth."""

from math import exp, inf, isclose, sqrt

import pytest

from ckio.errors import BadInput
from ckio.planners.recover import adjoint_seconds, every
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain


def wasted(interval: float, cost: float, mean: float) -> float:
    """Seconds for each second of work that is done, where failures come at any time (Daly)."""
    return mean * (exp((interval + cost) / mean) - 1) / interval


@pytest.mark.parametrize(
    ("cost", "mean", "interval"),
    [
        (2, 100, 20 * (1 + 0.1 / 3 + 0.01 / 9) - 2),
        (0.5, 3600, 60 * (1 + sqrt(0.5 / 7200) / 3 + 0.5 / 7200 / 9) - 0.5),
        (200, 100, 100),
        (1000, 100, 100),
    ],
)
def test_the_interval_is_dalys(cost: float, mean: float, interval: float) -> None:
    assert isclose(every(cost, mean), interval, rel_tol=1e-12)


def test_where_checkpoints_cost_little_it_is_youngs() -> None:
    assert isclose(every(1e-6, 1e6), sqrt(2.0), rel_tol=1e-5)


@pytest.mark.parametrize("cost", [0.01, 1, 10, 60])
def test_no_other_interval_wastes_much_less(cost: float) -> None:
    mean = 100.0
    best = min(wasted(0.01 * mean * k, cost, mean) for k in range(1, 400))
    assert wasted(every(cost, mean), cost, mean) <= 1.001 * best


def test_at_the_ends_of_what_can_be() -> None:
    assert every(0, 100) == every(0, inf) == 0
    assert every(3, inf) == inf
    assert every(1e-300, 1e300) > 0
    assert every(1e300, 1e308) < inf


@pytest.mark.parametrize("given", [(-1, 5), (inf, 5), (float("nan"), 5), (1, 0), (1, -2)])
def test_what_is_no_time_is_refused(given: tuple[float, float]) -> None:
    with pytest.raises(BadInput, match="must be"):
        every(*given)


def test_a_checkpoint_costs_its_write_and_its_discard_on_its_level() -> None:
    chain = Chain(steps=2, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=[4, 6, 5])
    slow = Level(name="slow", write=Affine(1, 2), read=Affine(50), discard=Affine(0.5))
    assert adjoint_seconds(chain, Platform((Level(name="ram"), slow)), 1) == 1 + 2 * 6 + 0.5
    with pytest.raises(BadInput, match="numbered from 0"):
        adjoint_seconds(chain, Platform((slow,)), 1)
