"""Many ranks whose transfers go on behind them: against one simulated in full, and by hand."""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from drawing import random_complete, random_legal

from ckio.actions import Advance, Discard, Key, Kind, Read, Write
from ckio.errors import BadInput, IllegalAction, NoSchedule
from ckio.planners.dp import hrevolve, mixed
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.profile import Profile
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.sim.engine import simulate
from ckio.sim.ranks import Barrier, Ranks
from ckio.sim.ranks.sharing import simulate_ranks
from ckio.sim.ranks.spread import Lognormal, Quantiles

Given = tuple[Schedule, Platform, Overlap]

X0, X2 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 2)
CHAIN = Chain(steps=8, advance=1.0, record=1.5, reverse=2.5, restart=100, tape=7, adjoint=3)
RAM = Level(name="ram", capacity=300, write=Affine(0.5), read=Affine(0.25))
ARCHIVE = Level(
    name="archive", backend="directory", write=Affine(0.5, 0.01), read=Affine(0.25, 0.005)
)
PLATFORM = Platform((RAM, ARCHIVE))
BEHIND = Schedule(CHAIN, [Write(X0, 1), Advance(0, 8)])


def drawn(random: Random) -> Given:
    """No two instants are the same: then what comes first does not depend on rounding."""

    def price() -> Affine:
        return Affine(random.uniform(0.1, 3), random.choice((0, random.uniform(0, 0.5))))

    def profile() -> Profile | None:
        optional = ("write_beside", "read_beside", "write_own", "read_own")
        losses = ("write_hinders", "read_hinders", "discard_hinders")
        prices = {name: random.choice((None, price())) for name in optional}
        return Profile(**prices, **{name: Affine(random.uniform(0, 0.5)) for name in losses})

    schedule, platform = _planned(random)
    levels = [
        replace(
            level,
            **{access: price() for access in ("write", "read", "discard")},
            backend="directory" if number or random.random() < 0.1 else "ram",
            channel=random.choice(("", "bus")) if number else "",
            profile=random.choice((None, profile())),
        )
        for number, level in enumerate(platform.levels)
    ]
    counts = (0, 1, 2, 3, None)
    horizon = random.choice((float("inf"), float("inf"), 2.0, 6.0))
    overlap = Overlap(random.choice(counts), random.choice(counts), horizon)
    overhead = random.choice((0.0, random.uniform(0, 0.5)))
    return schedule, replace(platform, levels=tuple(levels), overhead=overhead), overlap


def _planned(random: Random) -> tuple[Schedule, Platform]:
    if random.random() < 0.5:
        schedule, platform = random.choice((random_complete, random_legal))(random, most_levels=4)
        levels = [
            replace(
                level, ratio=1.0, capacity=None if level.capacity is None else 2 * level.capacity
            )
            for level in platform.levels
        ]
        return schedule, replace(platform, levels=tuple(levels))
    seconds = {name: random.uniform(0.2, 2) for name in ("advance", "record", "reverse")}
    chain = Chain(steps=random.randint(1, 25), **seconds, restart=4, tape=3, adjoint=2)
    rooms = [random.randint(4, 25) for _ in range(random.randint(1, 2))]
    levels = [
        Level(name=f"level{number}", capacity=room, write=Affine(1.0), read=Affine(1.0))
        for number, room in enumerate([*rooms, None])
    ]
    platform = Platform(tuple(levels), working_memory=3)
    try:
        return random.choice((hrevolve, mixed))(chain, platform), platform
    except NoSchedule:
        return _planned(random)


def some_shared(random: Random, platform: Platform, *bandwidths: float) -> dict[str, float]:
    """Some of the channels of far levels."""
    names = {level.channel for level in platform.levels if level.backend != "ram"}
    return {name: random.choice(bandwidths) for name in sorted(names) if random.random() < 0.6}


SEEDS = pytest.mark.parametrize(
    "seeds", [range(30), pytest.param(range(30, 5000), marks=pytest.mark.slow)], ids=len
)


