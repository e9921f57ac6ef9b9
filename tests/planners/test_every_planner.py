"""What holds of every planner, on any chain and platform."""

import logging
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import entry_points
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckio.actions import Discard, Read, Record, Reverse, Write
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import Planner
from ckio.planners.blocks import at_level
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan

from .cases import (
    BEST,
    ONE_LEVEL,
    ONLINE,
    PLANNERS,
    RESTART,
    RESTART_ONLY,
    TAPE,
    chain,
    chains,
    completed,
    platform,
    platforms,
)

every_planner = pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS)
every_one_level_planner = pytest.mark.parametrize("planner", ONE_LEVEL.values(), ids=ONE_LEVEL)


def test_the_planners_are_those_that_ckio_registers() -> None:
    registered = {point.name: point.load() for point in entry_points(group="ckio.planners")}
    assert {name: registered[name] for name in PLANNERS} == PLANNERS


def check_schedules(chain: Chain, platform: Platform) -> None:
    """Each is complete, does what its family may do, and takes no less than the best."""
    schedules = {name: planner(chain, platform) for name, planner in PLANNERS.items()}
    seconds = {name: completed(schedule, platform) for name, schedule in schedules.items()}
    assert seconds["auto"] <= min(seconds.values()) + 1e-9
    for name, schedule in schedules.items():
        assert seconds["mixed"] <= seconds[name], name
        if name in RESTART_ONLY | ONLINE:
            assert seconds["hrevolve"] <= seconds[name], name
        assert counts(schedule).reversed == chain.steps
        recorded = counts(schedule).recorded
        moves_by_recording = name in BEST and chain.record < chain.advance
        assert recorded >= chain.length if moves_by_recording else recorded == chain.length, name
        if name not in ONLINE:
            check_discards(schedule)
        if name in RESTART_ONLY:
            check_restart_only(schedule)
            one_tape = replace(platform, working_memory=TAPE)
            assert counts(PLANNERS[name](chain, one_tape)).recorded == chain.steps


def check_discards(schedule: Schedule) -> None:
    """Whatever is written is read, and discarded at its last read."""
    unread = set()
    for before, action in pairwise([None, *schedule.actions]):
        match action:
            case Write(key, level):
                unread.add((key, level))
            case Read(key, level):
                unread.discard((key, level))
            case Discard(key, level):
                assert before == Read(key, level)
    assert not unread


def check_restart_only(schedule: Schedule) -> None:
    """No tape is stored: a step is recorded directly before it is reversed."""
    for before, action in pairwise(schedule.actions):
        if isinstance(action, Reverse):
            assert before == Record(action.begin, action.end)
            assert action.end == action.begin + 1


def costlier(platform: Platform, factor: float) -> Platform:
    """All accesses take so many times as long."""

    def times(cost: Affine) -> Affine:
        return Affine(cost.latency * factor, cost.per_byte * factor)

    levels = [
        replace(it, write=times(it.write), read=times(it.read), discard=times(it.discard))
        for it in platform.levels
    ]
    return replace(platform, levels=tuple(levels))


def check_invariance(
    chain: Chain, platform: Platform, *, record: int, reverse: int, power: int, place: int
) -> None:
    """What cannot matter to a plan changes none."""
    factor = 2.0**power
    seconds = {name: getattr(chain, name) * factor for name in ("advance", "record", "reverse")}
    useless = Level(name="useless", capacity=min(RESTART, TAPE) - 1)
    levels = (*platform.levels[:place], useless, *platform.levels[place:])
    for name, planner in PLANNERS.items():
        schedule = planner(chain, platform)
        other = replace(chain, record=chain.record if name in BEST else record, reverse=reverse)
        assert planner(other, platform).actions == schedule.actions, name
        slower = planner(replace(chain, **seconds), costlier(platform, factor))
        assert slower.actions == schedule.actions, name
        assert makespan(slower, costlier(platform, factor)) == factor * makespan(schedule, platform)
        with_useless = planner(chain, replace(platform, levels=levels)).actions
        numbers = schedule.actions.level + (schedule.actions.level >= place)
        assert with_useless == at_level(schedule.actions, numbers), name


@settings(max_examples=8)
@given(chains(most_steps=16), platforms())
def test_schedules_are_complete_and_none_is_better_than_the_best(
    chain: Chain, platform: Platform
) -> None:
    check_schedules(chain, platform)


@settings(max_examples=4)
@given(chains(most_steps=16), platforms(), *map(st.integers, (0, 0, -30), (50, 50, 30)), st.data())
def test_what_cannot_matter_changes_no_plan(  # noqa: PLR0917
    chain: Chain, platform: Platform, record: int, reverse: int, power: int, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(platform.levels)))
    check_invariance(chain, platform, record=record, reverse=reverse, power=power, place=place)


@every_planner
def test_a_chain_of_one_step_needs_no_storage(planner: Planner) -> None:
    for levels in ((), ((0, 2, 3),), ((4, 2, 3), (None, 5, 7))):
        actions = planner(chain(1), platform(*levels)).actions
        assert list(actions) == [Record(0, 1), Reverse(0, 1)]


@every_planner
def test_where_there_is_no_schedule_it_says_what_is_needed(planner: Planner) -> None:
    with pytest.raises(NoSchedule, match=r"needs .*more capacity") as error:
        planner(chain(7), platform((0, 2, 3), (0, 5, 7)))
    assert "level0 offers 0" in str(error.value)
    assert "level1 offers 0" in str(error.value)
    with pytest.raises(NoSchedule, match="no level"):
        planner(chain(7), platform())
    for steps in (1, 7):
        with pytest.raises(NoSchedule, match=r"2 bytes.* working memory has 0"):
            planner(chain(steps), platform((4, 2, 3), tapes=0))
    with pytest.raises(BadInput, match="steps is not known"):
        planner(replace(chain(7), steps=None), platform((4, 2, 3)))


@every_planner
def test_a_level_that_is_too_small_is_ignored_with_one_note(
    planner: Planner, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="ckio"):
        planner(chain(7), platform((0, 1, 1), (None, 5, 7)))
    assert len(caplog.messages) == 1
    assert "level0: its 0 bytes" in caplog.text


@every_one_level_planner
def test_a_one_level_planner_uses_the_nearest_level_with_room_or_the_one_that_is_named(
    planner: Callable[..., Schedule],
) -> None:
    levels = counts(planner(chain(7), platform((0, 1, 1), (9, 50, 70), (None, 5, 7)))).levels
    assert [bool(level.writes) for level in levels] == [False, True]
    schedule = planner(chain(7), platform((9, 1, 1), (None, 50, 70)), on="level1")
    assert {action.level for action in schedule.actions if isinstance(action, Write)} == {1}
    machine = platform((0, 1, 1), (None, 50, 70))
    with pytest.raises(NoSchedule, match="level0 offers 0"):
        planner(chain(7), machine, on="level0")
    for steps in (3, 7):
        with pytest.raises(BadInput, match=r"no level .*'nvme'"):
            planner(chain(steps), machine, on="nvme")
