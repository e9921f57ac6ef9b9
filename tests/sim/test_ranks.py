"""Many ranks: against sums that can be reckoned by hand, and a fluid simulation without any art."""

import signal
from collections.abc import Callable
from math import erf, exp, inf, log, nan
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim.fluid import finishes

from ckio.actions import Advance, Discard, Key, Kind, Read, Write
from ckio.errors import BadInput, IllegalAction
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.profile import Lognormal, Quantiles, parse_spread
from ckio.schedule import Schedule, makespan
from ckio.sim.engine import simulate
from ckio.sim.ranks import Barrier, Ranks, Shared
from ckio.sim.ranks.sharing import RanksOutcome, simulate_ranks
from ckio.testing.strategies import (
    Case,
    legal_schedules,
    random_complete,
    random_legal,
    untidy_schedules,
)

Crowd = tuple[Schedule, Platform, Ranks]

ROUNDING = 1e-12
"""Sums are taken stretch by stretch; this is how far they may be from those action by action."""

CHAIN = Chain(steps=4, advance=1.0, record=1.0, reverse=2.0, restart=100, tape=50, adjoint=70)
ARCHIVE = Level(name="archive", write=Affine(0.5, 0.01), read=Affine(0.25, 0.005))
PLATFORM = Platform((ARCHIVE,))
X0, X2 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 2)
WRITE_ONCE = Schedule(CHAIN, [Advance(0, 2), Write(X2, 0), Advance(2, 4)])
BACK_AND_FORTH = Schedule(
    CHAIN, [Write(X0, 0), Advance(0, 2), Write(X2, 0), Advance(2, 4), Read(X0, 0), Discard(X0, 0)]
)


def crowd(random: Random, make: Callable[[Random], Case], /, *, most: int) -> Crowd:
    """A schedule, its platform, and ranks that share some of its channels."""
    schedule, platform = make(random)
    shared = {
        level.channel: Shared(random.choice((0.1, 1.0, 3.0, 40.0)), random.random() < 0.5)
        for level in platform.levels
        if random.random() < 0.8
    }
    spread = random.choice((None, Lognormal(0.3), Quantiles((1, 1, 1.5)), Quantiles((1, 2, 2, 9))))
    count, seed = random.randint(1, most), random.randrange(100)
    return schedule, platform, Ranks(count=count, shared=shared, spread=spread, seed=seed)


def crowds(make: Callable[[Random], Case], /, *, most: int) -> st.SearchStrategy[Crowd]:
    return st.randoms(use_true_random=False).map(lambda random: crowd(random, make, most=most))


def same(outcome: RanksOutcome, other: RanksOutcome) -> bool:
    """To the last bit, but for how many groups there were."""
    return (
        np.array_equal(outcome.finish, other.finish)
        and np.array_equal(outcome.waited, other.waited)
        and all(
            (use.nbytes, use.busy, use.most) == (that.nbytes, that.busy, that.most)
            and np.array_equal(use.slowed, that.slowed)
            for use, that in zip(outcome.channels.values(), other.channels.values(), strict=True)
        )
    )


@given(untidy_schedules())
@settings(max_examples=25)
def test_ranks_that_share_nothing_take_as_long_as_one_does(case: Case) -> None:
    outcome = simulate_ranks(*case, Ranks(count=3))
    assert outcome.finish.tolist() == [outcome.makespan] * 3
    assert outcome.makespan == pytest.approx(simulate(*case).makespan, rel=ROUNDING)
    assert outcome.groups == 1


@given(legal_schedules(), st.integers(1, 5))
@settings(max_examples=25)
def test_a_channel_with_room_for_all_slows_nobody(case: Case, count: int) -> None:
    shared = {level.channel: Shared(1e20) for level in case[1].levels}
    outcome = simulate_ranks(*case, Ranks(count=count, shared=shared))
    assert outcome.makespan == pytest.approx(makespan(*case), rel=ROUNDING)
    slowed = max(use.slowed.max() for use in outcome.channels.values())
    assert slowed == pytest.approx(0, abs=ROUNDING * max(1.0, outcome.makespan))


def check_with_fluid(given: Crowd) -> None:
    schedule, platform, ranks = given
    outcome = simulate_ranks(schedule, platform, ranks)
    expected = finishes(schedule, platform, ranks, ranks.factors().tolist())
    assert outcome.finish.tolist() == pytest.approx(expected, rel=1e-9)


@given(crowds(random_complete, most=4))
@settings(max_examples=40)
def test_any_ranks_are_done_when_the_fluid_says(given: Crowd) -> None:
    check_with_fluid(given)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_very_many_ranks_are_done_when_the_fluid_says(seed: int) -> None:
    random = Random(seed)
    for _ in range(100):
        check_with_fluid(crowd(random, random_legal, most=3))
        check_with_fluid(crowd(random, random_complete, most=9))