@SEEDS
def test_ranks_that_have_room_take_what_one_simulated_in_full_does(seeds: range) -> None:
    behind = 0
    for seed in seeds:
        random = Random(seed)
        schedule, platform, overlap = drawn(random)
        shared = some_shared(random, platform, 1e15)
        expected = simulate(schedule, platform, overlap=overlap)
        found = simulate_ranks(schedule, platform, Ranks(count=3, shared=shared), overlap=overlap)
        assert found.finish == pytest.approx([expected.makespan] * 3, rel=1e-9), f"seed {seed}"
        assert found.groups == 1
        moved = zip(expected.transfers.actions, expected.transfers.nbytes.tolist(), strict=True)
        nbytes = Counter[str]()
        for action, stored in moved:
            nbytes[platform.levels[action.level].channel] += stored  # type: ignore[union-attr]
        for name, use in found.channels.items():
            assert not overlap or use.nbytes == pytest.approx(3 * nbytes[name]), f"seed {seed}"
        behind += len(expected.transfers)
    assert behind > 300


@SEEDS
def test_groups_find_what_all_find_one_by_one_and_no_channel_moves_more_than_it_can(
    seeds: range,
) -> None:
    for seed in seeds:
        random = Random(seed)
        schedule, platform, overlap = drawn(random)
        shared = some_shared(random, platform, 0.3, 3.0, 30.0)
        spread = random.choice((None, Quantiles((1, 1.5)), Quantiles((1, 1, 3.1))))
        ranks = Ranks(count=random.randint(2, 8), shared=shared, spread=spread, seed=seed)
        grouped, each = (
            simulate_ranks(schedule, platform, ranks, overlap=overlap, one_by_one=one_by_one)
            for one_by_one in (False, True)
        )
        assert np.array_equal(grouped.finish, each.finish), f"seed {seed}"
        assert (grouped.groups, each.groups) == (len(set(ranks.factors())), ranks.count)
        for use, that in zip(grouped.channels.values(), each.channels.values(), strict=True):
            assert (use.busy, use.most) == (that.busy, that.most), f"seed {seed}"
            assert use.nbytes == pytest.approx(that.nbytes), f"seed {seed}"
            assert np.array_equal(use.slowed, that.slowed), f"seed {seed}"
        varied = replace(ranks, spread=None, jitter=Lognormal(0.3))
        found = simulate_ranks(schedule, platform, varied, overlap=overlap)
        for use in found.channels.values():
            assert use.nbytes <= use.bandwidth * use.busy * (1 + 1e-9), f"seed {seed}"
            assert (use.slowed >= 0).all(), f"seed {seed}"


# By hand


def test_a_write_behind_is_slowed_and_a_rank_is_done_when_its_transfers_are() -> None:
    # A copy, and eight steps; half a second of latency, and 100 bytes at 25 a second.
    for count, makespan in ((4, 0.5 + 8), (20, 0.5 + 0.5 + 20)):
        ranks = Ranks(count=count, shared={"archive": 100.0})
        outcome = simulate_ranks(BEHIND, PLATFORM, ranks, overlap=Overlap(1))
        assert outcome.finish.tolist() == [makespan] * count
        use = outcome.channels["archive"]
        assert (use.busy, use.most, use.nbytes) == (count, count, 100 * count)
        assert use.slowed.tolist() == [count - 1.0] * count


def test_steps_that_cost_nothing_delay_no_transfer() -> None:
    # A copy; then two transfers in turn, each of half a second of latency and 100 bytes at 25 a
    # second. The second copy, and the steps after each, take place during the first transfer.
    schedule = Schedule(
        replace(CHAIN, advance=0.0), [Write(X0, 1), Advance(0, 2), Write(X2, 1), Advance(2, 8)]
    )
    ranks = Ranks(count=4, shared={"archive": 100.0})
    outcome = simulate_ranks(schedule, PLATFORM, ranks, overlap=Overlap(2))
    assert outcome.finish.tolist() == [0.5 + 2 * (0.5 + 4)] * 4
    use = outcome.channels["archive"]
    assert (use.busy, use.most, use.nbytes) == (8.0, 4, 800)


def test_only_transfers_that_are_under_way_together_share() -> None:
    """The first has written before the second comes: what takes time is computed before."""
    schedule = Schedule(CHAIN, [Advance(0, 2), Write(X2, 1), Advance(2, 8)])
    ranks = Ranks(count=2, shared={"archive": 100.0}, spread=Quantiles((1, 3)), seed=1)
    factors = ranks.factors()
    assert 2 * abs(factors[0] - factors[1]) > 1.5
    outcome = simulate_ranks(schedule, PLATFORM, ranks, overlap=Overlap(1))
    assert outcome.finish == pytest.approx(8 * factors + 0.5)
    assert outcome.channels["archive"].slowed == pytest.approx([0, 0])


