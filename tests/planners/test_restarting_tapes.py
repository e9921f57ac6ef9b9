"""A tape that also contains the state after its step: the forward restarts from it."""

from dataclasses import replace
from random import Random

import pytest
from oracles.exhaustive import least_makespan
from oracles.recurrences import cams

from ckio import Affine, Chain, Level, Platform, Ram, makespan, plan, run, simulate
from ckio.actions import Advance, Discard, Read, Record, Reverse, Write
from ckio.errors import BadInput, IllegalAction, NoSchedule
from ckio.planners import auto, mixed
from ckio.platform.clock import VirtualClock
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.replay import validate
from ckio.schedule.text import dumps, loads
from ckio.testing import CountingModel, Throttled, t

from .cases import TAPE, completed, level


def counted(n: int, units: int, tape: int, *, restarts: bool = True) -> float:
    """The steps that the plan of `mixed` takes more than once; access costs nothing."""
    chain = Chain(
        steps=n,
        advance=1,
        record=1,
        reverse=0,
        restart=1,
        tape=tape,
        adjoint=1,
        tape_restarts=restarts,
    )
    machine = Platform((Level(name="ram", capacity=units),), working_memory=tape)
    return completed(mixed(chain, machine), machine) - n


@pytest.mark.parametrize(
    ("row", "without", "by_cams", "planned"),
    [
        ((100, 10, 1), 137, 123, 123),
        ((100, 20, 1), 84, 79, 79),
        ((200, 20, 1), 192, 179, 179),
        ((100, 10, 2), 170, 167, 163),
        ((300, 60, 2), 274, 269, 269),
        ((100, 20, 3), 115, 121, 115),
        ((100, 10, 4), 188, 198, 188),
    ],
)
def test_fewer_steps_than_cams_and_than_tapes_that_do_not_restart(
    row: tuple[int, int, int], without: int, by_cams: int, planned: int
) -> None:
    """CAMS' figures are those of its library, counted with its own recurrence."""
    assert cams(*row) == by_cams
    assert counted(*row, restarts=False) == without
    assert counted(*row) == planned


def small_case(random: Random, levels: int) -> tuple[Chain, Platform]:
    """A case that the search can solve, with whole costs, and sizes of any ratio."""
    chain = Chain(
        steps=random.randint(1, 5 - levels),
        advance=random.randint(1, 4),
        record=random.randint(0, 5),
        reverse=random.randint(0, 3),
        restart=random.choice([2, 3, 4]),
        tape=random.choice([TAPE, TAPE, 1, 4]),
        adjoint=5,
        tape_restarts=True,
    )
    costs = random.choice([2, 4, 8])
    machine = [
        replace(
            level(
                f"level{number}",
                0,
                random.randint(0, costs),
                random.randint(0, costs),
                discard=random.choice([0, 0, 1]),
            ),
            capacity=random.randint(2 if number == 0 else 0, 12),
        )
        for number in range(levels)
    ]
    return chain, Platform(tuple(machine), working_memory=random.choice([1, 1, 2]) * chain.tape)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(100))
def test_no_schedule_beats_mixed(seed: int) -> None:
    random, solved = Random(seed), 0
    for _ in range(20):
        chain, machine = small_case(random, random.choice([1, 1, 2]))
        least = least_makespan(chain, machine, tapes=True)
        if least == float("inf"):
            with pytest.raises(NoSchedule):
                mixed(chain, machine)
            continue
        solved += 1
        found = completed(mixed(chain, machine), machine)
        assert found == pytest.approx(least, rel=1e-12), (chain, machine)
    assert solved > 5


def test_a_restart_saves_time_on_every_planner_that_is_tried() -> None:
    """`auto` takes the plan with restarts; without, it is 14 s slower."""
    chain = Chain(
        steps=100, advance=1, record=1, reverse=0, restart=1, tape=1, adjoint=1, tape_restarts=True
    )
    machine = Platform((Level(name="ram", capacity=10),), working_memory=1)
    assert makespan(auto(chain, machine), machine) == 223
    assert makespan(auto(replace(chain, tape_restarts=False), machine), machine) == 237


T_0 = t(0)
RESTARTING = (
    Record(0, 1),
    Write(T_0, 0),
    Advance(1, 2),
    Record(2, 3),
    Reverse(2, 3),
    Read(T_0, 0),
    Record(1, 2),
    Reverse(1, 2),
    Read(T_0, 0),
    Discard(T_0, 0),
    Reverse(0, 1),
)
"""Three steps; x_1 is read with the tape of step 0."""


