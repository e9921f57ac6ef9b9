"""Many ranks: against sums that can be reckoned by hand, and a fluid simulation without any art."""

import signal
from collections.abc import Iterator
from dataclasses import replace
from math import erf, exp, inf, log, nan
from random import Random
from typing import Any

import numpy as np
import pytest
import simpy
from drawing import random_complete, random_legal
from oracles.fluid import finishes

from ckio.actions import Advance, Discard, Key, Kind, Read, Write
from ckio.errors import BadInput, IllegalAction
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.sim.ranks import Barrier, Ranks, parse_shared
from ckio.sim.ranks.channel import Channel
from ckio.sim.ranks.sharing import RanksOutcome, simulate_ranks
from ckio.sim.ranks.spread import Lognormal, Quantiles, parse_spread

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


def of_archive(count: int, bandwidth: float = 1e9, **more: Any) -> Ranks:
    return Ranks(count=count, shared={"archive": bandwidth}, **more)


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


@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, 2000), marks=pytest.mark.slow)], ids=len
)
def test_any_ranks_are_done_when_the_fluid_says(seeds: range) -> None:
    """In groups as one by one; and no channel moves more than it can, or than there is to move."""
    for seed in seeds:
        random = Random(seed)
        schedule, platform = random.choice((random_complete, random_legal))(random)
        shared = {
            level.channel: random.choice((0.1, 1.0, 3.0, 40.0, 1e20))
            for level in platform.levels
            if random.random() < 0.8
        }
        spreads = (None, Lognormal(0.3), Quantiles((1, 1, 1.5)), Quantiles((1, 2, 2, 9)))
        count = random.randint(1, 9)
        ranks = Ranks(count=count, shared=shared, spread=random.choice(spreads), seed=seed)
        outcome = simulate_ranks(schedule, platform, ranks)
        factors: list[float] = ranks.factors().tolist()
        expected = finishes(schedule, platform, ranks, factors)
        assert outcome.finish.tolist() == pytest.approx(expected, rel=1e-9), f"seed {seed}"
        each = simulate_ranks(schedule, platform, ranks, one_by_one=True)
        assert same(outcome, each), f"seed {seed}"
        assert (outcome.groups, each.groups) == (len(set(factors)), count), f"seed {seed}"
        for name, use in outcome.channels.items():
            moved = sum(
                level.ratio * schedule.chain.nbytes(action.key)
                for action in schedule.actions
                if isinstance(action, Write | Read)
                and (level := platform.levels[action.level]).channel == name
            )
            assert use.nbytes == pytest.approx(count * moved), f"seed {seed}"
            assert use.achieved <= use.bandwidth * (1 + 1e-9), f"seed {seed}"
            assert use.busy <= outcome.makespan * (1 + 1e-9), f"seed {seed}"
            assert use.most <= count, f"seed {seed}"


@pytest.mark.parametrize("bandwidth", [250.0, 25.0])
def test_ranks_that_write_at_once_share_the_bandwidth_evenly(bandwidth: float) -> None:
    """In bytes per second; alone, a rank writes 100: the smaller one does not do for a single."""
    for count in (1, 2, 3, 1000, 100_000):
        outcome = simulate_ranks(WRITE_ONCE, PLATFORM, of_archive(count, bandwidth))
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
    outcome = simulate_ranks(WRITE_ONCE, platform, of_archive(3, 60.0))
    assert outcome.makespan == pytest.approx(4.0 + 0.5 + 300 / 60)


def test_levels_on_one_channel_share_its_bandwidth() -> None:
    near = Level(name="near", channel="bus", write=Affine(per_byte=0.01))
    far = replace(near, name="far", ratio=0.5)
    ranks = Ranks(count=2, shared={"bus": 100.0})
    schedule = Schedule(CHAIN, [Write(X0, 0), Write(X0, 1)])
    outcome = simulate_ranks(schedule, Platform((near, far)), ranks)
    assert outcome.makespan == pytest.approx(2 * 100 / 100 + 2 * 50 / 100)
    assert outcome.channels["bus"].nbytes == 300