def test_what_goes_on_beside_has_its_own_speed_and_hinders() -> None:
    profile = Profile(write_beside=Affine(0.5, 0.02), write_hinders=Affine(0.75))
    platform = Platform((RAM, replace(ARCHIVE, profile=profile)))
    ranks = Ranks(count=2, shared={"archive": 100.0})
    outcome = simulate_ranks(BEHIND, platform, ranks, overlap=Overlap(1))
    assert outcome.makespan == 8.5 + 0.75
    use = outcome.channels["archive"]
    assert (use.busy, use.slowed.tolist()) == (2.0, [0.0, 0.0])  # each moves 50 bytes a second
    direct = simulate_ranks(BEHIND, platform, ranks, overlap=Overlap(0, 1))
    assert direct.makespan == 0.5 + 2.0 + 8.0
    assert direct.channels["archive"].slowed.tolist() == [1.0, 1.0]


def test_each_step_is_drawn_with_overlap_too() -> None:
    ranks = Ranks(count=3, spread=Lognormal(0.3), jitter=Lognormal(0.4), seed=5)
    outcome = simulate_ranks(BEHIND, PLATFORM, ranks, overlap=Overlap(1))
    drawn = np.stack([ranks.draws(rank, 8) for rank in range(3)])  # type: ignore[arg-type]
    assert outcome.finish == pytest.approx(0.5 + ranks.factors() * drawn.sum(axis=1))
    assert outcome.groups == 3


def test_without_a_memory_level_every_access_is_a_transfer() -> None:
    """The first write takes 4 s of the channel, in which two steps of 1 s each are computed."""
    far = Level(name="far", backend="directory", write=Affine(4.0))
    schedule = Schedule(CHAIN, [Write(X0, 0), Advance(0, 2)])
    platform = Platform((far,))
    outcome = simulate_ranks(schedule, platform, Ranks(count=2), overlap=Overlap(1))
    assert outcome.makespan == simulate(schedule, platform, overlap=Overlap(1)).makespan == 4.0


def test_a_write_that_is_cancelled_moves_nothing() -> None:
    actions = [Write(X0, 1), Advance(0, 2), Write(X2, 1), Discard(X2, 1), Read(X0, 1)]
    slow = replace(ARCHIVE, write=Affine(50.0))
    ranks = Ranks(count=2, shared={"archive": 1e9})
    outcome = simulate_ranks(
        Schedule(CHAIN, actions), Platform((RAM, slow)), ranks, overlap=Overlap(2)
    )
    assert outcome.channels["archive"].nbytes == 200


def test_hundred_thousand_that_are_alike_are_one() -> None:
    chain = CHAIN.with_steps(200)
    schedule = hrevolve(chain, replace(PLATFORM, working_memory=10))
    ranks = Ranks(count=100_000, shared={"archive": 1e7})
    outcome = simulate_ranks(
        schedule, replace(PLATFORM, working_memory=10), ranks, overlap=Overlap(1, 1)
    )
    assert (outcome.groups, len(outcome.finish)) == (1, 100_000)
    assert (outcome.finish == outcome.makespan).all()


def test_a_watcher_hears_of_all_shared_accesses() -> None:
    heard: list[int] = []
    ranks = Ranks(count=7, shared={"archive": 1e6})
    simulate_ranks(BEHIND, PLATFORM, ranks, overlap=Overlap(1), watch=heard.append)
    assert sum(heard) == 7


def test_what_ranks_do_not_have_with_overlap_is_refused() -> None:
    for ranks, words in (
        (Ranks(count=2, barrier=Barrier.STEP), "barriers cannot be simulated with overlap"),
        (Ranks(count=2, barrier=Barrier.STRETCH), "barriers cannot be simulated with overlap"),
        (Ranks(count=2, shared={"disk": 1.0}), "no channel is named 'disk'"),
    ):
        with pytest.raises(BadInput, match=words):
            simulate_ranks(BEHIND, PLATFORM, ranks, overlap=Overlap(1))
    twice = Schedule(CHAIN, [*BEHIND.actions, *BEHIND.actions])
    with pytest.raises(IllegalAction):
        simulate_ranks(twice, PLATFORM, Ranks(count=2), overlap=Overlap(1))