@given(crowds(random_complete, most=12))
@settings(max_examples=25)
def test_groups_find_what_all_find_one_by_one(given: Crowd) -> None:
    ranks = given[2]
    found, each = simulate_ranks(*given), simulate_ranks(*given, one_by_one=True)
    assert same(found, each)
    assert each.groups == ranks.count
    assert found.groups == len(set(ranks.factors().tolist()))


@given(crowds(random_complete, most=12))
@settings(max_examples=25)
def test_no_channel_moves_more_than_it_can_and_all_that_was_to_be_moved(given: Crowd) -> None:
    schedule, platform, ranks = given
    outcome = simulate_ranks(*given)
    for name, use in outcome.channels.items():
        assert use.achieved <= use.bandwidth * (1 + 1e-9)
        assert use.busy <= outcome.makespan * (1 + 1e-9)
        levels = [level for level in platform.levels if level.channel == name]
        moved = sum(
            level.ratio * schedule.chain.nbytes(action.key)
            for level in levels
            for action in schedule.actions
            if isinstance(action, Write | Read) and platform.levels[action.level] is level
        )
        assert use.nbytes == pytest.approx(ranks.count * moved)
        assert use.most <= ranks.count


@pytest.mark.parametrize("count", [1, 2, 3, 1000, 100_000])
@pytest.mark.parametrize("bandwidth", [250.0, 25.0])
def test_ranks_that_write_at_once_share_the_bandwidth_evenly(count: int, bandwidth: float) -> None:
    """In bytes per second; alone, a rank writes 100: the smaller one does not do for a single."""
    ranks = Ranks(count=count, shared={"archive": Shared(bandwidth)})
    outcome = simulate_ranks(WRITE_ONCE, PLATFORM, ranks)
    writing = max(1.0, count * 100 / bandwidth)
    assert outcome.makespan == pytest.approx(4.0 + 0.5 + writing, rel=ROUNDING)
    use = outcome.channels["archive"]
    assert use.busy == pytest.approx(writing, rel=ROUNDING)
    assert use.achieved == pytest.approx(min(count * 100, bandwidth), rel=ROUNDING)
    assert use.slowed.shape == outcome.finish.shape == (count,)
    assert np.allclose(use.slowed, writing - 1.0, rtol=ROUNDING, atol=ROUNDING)
    assert (use.most, outcome.groups) == (count, 1)


def test_a_price_without_a_part_for_bytes_leaves_only_the_bandwidth() -> None:
    platform = Platform((Level(name="archive", write=Affine(0.5)),))
    ranks = Ranks(count=3, shared={"archive": Shared(60.0)})
    outcome = simulate_ranks(WRITE_ONCE, platform, ranks)
    assert outcome.makespan == pytest.approx(4.0 + 0.5 + 300 / 60)


def test_levels_on_one_channel_share_its_bandwidth() -> None:
    near = Level(name="near", channel="bus", write=Affine(per_byte=0.01))
    far = Level(name="far", channel="bus", write=Affine(per_byte=0.01), ratio=0.5)
    ranks = Ranks(count=2, shared={"bus": Shared(100.0)})
    schedule = Schedule(CHAIN, [Write(X0, 0), Write(X0, 1)])
    outcome = simulate_ranks(schedule, Platform((near, far)), ranks)
    assert outcome.makespan == pytest.approx(2 * 100 / 100 + 2 * 50 / 100)
    assert outcome.channels["bus"].nbytes == 300


def test_who_comes_later_has_the_channel_for_itself_when_the_first_is_done() -> None:
    ranks = Ranks(count=2, shared={"archive": Shared(100.0)}, spread=Lognormal(0.2), seed=5)
    early, late = sorted(ranks.factors())
    assert 2 * (late - early) < 1  # they meet
    outcome = simulate_ranks(WRITE_ONCE, PLATFORM, ranks)
    begun, joined = 2 * early + 0.5, 2 * late + 0.5
    first = joined + (1 - (joined - begun)) * 2  # the rest of its second, at half the speed
    assert sorted(outcome.finish) == pytest.approx([first + 2 * early, begun + 2.0 + 2 * late])
    assert outcome.slowest == int(np.argmax(ranks.factors()))


def test_a_collective_write_begins_when_the_last_has_come() -> None:
    shared = {"archive": Shared(100.0, collective=True)}
    ranks = Ranks(count=3, shared=shared, spread=Quantiles((1, 3)), seed=1)
    factors = ranks.factors()
    outcome = simulate_ranks(WRITE_ONCE, PLATFORM, ranks)
    written = 2 * factors.max() + 0.5 + 3.0
    assert outcome.finish == pytest.approx(written + 2 * factors)
    assert outcome.waited == pytest.approx(2 * (factors.max() - factors))
    assert outcome.channels["archive"].slowed == pytest.approx(np.full(3, 2.0))


