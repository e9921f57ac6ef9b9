"""What Siskind and Pearlmutter (2016) show, on their Listing 1: space, time and the gradient."""

import inspect
import math
from functools import cache
from typing import Any

import numpy as np
from unknown_length import duration, listing1

from ckio.programs import Options, checkpoint_vjp, primops, vjp

LENGTHS = 103, 203, 403, 1003
BASE = 128
X, EPS = 3.0, 1e-3

Stats = dict[str, int]


@cache
def taken_back(n: int, eps: float) -> tuple[Any, Any, Stats]:
    """Result, gradient and figures with checkpoints."""
    stats: Stats = {}
    y, bar = checkpoint_vjp(listing1, (X, n, eps), 1.0, Options(base=BASE), stats=stats)
    return y, bar, stats


@cache
def taped(n: int, eps: float) -> tuple[Any, Any, Stats]:
    """The same by one tape."""
    stats: Stats = {}
    y, bar = vjp(listing1, (X, n, eps), 1.0, stats=stats)
    return y, bar, stats


def tangent(x: float, n: int, eps: float) -> float:
    """dy/dx of Listing 1 by the chain rule, forward."""
    y, dy = x, 1.0
    for i in range(1, n + 1):
        for _ in range(duration(x, i, n)):
            square, dsquare = y * y, 2.0 * y * dy
            inside = square + eps * math.sin(square) * x
            dinside = dsquare + eps * (math.cos(square) * dsquare * x + math.sin(square))
            y = math.sqrt(inside)
            dy = dinside / (2.0 * y)
    return dy


def test_live_checkpoints_grow_with_the_logarithm_and_forward_ticks_are_those_of_bisection() -> (
    None
):
    """Each half is run to its middle: t/2 at each of log2(t/base) depths, and to the end before."""
    for n in LENGTHS:
        _, _, stats = taken_back(n, EPS)
        ticks, steps = stats["ticks"], math.ceil(stats["ticks"] / BASE)
        assert stats["base"] == BASE
        assert ticks > 4 * n
        assert 1 <= stats["live_peak"] <= math.ceil(math.log2(ticks / BASE)) + 1
        assert 2 * ticks <= stats["forward_ticks"]
        # Two sweeps, the halves, and a tail of at most a sixteenth that is run again.
        most = ticks * (2 + math.ceil(math.log2(steps)) / 2 + 1 / 8) + BASE
        assert stats["forward_ticks"] <= most


def test_the_tape_does_not_grow_and_the_plain_one_does() -> None:
    short, *_, long = (taken_back(n, EPS)[2] for n in LENGTHS)
    plain_short, *_, plain_long = (taped(n, EPS)[2] for n in LENGTHS)
    longer = long["ticks"] / short["ticks"]
    assert longer > 10
    assert 0 < long["tape_peak"] <= 1.2 * short["tape_peak"]
    assert plain_long["tape_peak"] > 0.8 * longer * plain_short["tape_peak"]
    assert plain_short["tape_peak"] > short["tape_peak"]


def test_the_gradient_is_1_for_the_papers_listing_and_that_of_the_chain_rule_for_others() -> None:
    for n in (20, *LENGTHS):
        y, (by_x, by_n, by_eps), _ = taken_back(n, 0.0)
        assert y == X
        assert abs(by_x - 1.0) <= 1e-12
        assert by_n == 0
        assert by_eps != 0
        _, (by_x, *_), _ = taken_back(n, EPS)
        assert abs(by_x - tangent(X, n, EPS)) <= 1e-12 * abs(by_x)


def test_both_take_the_same() -> None:
    plain, other = (inspect.signature(f).parameters for f in (vjp, checkpoint_vjp))
    for name, parameter in plain.items():
        assert other[name].kind is parameter.kind
        assert other[name].default is parameter.default
    more = [other[name] for name in other.keys() - plain.keys()]
    assert all(parameter.default is not inspect.Parameter.empty for parameter in more)


def figure_3(p: Any, state: Any, ticks: int, cotangent: Any) -> Any:
    """Their algorithm as they print it: the later half of the ticks, then the earlier one."""
    if ticks <= BASE:
        return p.pullback(state, ticks, cotangent)
    half = ticks // 2
    middle, _, _ = p.advance(state, half)
    return figure_3(p, state, half, figure_3(p, middle, ticks - half, cotangent))


def test_their_algorithm_in_five_lines_finds_the_same() -> None:
    x = (X, 103, EPS)
    _, ticks = primops(listing1, *x)
    found = figure_3(listing1, listing1.start(*x), ticks, {"y": np.array(1.0)})
    assert abs(found["x.0"] - taken_back(103, EPS)[1][0]) <= 1e-14
