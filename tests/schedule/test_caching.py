"""Which accesses find nothing warm, and what these cost."""

from random import Random

import numpy as np

from ckio.actions import Action, Advance, Discard, Key, Read, Write
from ckio.actions.columns import Actions
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.profile import Profile
from ckio.schedule import Schedule, cold_reads, first_writes, makespan, seconds_of
from ckio.testing import x


def test_a_write_is_the_first_where_more_lie_there_than_ever() -> None:
    actions: list[Action] = [
        Write(x(0), 0),
        Write(x(1), 0),
        Discard(x(1), 0),
        Write(x(2), 0),
        Write(x(2), 1),
        Discard(x(0), 0),
        Write(x(3), 0),
        Write(x(4), 0),
    ]
    nbytes = np.full(len(actions), 8)
    rows = Actions.of(actions)
    assert np.flatnonzero(first_writes(rows, nbytes, 0)).tolist() == [0, 1, 7]
    assert np.flatnonzero(first_writes(rows, nbytes, 0, [8])).tolist() == [0, 1, 7]
    assert np.flatnonzero(first_writes(rows, nbytes, 1)).tolist() == [4]


def test_slots_of_what_lay_there_at_the_start_are_written_to_again() -> None:
    rows = Actions.of([Discard(x(5), 0), Write(x(0), 0), Write(x(1), 0)])
    assert first_writes(rows, np.full(3, 8), 0, [8]).tolist() == [False, False, True]
    assert first_writes(rows, np.array([9, 8, 8]), 0, [9]).tolist() == [False, True, True]


def test_cold_reads_are_those_of_a_cache_that_forgets() -> None:
    for seed in range(20):
        check_cold_reads(Random(seed))


def check_cold_reads(random: Random) -> None:
    """A stack of what was touched, the latest first: what lies deeper than `cached` is gone."""
    actions: list[Action] = []
    for _ in range(60):
        key, level = x(random.randint(0, 5)), random.randint(0, 1)
        actions.append(random.choice((Write, Read))(key, level))
        actions.append(Advance(0, 1))
    rows = Actions.of(actions)
    moved = np.array([0 if isinstance(each, Advance) else random.randint(1, 9) for each in actions])
    cached, last, total, expected = 20, dict[tuple[Key, int], int](), 0, []
    for action, nbytes in zip(actions, moved.tolist(), strict=True):
        total += nbytes
        if not isinstance(action, Write | Read):
            expected.append(False)
            continue
        at = action.key, action.level
        cold = at not in last or total - last[at] > cached
        expected.append(isinstance(action, Read) and action.level == 1 and cold)
        last[at] = total
    assert cold_reads(rows, moved, 1, cached).tolist() == expected


def test_the_makespan_knows_first_writes_and_cold_reads() -> None:
    profile = Profile(first=Affine(5.0, 0.5), cached=150)
    level = Level(
        name="far", write=Affine(1.0), read=Affine(2.0), read_cold=Affine(7.0), profile=profile
    )
    chain = Chain(steps=2, advance=0.5, record=1, reverse=1, restart=100, tape=0, adjoint=0)
    actions: list[Action] = [
        Write(x(0), 0),
        Read(x(0), 0),
        Advance(0, 1),
        Write(x(1), 0),
        Discard(x(1), 0),
        Write(x(1), 0),
        Read(x(0), 0),
    ]
    schedule, platform = Schedule(chain, actions), Platform((level,))
    assert seconds_of(schedule, platform).tolist() == [55.0, 2.0, 0.5, 55.0, 0.0, 1.0, 7.0]
    assert makespan(schedule, platform) == 120.5
