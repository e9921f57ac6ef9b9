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
from ckio.actions.columns import WRITE
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import Planner
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.replay import validate

from .cases import (
    BEST,
    OFFLINE,
    ONE_LEVEL,
    ONLINE,
    PLANNERS,
    RESTART,
    RESTART_ONLY,
    TAPE,
    chain,
    chains,
    platform,
    platforms,
)

every_planner = pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS)
every_restart_only_planner = pytest.mark.parametrize(
    "planner", RESTART_ONLY.values(), ids=RESTART_ONLY
)
every_planner_that_knows_the_end = pytest.mark.parametrize("planner", OFFLINE.values(), ids=OFFLINE)
every_one_level_planner = pytest.mark.parametrize("planner", ONE_LEVEL.values(), ids=ONE_LEVEL)
some = settings(max_examples=40, deadline=None)


def test_the_planners_are_those_that_ckio_registers() -> None:
    registered = {point.name: point.load() for point in entry_points(group="ckio.planners")}
    assert {name: registered[name] for name in PLANNERS} == PLANNERS


@pytest.mark.campaign
@every_planner
@some
@given(chains(), platforms())
def test_a_schedule_is_legal_and_reverses_every_step(
    planner: Planner, chain: Chain, platform: Platform
) -> None:
    schedule = planner(chain, platform)
    assert validate(schedule, platform).adjoint == 0
    assert counts(schedule).reversed == chain.steps
    assert counts(schedule).recorded >= chain.length
    if planner not in BEST.values() or chain.record >= chain.advance:
        assert counts(schedule).recorded == chain.steps


@pytest.mark.campaign
@every_planner_that_knows_the_end
@some
@given(chains(), platforms())
def test_a_checkpoint_is_read_and_discarded_at_its_last_read(
    planner: Planner, chain: Chain, platform: Platform
) -> None:
    schedule = planner(chain, platform)
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
    assert not any(validate(schedule, platform).stored)


@every_planner
@pytest.mark.parametrize("levels", [(), ((0, 2, 3),), ((4, 2, 3), (None, 5, 7))])
def test_a_chain_of_one_step_needs_no_storage(
    planner: Planner, levels: tuple[tuple[int | None, float, float], ...]
) -> None:
    actions = planner(chain(1), platform(*levels)).actions
    assert list(actions) == [Record(0, 1), Reverse(0, 1)]


@pytest.mark.campaign
@every_planner
@some
@given(chains(), platforms(), st.integers(0, 50), st.integers(0, 50))
def test_recording_and_reversing_costs_do_not_change_the_plan(
    planner: Planner, chain: Chain, platform: Platform, record: float, reverse: float
) -> None:
    other = replace(chain, record=chain.record if planner in BEST.values() else record)
    other = replace(other, reverse=reverse)
    assert planner(other, platform).actions == planner(chain, platform).actions


@pytest.mark.campaign
@every_planner
@some
@given(chains(), platforms(), st.integers(-30, 30))
def test_scaling_all_costs_does_not_change_the_plan(
    planner: Planner, chain: Chain, platform: Platform, power: int
) -> None:
    scale = 2.0**power
    slower = Platform(
        tuple(
            replace(
                level,
                write=scaled(level.write, scale),
                read=scaled(level.read, scale),
                discard=scaled(level.discard, scale),
            )
            for level in platform.levels
        ),
        platform.working_memory,
    )
    scaled_chain = replace(
        chain,
        advance=chain.advance * scale,
        record=chain.record * scale,
        reverse=chain.reverse * scale,
    )
    schedule = planner(chain, platform)
    assert planner(scaled_chain, slower).actions == schedule.actions
    assert makespan(planner(scaled_chain, slower), slower) == scale * makespan(schedule, platform)


def scaled(cost: Affine, scale: float) -> Affine:
    return Affine(cost.latency * scale, cost.per_byte * scale)


@pytest.mark.campaign
@every_planner
@some
@given(chains(), platforms(), st.data())
def test_a_level_that_holds_nothing_changes_nothing_but_the_numbers(
    planner: Planner, chain: Chain, platform: Platform, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(platform.levels)))
    useless = Level(name="useless", capacity=min(RESTART, TAPE) - 1)
    levels = (*platform.levels[:place], useless, *platform.levels[place:])
    more = Platform(levels, platform.working_memory)
    expected = planner(chain, platform).actions
    actual = planner(chain, more).actions
    moved = (expected.op >= WRITE) & (expected.level >= place)
    assert (actual.level == expected.level + moved).all()
    for column in ("op", "kind", "begin", "end"):
        assert (getattr(actual, column) == getattr(expected, column)).all()