def test_a_read_is_never_collective() -> None:
    schedule = Schedule(CHAIN, [Advance(0, 2), Read(X0, 0)], [{X0}])
    spread = Quantiles((1, 3))
    together = Ranks(count=2, shared={"archive": Shared(1e9, True)}, spread=spread)
    assert simulate_ranks(schedule, PLATFORM, together).waited.tolist() == [0, 0]


def test_the_jitter_of_a_rank_is_drawn_for_each_step_that_it_computes() -> None:
    ranks = Ranks(count=5, spread=Lognormal(0.5), jitter=Lognormal(0.3), seed=7)
    outcome = simulate_ranks(BACK_AND_FORTH, PLATFORM, ranks)
    storing = makespan(BACK_AND_FORTH, PLATFORM) - 4.0
    drawn = np.exp(0.3 * np.stack([normals(7, 1 + rank, 4) for rank in range(5)]))
    factors = np.exp(0.5 * normals(7, 0, 5))
    assert outcome.finish == pytest.approx(factors * drawn.sum(axis=1) + storing)
    assert outcome.groups == 5


def normals(seed: int, stream: int, count: int) -> Any:
    return np.random.default_rng((seed, stream)).standard_normal(count)


@pytest.mark.parametrize("jitter", [None, Lognormal(0.3), Quantiles((0.5, 1, 4))])
@pytest.mark.parametrize("collective", [False, True])
def test_a_barrier_waits_for_the_slowest(jitter: Any, collective: bool) -> None:
    steps = np.array([[0, 1], [2, 3]])  # those of the stretches between three transfers
    given: dict[str, Any] = {"spread": Lognormal(0.4), "jitter": jitter, "seed": 3}
    shared = {"archive": Shared(150.0, collective)}
    drawn = Ranks(count=6, **given)
    seconds = np.stack(
        [np.ones(4) if jitter is None else drawn.draws(rank, 4) for rank in range(6)]
    )
    seconds *= drawn.factors()[:, np.newaxis]
    storing = 3 * 600 / 150 + 2 * 0.5 + 0.25  # two writes, a read: 600 bytes each, at 150 a second
    for barrier, waits in (
        (Barrier.STEP, seconds.max(axis=0).sum()),
        (Barrier.STRETCH, sum(seconds[:, stretch].sum(axis=1).max() for stretch in steps)),
    ):
        ranks = Ranks(count=6, shared=shared, barrier=barrier, **given)
        outcome = simulate_ranks(BACK_AND_FORTH, PLATFORM, ranks)
        assert outcome.finish == pytest.approx(np.full(6, waits + storing))
        assert outcome.waited == pytest.approx(waits - seconds.sum(axis=1))
        assert same(outcome, simulate_ranks(BACK_AND_FORTH, PLATFORM, ranks, one_by_one=True))


def test_steps_with_barriers_take_as_long_as_the_slowest_of_so_many_is_known_to() -> None:
    """The mean of the largest of n factors is the integral of 1 - F(x)^n; F is the lognormal's."""
    steps, count, sigma = 2000, 64, 0.3
    chain = Chain(steps=steps, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    ranks = Ranks(count=count, jitter=Lognormal(sigma), barrier=Barrier.STEP, seed=2)
    outcome = simulate_ranks(Schedule(chain, [Advance(0, steps)]), PLATFORM, ranks)
    x = np.linspace(1e-9, 8, 20_001)
    below = np.array([0.5 + erf(log(at) / sigma / 2**0.5) / 2 for at in x])
    exact = np.trapezoid(1 - below**count, x)
    largest = np.exp(sigma * np.random.default_rng(5).standard_normal((4000, count))).max(axis=1)
    assert largest.mean() == pytest.approx(exact, abs=4 * largest.std() / 4000**0.5)
    assert outcome.makespan / steps == pytest.approx(exact, abs=4 * largest.std() / steps**0.5)
    mean = exp(sigma**2 / 2)  # of all: what each rank computes itself
    assert outcome.waited.mean() / steps == pytest.approx(exact - mean, rel=0.02)


def test_factors_of_a_rank_do_not_depend_on_how_many_there_are() -> None:
    few, many = (
        Ranks(count=count, spread=Lognormal(1.0), jitter=Quantiles((1, 2)), seed=9)
        for count in (3, 50)
    )
    assert few.factors().tolist() == many.factors()[:3].tolist()
    first, second = (ranks.draws(2, 10) for ranks in (few, many))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, many.draws(3, 10))
    assert not np.array_equal(few.factors(), Ranks(count=3, spread=Lognormal(1.0)).factors())