def test_who_comes_later_has_the_channel_for_itself_when_the_first_is_done() -> None:
    ranks = of_archive(2, 100.0, spread=Lognormal(0.2), seed=5)
    early, late = sorted(ranks.factors())
    assert 2 * (late - early) < 1  # they meet
    outcome = simulate_ranks(WRITE_ONCE, PLATFORM, ranks)
    begun, joined = 2 * early + 0.5, 2 * late + 0.5
    first = joined + (1 - (joined - begun)) * 2  # the rest of its second, at half the speed
    assert sorted(outcome.finish) == pytest.approx([first + 2 * early, begun + 2.0 + 2 * late])
    assert outcome.slowest == int(np.argmax(ranks.factors()))


def test_the_jitter_of_a_rank_is_drawn_for_each_step_that_it_computes() -> None:
    def normals(stream: int, count: int) -> Any:
        return np.random.default_rng((7, stream)).standard_normal(count)

    ranks = Ranks(count=5, spread=Lognormal(0.5), jitter=Lognormal(0.3), seed=7)
    outcome = simulate_ranks(BACK_AND_FORTH, PLATFORM, ranks)
    storing = makespan(BACK_AND_FORTH, PLATFORM) - 4.0
    drawn = np.exp(0.3 * np.stack([normals(1 + rank, 4) for rank in range(5)]))
    assert outcome.finish == pytest.approx(
        np.exp(0.5 * normals(0, 5)) * drawn.sum(axis=1) + storing
    )
    assert outcome.groups == 5


@pytest.mark.parametrize("jitter", [None, Lognormal(0.3), Quantiles((0.5, 1, 4))])
def test_a_barrier_waits_for_the_slowest(jitter: Any) -> None:
    stretches = np.array([[0, 1], [2, 3]])  # the steps between three transfers
    ranks = of_archive(6, 150.0, spread=Lognormal(0.4), jitter=jitter, seed=3)
    seconds = np.stack(
        [np.ones(4) if jitter is None else ranks.draws(rank, 4) for rank in range(6)]
    )
    seconds *= ranks.factors()[:, np.newaxis]
    storing = 3 * 600 / 150 + 2 * 0.5 + 0.25  # two writes, a read: 600 bytes each, at 150 a second
    for barrier, waits in (
        (Barrier.STEP, seconds.max(axis=0).sum()),
        (Barrier.STRETCH, sum(seconds[:, steps].sum(axis=1).max() for steps in stretches)),
    ):
        held = replace(ranks, barrier=barrier)
        outcome = simulate_ranks(BACK_AND_FORTH, PLATFORM, held)
        assert outcome.finish == pytest.approx(np.full(6, waits + storing))
        assert outcome.waited == pytest.approx(waits - seconds.sum(axis=1))
        assert same(outcome, simulate_ranks(BACK_AND_FORTH, PLATFORM, held, one_by_one=True))


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
    assert np.array_equal(few.draws(2, 10), many.draws(2, 10))
    assert not np.array_equal(few.draws(2, 10), many.draws(3, 10))
    assert not np.array_equal(few.factors(), Ranks(count=3, spread=Lognormal(1.0)).factors())


def test_factors_are_spread_as_they_are_said_to_be() -> None:
    factors = Ranks(count=20_000, spread=Quantiles((1, 1, 1, 2, 5))).factors()
    assert (factors == 1).mean() == pytest.approx(0.5, abs=0.02)
    assert (factors <= 2).mean() == pytest.approx(0.75, abs=0.02)
    assert 4.9 < factors.max() <= 5
    factors = Ranks(count=20_000, spread=Lognormal(0.25)).factors()
    assert (factors > 1).mean() == pytest.approx(0.5, abs=0.02)
    assert np.log(factors).std() == pytest.approx(0.25, rel=0.03)


@pytest.mark.parametrize("barrier", Barrier)
def test_a_schedule_without_actions_takes_no_time(barrier: Barrier) -> None:
    ranks = of_archive(3, 1.0, jitter=Lognormal(1.0), barrier=barrier)
    outcome = simulate_ranks(Schedule(CHAIN, []), PLATFORM, ranks)
    assert (outcome.makespan, outcome.channels["archive"].achieved) == (0.0, 0.0)