@pytest.mark.campaign
@pytest.mark.parametrize("planner", (RESTART_ONLY | ONLINE).values(), ids=[*RESTART_ONLY, *ONLINE])
@some
@given(chains(), platforms())
def test_no_planner_of_restart_checkpoints_beats_hrevolve(
    planner: Planner, chain: Chain, platform: Platform
) -> None:
    best = RESTART_ONLY["hrevolve"](chain, platform)
    assert makespan(planner(chain, platform), platform) >= makespan(best, platform)


@pytest.mark.campaign
@every_planner
@some
@given(chains(), platforms())
def test_no_planner_beats_mixed(planner: Planner, chain: Chain, platform: Platform) -> None:
    best = BEST["mixed"](chain, platform)
    assert makespan(planner(chain, platform), platform) >= makespan(best, platform)


@pytest.mark.campaign
@every_restart_only_planner
@some
@given(chains(), platforms())
def test_a_restart_only_planner_stores_no_tape_and_records_one_step_before_reversing_it(
    planner: Planner, chain: Chain, platform: Platform
) -> None:
    actions = list(planner(chain, platform).actions)
    for before, action in pairwise(actions):
        if isinstance(action, Reverse):
            assert before == Record(action.begin, action.end)
            assert action.end == action.begin + 1
    assert counts(planner(chain, replace(platform, working_memory=TAPE))).recorded == chain.steps


@every_planner
def test_levels_that_are_too_small_leave_no_schedule(planner: Planner) -> None:
    with pytest.raises(NoSchedule, match=r"needs .*: give a level more capacity") as error:
        planner(chain(7), platform((0, 2, 3), (0, 5, 7)))
    assert "level0 offers 0" in str(error.value)
    assert "level1 offers 0" in str(error.value)


@every_planner
def test_a_platform_without_levels_leaves_no_schedule(planner: Planner) -> None:
    with pytest.raises(NoSchedule, match="the platform has no level"):
        planner(chain(7), platform())


@every_planner
@pytest.mark.parametrize("steps", [1, 7])
def test_no_step_can_be_reversed_without_room_for_its_tape(planner: Planner, steps: int) -> None:
    with pytest.raises(NoSchedule, match=r"takes 2 bytes, the working memory has 0"):
        planner(chain(steps), platform((4, 2, 3), tapes=0))


@every_planner
def test_a_chain_of_unknown_length_is_refused(planner: Planner) -> None:
    with pytest.raises(BadInput, match="the number of steps is not known"):
        planner(replace(chain(7), steps=None), platform((4, 2, 3)))


@every_planner
def test_a_level_that_is_too_small_is_ignored_with_one_note(
    planner: Planner, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="ckio"):
        planner(chain(7), platform((0, 1, 1), (None, 5, 7)))
    assert len(caplog.messages) == 1
    assert "ignores level level0: 0 bytes" in caplog.text


@every_one_level_planner
def test_a_one_level_planner_uses_the_nearest_level_that_can_hold_the_plan(
    planner: Planner,
) -> None:
    levels = counts(planner(chain(7), platform((0, 1, 1), (9, 50, 70), (None, 5, 7)))).levels
    assert [bool(level.writes) for level in levels] == [False, True]


@every_one_level_planner
def test_a_one_level_planner_uses_the_level_that_it_is_told_to(
    planner: Callable[..., Schedule],
) -> None:
    schedule = planner(chain(7), platform((9, 1, 1), (None, 50, 70)), on="level1")
    assert {action.level for action in schedule.actions if isinstance(action, Write)} == {1}


@every_one_level_planner
def test_a_one_level_planner_refuses_a_level_that_is_unknown_or_too_small(
    planner: Callable[..., Schedule],
) -> None:
    machine = platform((0, 1, 1), (None, 50, 70))
    with pytest.raises(NoSchedule, match=r"level0 offers 0:"):
        planner(chain(7), machine, on="level0")
    for steps in (3, 7):
        with pytest.raises(BadInput, match="no level is named 'nvme'"):
            planner(chain(steps), machine, on="nvme")
