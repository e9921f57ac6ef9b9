"""What a kill costs: the bound against planning anew at every instant."""

from math import inf
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings

from ckio.actions import Action, Advance, Discard, Read, Record, Reverse, Write
from ckio.errors import IllegalAction
from ckio.planners.base import Planner
from ckio.planners.recover import redone_at_most
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan, seconds
from ckio.schedule.replay import validate

from .cases import ALL, RANDOMS, RESTART_ONLY, WITH_TAPES, Case, a, drawn_case, t, x


class Kills(NamedTuple):
    """The bound of a schedule, and what each kill costs when it is recovered from."""

    bound: float
    redone: list[float]


def kills(case: Case, schedule: Schedule) -> Kills:
    rest, total, done = case.recovering(schedule), makespan(schedule, case.platform), 0.0
    redone = list[float]()
    for survivors, action in zip(case.kills(schedule), schedule.actions, strict=True):
        redone.append(done + makespan(rest(survivors), case.platform) - total)
        done += seconds(action, case.chain, case.platform)
    bound = redone_at_most(
        schedule, case.platform, case.durable, level=case.level, every=case.every
    )
    return Kills(bound, redone)


def killed_everywhere(case: Case) -> None:
    found = kills(case, case.schedule)
    assert max(found.redone) <= found.bound < inf
    # Of a recovery the same holds.
    most = max(case.kills(case.schedule), key=lambda stored: sum(map(len, stored)))
    found = kills(case, case.recovering(case.schedule)(most))
    assert max(found.redone, default=0.0) <= found.bound


@settings(max_examples=8)
@given(RANDOMS)
def test_a_kill_at_any_instant_costs_no_more_than_the_bound(random: Random) -> None:
    killed_everywhere(drawn_case(random, WITH_TAPES, most_steps=5))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))  # each draws anew
@pytest.mark.parametrize(
    "planners", [RESTART_ONLY, WITH_TAPES, ALL], ids=["restarts", "tapes", "all"]
)
@settings(max_examples=20)
@given(random=RANDOMS)
def test_a_kill_at_any_instant_costs_no_more_than_the_bound_in_a_long_campaign(
    planners: dict[str, Planner], part: int, random: Random
) -> None:
    killed_everywhere(drawn_case(random, planners, most_steps=9))


CHAIN = Chain(steps=6, advance=10, record=10, reverse=5, restart=1, tape=1, adjoint=1)
PLATFORM = Platform(
    (
        Level(name="ram", capacity=2, write=Affine(1), read=Affine(1)),
        Level(name="disk", capacity=9, write=Affine(3), read=Affine(2), discard=Affine(1)),
    )
)


def bound(actions: list[Action], *, durable: set[int], every: float = inf) -> float:
    return redone_at_most(Schedule(CHAIN, actions), PLATFORM, durable, level=1, every=every)


def span(actions: list[Action]) -> float:
    return makespan(Schedule(CHAIN, actions), PLATFORM)


def back(step: int) -> list[Action]:
    return [Record(step, step + 1), Reverse(step, step + 1)]


def from_0(step: int) -> list[Action]:
    return [Read(x(0), 0), *([Advance(0, step)] if step else []), *back(step)]


SWEEP: list[Action] = [Write(x(0), 0), Advance(0, 5)]
REST: list[Action] = [*back(5), *(action for step in range(4, -1, -1) for action in from_0(step))]
REST += [Discard(x(0), 0)]


def test_without_an_adjoint_checkpoint_all_that_was_reversed_is_redone() -> None:
    # From x_5 on, and the way there. The last kill is before x_0 is discarded, which is free.
    assert bound([*SWEEP, *REST], durable=set()) == 1 + 5 * 10 + span(REST)
    # Where x_0 survives, it is not written again; nor is it read: a fresh model holds it.
    assert bound([*SWEEP, *REST], durable={0}) == 5 * 10 + span(REST)


def test_what_a_checkpoint_has_saved_is_not_redone() -> None:
    cut = REST.index(Reverse(3, 4)) + 1
    before, after = [*SWEEP, *REST[:cut]], [*REST[cut:], Discard(a(3), 1)]
    stored = [*before, Write(a(3), 1), *after]
    # The worst two kills: while a_3 is written, after all that came before it; and at the end.
    redone = max(span(before) + 0, span(after) - 1 + 2 + 1)
    assert bound(stored, durable={1}) == redone


def test_a_recovery_that_stores_its_adjoint_more_often_costs_as_much_more() -> None:
    whole = [*SWEEP, *REST]
    once = bound(whole, durable=set())
    # Five at most, after every step but the last, of 3 + 1 seconds each.
    assert bound(whole, durable=set(), every=0) == once + 5 * 4
    assert bound(whole, durable=set(), every=once / 2) == once + 2 * 4


def test_the_way_to_what_is_redone_begins_at_the_nearest_durable_key() -> None:
    sweep: list[Action] = []
    for step in range(5):
        sweep += [Write(x(step), 1), Advance(step, step + 1)]
    # What is redone at the last: a step from x_4, which is read, and to record x_5. Five keys are
    # left where they are, and a recovery discards them.
    assert bound([*sweep, *back(5)], durable={1}) == (2 + 10) + 10 + 5 * 1


def test_a_state_that_is_needed_below_a_discarded_tape_has_no_bound() -> None:
    # Once t_1 is gone, it takes x_0 twice to come back, and x_0 was never stored.
    actions = [
        Read(a(2), 1),
        Read(t(1), 1),
        Reverse(1, 2),
        Discard(t(1), 1),
        *back(0),
        Discard(a(2), 1),
    ]
    schedule = Schedule(CHAIN, actions, [[], [a(2), t(1)]])
    assert validate(schedule, PLATFORM).adjoint == 0
    assert redone_at_most(schedule, PLATFORM, {1}, level=1, every=inf) == inf
    # Nor has a run whose adjoint is not on a durable level.
    assert redone_at_most(schedule, PLATFORM, {0}, level=1, every=inf) == inf


def test_a_schedule_of_nothing_costs_nothing_and_an_illegal_one_is_refused() -> None:
    assert bound([], durable={1}) == 0
    with pytest.raises(IllegalAction):
        bound([Advance(1, 2)], durable={1})