def three_steps(*, restarts: bool = True) -> tuple[Schedule, Platform]:
    chain = Chain(
        steps=3,
        advance=1,
        record=2,
        reverse=4,
        restart=8,
        tape=8,
        adjoint=8,
        tape_restarts=restarts,
    )
    return Schedule(chain, RESTARTING), Platform((Level(name="ram", capacity=8),), working_memory=8)


def test_the_state_is_read_with_the_tape() -> None:
    schedule, machine = three_steps()
    assert validate(schedule, machine).adjoint == 0
    by_rules = Machine(schedule.chain, machine)
    for action in schedule.actions:
        by_rules.apply(action)
    assert by_rules.state == validate(schedule, machine).state == 1
    schedule, machine = three_steps(restarts=False)
    with pytest.raises(IllegalAction, match="needs the state x_1"):
        validate(schedule, machine)


@pytest.mark.parametrize("steps", [2, 7, 40, 200])
def test_what_is_performed_takes_what_was_planned(steps: int) -> None:
    chain = Chain(
        steps=steps,
        advance=1.0,
        record=1.25,
        reverse=2.0,
        restart=4,
        tape=6,
        adjoint=4,
        tape_restarts=True,
    )
    near, far = level("near", 5, 0.25, 0.25), level("far", 9, 3, 2)
    machine = Platform((near, far), working_memory=6)
    schedule = mixed(chain, machine)
    seconds = completed(schedule, machine)
    clock = VirtualClock()
    levels = [Throttled(Ram(capacity=it.capacity), it, clock) for it in machine.levels]
    done = run(schedule, machine, CountingModel(chain, clock), levels, clock=clock)
    assert done.makespan == seconds == simulate(schedule, machine).makespan


def test_it_is_kept_in_texts_and_platforms() -> None:
    schedule, machine = three_steps()
    assert loads(dumps(schedule)).schedule.chain == schedule.chain
    known = replace(machine, models={"mine": replace(schedule.chain, steps=None)})
    assert Platform.loads(known.dumps()).models["mine"].tape_restarts
    assert "restarts from tapes" in str(schedule.chain)


@pytest.mark.parametrize("other", [{"record_only": 1.5}, {"tape_restarts": 1}])
def test_what_cannot_be_is_refused(other: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="tape_restarts"):
        replace(three_steps()[0].chain, **other)  # type: ignore[arg-type]


def test_long_chains_are_planned_as_if_tapes_did_not_restart() -> None:
    chain = Chain(
        steps=6000,
        advance=1,
        record=1,
        reverse=1,
        restart=1,
        tape=1,
        adjoint=1,
        tape_restarts=True,
    )
    machine = Platform((Level(name="ram", capacity=60),), working_memory=1)
    plain = replace(chain, tape_restarts=False)
    assert completed(mixed(chain, machine), machine) == makespan(mixed(plain, machine), machine)


def tapes_only(steps: int, slots: int) -> tuple[Chain, Platform]:
    """Memory for so many tapes, and for no state."""
    chain = Chain(
        steps=steps,
        advance=1,
        record=1,
        reverse=0,
        restart=99,
        tape=1,
        adjoint=1,
        tape_restarts=True,
    )
    return chain, Platform((Level(name="ram", capacity=slots),), working_memory=1)


def test_tapes_may_do_where_no_state_fits() -> None:
    chain, machine = tapes_only(6, 2)
    least = least_makespan(chain, machine, tapes=True)
    assert completed(mixed(chain, machine), machine) == least == 9


def test_a_long_chain_needs_a_state_because_its_tapes_do_not_restart() -> None:
    with pytest.raises(NoSchedule, match="space for a restart checkpoint of 99 bytes"):
        mixed(*tapes_only(6000, 60))


def test_an_overlapped_plan_is_no_slower_for_restarts() -> None:
    """With overlap, more reads of tapes can take longer: plans without are compared, too."""
    chain = Chain(
        steps=23, advance=1, record=3, reverse=0, restart=1, tape=2, adjoint=4, tape_restarts=True
    )
    far = Level(
        name="far", capacity=45, write=Affine(0, 0.1), read=Affine(0.5, 0.2), discard=Affine(0.25)
    )
    machine = Platform((Level(name="near", capacity=4), far), working_memory=2)
    plain = plan(replace(chain, tape_restarts=False), machine).makespan
    assert plan(chain, machine).makespan <= plain * (1 + 1e-12)


def test_a_model_whose_tapes_contain_no_state_is_refused() -> None:
    schedule, platform = three_steps()
    model = CountingModel(schedule.chain)
    model.tape_restarts = False
    with pytest.raises(BadInput, match=r"tapes of this model contain no state: plan with"):
        run(schedule, platform, model, [Ram() for _ in platform.levels])