def test_a_watcher_hears_of_all_transfers_and_may_interrupt() -> None:
    for count in (1, 6_000):
        heard: list[int] = []
        simulate_ranks(BACK_AND_FORTH, PLATFORM, of_archive(count, 1e6), watch=heard.append)
        assert sum(heard) == 3 * count
    ranks = of_archive(6_000, 1e6, spread=Quantiles((1, 1, 2)))
    with pytest.raises(KeyboardInterrupt):
        simulate_ranks(
            BACK_AND_FORTH, PLATFORM, ranks, watch=lambda _: signal.raise_signal(signal.SIGINT)
        )


def test_an_illegal_schedule_is_refused() -> None:
    with pytest.raises(IllegalAction, match="#1"):
        simulate_ranks(Schedule(CHAIN, [Advance(0, 1)] * 2), PLATFORM, Ranks(count=2))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ranks(count=0), "count = 0"),
        (lambda: Ranks(count=2.0), "count = 2.0"),  # type: ignore[arg-type]
        (lambda: Ranks(count=10**9), "count = 1000000000; .*10000000"),
        (lambda: Ranks(count=1, seed=-1), "seed = -1"),
        *(
            (lambda at=at: of_archive(1, at), "bandwidth of 'archive' is ")
            for at in (nan, inf, 0.0, 5e-324)
        ),
        *((lambda sigma=sigma: Lognormal(sigma), "sigma = ") for sigma in (nan, -0.1, 11)),
        *(
            (lambda factors=factors: Quantiles(factors), "factors = ")
            for factors in ((1, nan), (1e-300, 1), (1, 1e300), (), (0, 1), (2, 1))
        ),
        (lambda: parse_shared("archive"), "is not CHANNEL="),
        (lambda: parse_shared("archive=1GB,together"), "is not a size"),
        (lambda: parse_shared("archive=fast"), "is not a size"),
        *(
            (lambda text=text: parse_spread(text), "is not lognormal")
            for text in ("lognormal:1,2", "quantiles:", "normal:1")
        ),
    ],
)
def test_what_has_no_meaning_is_refused(make: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        make()


@pytest.mark.parametrize(
    ("bandwidth", "speeds", "clients", "ends", "busy"),
    [
        # On 6 bytes a second, two that move 1 at most leave 2 to each of the others.
        (6, [10, 1], [(0, 1, 4, 1), (0, 1, 4, 1), (0, 0, 4, 1), (0, 0, 4, 1)], [4, 4, 2, 2], 4),
        (6, [10, 1], [(0, 1, 4, 2), (0, 0, 4, 2)], [4, 2], 4),  # one that stands for two
        (2, [2], [(0, 0, 8, 1), (1, 0, 1, 1)], [4.5, 2], 4.5),  # a shorter one comes later
        (1, [1], [(0, 0, 1, 1), (5, 0, 2, 1), (9, 0, 0, 1)], [1, 7, 9], 3),  # idle in between
        # A petabyte before, where bytes are counted in eighths, is forgotten when it is gone.
        (1e9, [1e9], [(0, 0, 1e15, 1), (2e6, 0, 1000.3, 10**6)], [1e6, 2e6 + 1.0003], 1000001.0003),
    ],
)
def test_a_channel_is_shared_by_those_that_are_there(
    bandwidth: float,
    speeds: list[float],
    clients: list[tuple[float, int, float, int]],
    ends: list[float],
    busy: float,
) -> None:
    """Each client comes, has one of the speeds, moves bytes, and stands for so many."""
    environment = simpy.Environment()
    channel, done = Channel(environment, bandwidth), [0.0] * len(clients)

    def client(number: int, come: float, speed: int, *transfer: Any) -> Iterator[simpy.Event]:
        yield environment.timeout(come)
        yield channel.transfer(speeds[speed], *transfer)
        done[number] = environment.now

    for number, given in enumerate(clients):
        environment.process(client(number, *given))
    environment.run()
    assert done == pytest.approx(ends, rel=0, abs=1e-8)
    assert channel.busy == pytest.approx(busy)