def test_quantiles_are_met() -> None:
    factors = Ranks(count=20_000, spread=Quantiles((1, 1, 1, 2, 5))).factors()
    assert (factors == 1).mean() == pytest.approx(0.5, abs=0.02)
    assert (factors <= 2).mean() == pytest.approx(0.75, abs=0.02)
    assert 4.9 < factors.max() <= 5


def test_half_of_lognormal_factors_are_above_one() -> None:
    factors = Ranks(count=20_000, spread=Lognormal(0.25)).factors()
    assert (factors > 1).mean() == pytest.approx(0.5, abs=0.02)
    assert np.log(factors).std() == pytest.approx(0.25, rel=0.03)


def test_a_schedule_without_actions_takes_no_time() -> None:
    ranks = Ranks(count=3, shared={"archive": Shared(1.0)}, jitter=Lognormal(1.0))
    for barrier in Barrier:
        outcome = simulate_ranks(Schedule(CHAIN, []), PLATFORM, replaced(ranks, barrier))
        assert outcome.makespan == 0.0
        assert outcome.channels["archive"].achieved == 0.0


def replaced(ranks: Ranks, barrier: Barrier) -> Ranks:
    return Ranks(count=ranks.count, shared=ranks.shared, jitter=ranks.jitter, barrier=barrier)


def test_a_watcher_hears_of_all_transfers() -> None:
    for count in (1, 30_000):
        heard: list[int] = []
        ranks = Ranks(count=count, shared={"archive": Shared(1e6)})
        simulate_ranks(BACK_AND_FORTH, PLATFORM, ranks, watch=heard.append)
        assert sum(heard) == 3 * count


@pytest.mark.slow
def test_an_interrupt_ends_the_simulation() -> None:
    def heard(_: int) -> None:
        signal.raise_signal(signal.SIGINT)

    ranks = Ranks(count=30_000, shared={"archive": Shared(1e6)}, spread=Quantiles((1, 1, 2)))
    with pytest.raises(KeyboardInterrupt):
        simulate_ranks(BACK_AND_FORTH, PLATFORM, ranks, watch=heard)


def test_an_illegal_schedule_is_refused() -> None:
    with pytest.raises(IllegalAction, match="#1"):
        simulate_ranks(Schedule(CHAIN, [Advance(0, 1)] * 2), PLATFORM, Ranks(count=2))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ranks(count=0), "count = 0"),
        (lambda: Ranks(count=2.0), "count = 2.0"),  # type: ignore[arg-type]
        (lambda: Ranks(count=10**9), "count = 1000000000; it must be 10000000 at most"),
        (lambda: Ranks(count=1, seed=-1), "seed = -1"),
        (lambda: Shared(nan), "bandwidth = nan"),
        (lambda: Shared(5e-324), "bandwidth = 5e-324"),
        (lambda: Lognormal(nan), "sigma = nan"),
        (lambda: Quantiles((1, nan)), "factors = "),
        (lambda: Quantiles((1e-300, 1)), "factors = "),
        (lambda: Quantiles((1, 1e300)), "factors = "),
        (lambda: Shared(0.0), "bandwidth = 0.0"),
        (lambda: Shared(inf), "bandwidth = inf"),
        (lambda: Shared.parse("archive"), "is not CHANNEL="),
        (lambda: Shared.parse("archive=1GB,together"), "is not CHANNEL="),
        (lambda: Shared.parse("archive=fast"), "is not a size"),
        (lambda: Lognormal(-0.1), "sigma = -0.1"),
        (lambda: Lognormal(11), "sigma = 11"),
        (lambda: Quantiles(()), "factors = "),
        (lambda: Quantiles((0, 1)), "factors = "),
        (lambda: Quantiles((2, 1)), "factors = "),
        (lambda: parse_spread("lognormal:1,2"), "is not lognormal"),
        (lambda: parse_spread("quantiles:"), "is not lognormal"),
        (lambda: parse_spread("normal:1"), "is not lognormal"),
    ],
)
def test_what_has_no_meaning_is_refused(make: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        make()


def test_a_channel_that_is_not_there_is_refused() -> None:
    ranks = Ranks(count=2, shared={"disk": Shared(1.0)})
    with pytest.raises(BadInput, match=r"no channel is named 'disk'; this platform has: archive"):
        simulate_ranks(WRITE_ONCE, PLATFORM, ranks)


def test_seconds_beyond_all_sums_are_refused() -> None:
    chain = Chain(steps=4, advance=1e300, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    with pytest.raises(BadInput, match="1e\\+200 seconds"):
        simulate_ranks(Schedule(chain, [Advance(0, 2)]), PLATFORM, Ranks(count=2))
