"""plan_schedule: what it says of small schedules, and of an ocean model."""

from random import Random

import pytest
from oracles.arrays import ArrayPlan, LeastSeconds, earliest, plan_schedule

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import Flow, Step
from ckio.analysis.snapshots import Plain, plan, successive
from ckio.errors import BadInput, IllegalAction
from ckio.planners.binomial import revolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

from .test_dataflow_symbols import Symbols, is_right, perform, random_steps


def by_hand(*actions: object, steps: int = 9, stored: object = ()) -> Schedule:
    chain = Chain(steps=steps, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    return Schedule(chain, actions, stored)  # type: ignore[arg-type]


def x(step: int, name: str = "") -> Key:
    return Key(Kind.RESTART, step, name)


def listed(plan: ArrayPlan) -> list[str]:
    rows = zip(plan.places, plan.accesses, strict=True)
    return [f"{place} {type(it).__name__} {it.key} {it.level}" for place, it in rows]


def step_back(i: int) -> tuple[Record, Reverse]:
    return Record(i, i + 1), Reverse(i, i + 1)


BACK = (
    *(Write(x(0), 1), Advance(0, 1), Write(x(1), 0), Advance(1, 2), *step_back(2)),
    *(Read(x(1), 0), Discard(x(1), 0), *step_back(1)),
    *(Read(x(0), 1), Discard(x(0), 1), *step_back(0)),
)
"""Three steps and two checkpoints, far and near."""


def test_what_is_not_overwritten_is_never_stored() -> None:
    only_read = Step(Flow({"Q"}), reverse=Flow({"Q"}))
    plan = plan_schedule(by_hand(*BACK, steps=3), only_read, seed={"Q"})
    assert plan == ArrayPlan((), plan.accesses, ())
    assert not plan.accesses


def test_what_is_overwritten_before_it_is_used_is_never_stored() -> None:
    work = Step(Flow((), {"work"}, {"work"}))
    assert plan_schedule(by_hand(*BACK, steps=3), work, seed={"work"}).writes == 0


def test_what_several_checkpoints_hold_is_stored_once() -> None:
    """The paper's example: all steps use A, only the last overwrites it."""
    read, change = Step(Flow({"A"})), Step(Flow({"A"}, {"A"}, {"A"}))
    schedule = by_hand(*BACK, steps=3)
    late = plan_schedule(schedule, [read, read, change], seed=())
    assert listed(late) == ["2 Write x_0.A 0", "6 Read x_0.A 0", "6 Discard x_0.A 0"]
    early = plan_schedule(schedule, [read, read, change], seed=(), placing=earliest)
    assert listed(early) == ["0 Write x_0.A 1", "6 Read x_0.A 1", "6 Discard x_0.A 1"]
    assert (late.writes, late.reads, late.stored) == (1, 1, ())
    assert late.peaks({"A": 5}) == (5,)
    assert early.peaks({"A": 5}) == (0, 5)


def test_a_version_is_named_by_the_step_at_which_it_was_made() -> None:
    change, read = Step(Flow({"A"}, {"A"}, {"A"})), Step(Flow({"A"}))
    plan = plan_schedule(by_hand(*BACK, steps=3), [change, read, change], seed=())
    assert [str(it) for it in plan.at(2)] == ["Write(x_1.A, level 0)"]
    assert [str(it) for it in plan.at(6)] == ["Read(x_1.A, level 0)", "Discard(x_1.A, level 0)"]
    assert [str(it) for it in plan.at(10)] == ["Read(x_0.A, level 1)", "Discard(x_0.A, level 1)"]
    assert plan.at(0) + plan.at(2) + plan.at(6) + plan.at(10) == plan.accesses


def test_a_recording_step_that_is_reversed_at_once_needs_what_its_tape_is_made_of() -> None:
    both = Flow({"A", "F"}, {"A", "F"}, {"A", "F"})
    tape = Step(both, Flow({"A"}, {"A", "F"}, {"A", "F"}))
    plan = plan_schedule(by_hand(*BACK, steps=3), tape, seed=())
    assert [str(it.key) for it in plan.accesses if isinstance(it, Read)] == ["x_1.A", "x_0.A"]
    assert plan_schedule(by_hand(*BACK, steps=3), Step(both), seed=()).reads == 4


def test_a_recording_step_needs_all_where_its_state_is_needed() -> None:
    both = Flow({"A", "F"}, {"A", "F"}, {"A", "F"})
    tape = Step(both, Flow({"A"}, {"A", "F"}, {"A", "F"}))
    on = by_hand(Write(x(0), 0), Advance(0, 3), Read(x(0), 0), Discard(x(0), 0), Record(0, 2))
    plan = plan_schedule(on, tape, seed=())
    assert {str(it.key) for it in plan.accesses} == {"x_0.A", "x_0.F"}


def test_what_an_adjoint_step_uses_in_place_may_be_read_with_its_tape() -> None:
    change = Step(Flow({"A"}, {"A"}, {"A"}), reverse=Flow({"A"}))
    schedule = by_hand(
        *(Record(0, 1), Write(Key(Kind.TAPE, 0), 0), Record(1, 2), Reverse(1, 2)),
        *(Read(Key(Kind.TAPE, 0), 0), Discard(Key(Kind.TAPE, 0), 0), Reverse(0, 1)),
        steps=2,
    )
    assert listed(plan_schedule(schedule, change, seed=())) == [
        "1 Write x_1.A 0",
        "4 Read x_1.A 0",
        "4 Discard x_1.A 0",
    ]
    # Overwritten in part, it is right where it was right before: also if nobody asks at once.
    in_part = Step(Flow((), {"A"}), reverse=Flow({"A"}))
    in_whole = Step(Flow((), {"A"}, {"A"}))
    plan = plan_schedule(schedule, [in_part, in_whole], seed=())
    assert [str(it) for it in plan.at(1)] == ["Write(x_1.A, level 0)"]
    # And a recording step has to leave it, though its tape could do with less.
    forward = Flow({"F"}, {"A", "F"}, {"A", "F"})
    tape = Flow((), forward.out, forward.out)
    needs_all = Step(forward, tape, reverse=Flow({"A"}))
    plan = plan_schedule(schedule, needs_all, seed=())
    assert [str(it) for it in plan.at(1)] == ["Write(x_1.A, level 0)"]


def test_what_an_adjoint_step_restores_need_not_be_read() -> None:
    change = Flow({"A"}, {"A"}, {"A"})
    at_once = by_hand(Record(0, 3), Reverse(0, 3), steps=3)
    assert plan_schedule(at_once, Step(change, None, Flow({"A"}), {"A"}), seed={"A"}).writes == 0
    with pytest.raises(BadInput, match=r"#1 Reverse\[0, 3\) needs A as in x_2; .* on the tape"):
        plan_schedule(at_once, Step(change, None, Flow({"A"})), seed={"A"})


def test_what_lies_on_the_levels_at_the_start_is_not_written_again() -> None:
    schedule = by_hand(
        *(Read(Key(Kind.ADJOINT, 2), 1), Read(x(1), 1), Discard(x(1), 1), *step_back(1)),
        *(Read(x(0), 0), *step_back(0)),
        steps=3,
        stored=[{x(0)}, {x(1), Key(Kind.ADJOINT, 2)}],
    )
    plan = plan_schedule(schedule, Step(Flow({"A"}, {"A"}, {"A"})), seed=())
    assert plan.stored == ({x(0, "A")}, {x(1, "A")})
    assert plan.writes == 0
    assert [str(it) for it in plan.at(1)] == ["Read(x_1.A, level 1)", "Discard(x_1.A, level 1)"]
    assert plan.peaks({"A": 2}) == (2, 2)


def test_dead_at_a_write_and_alive_at_its_read_it_is_brought_to_the_write() -> None:
    """A is overwritten in part by step 0 and used by the tape of step 1 alone."""
    steps = [Step(Flow((), {"A"})), Step(Flow((), {"A"}, {"A"}), Flow({"A"}, {"A"}, {"A"}))]
    schedule = by_hand(
        *(Write(x(0), 0), Advance(0, 2), Read(x(0), 0), Advance(0, 1), Write(x(1), 0)),
        *(Advance(1, 2), Read(x(1), 0), Discard(x(1), 0), *step_back(1)),
        steps=2,
    )
    plan = plan_schedule(schedule, steps, seed=())
    assert [line for line in listed(plan) if "Discard" not in line] == [
        "0 Write x_0.A 0",
        "2 Read x_0.A 0",
        "4 Write x_1.A 0",
        "6 Read x_1.A 0",
    ]
    perform(schedule, Symbols(steps, frozenset()), plan)


def test_what_is_asked_has_to_fit_together() -> None:
    schedule, step = by_hand(*BACK, steps=3), Step(Flow({"A"}, {"A"}, {"A"}))
    with pytest.raises(BadInput, match="2 steps say what they use; the chain has 3"):
        plan_schedule(schedule, [step, step], seed=())
    with pytest.raises(BadInput, match="seed = 'A'"):
        plan_schedule(schedule, step, seed="A")
    with pytest.raises(IllegalAction):
        plan_schedule(by_hand(*BACK[1:], steps=3), step, seed=())
    with pytest.raises(BadInput, match="one variable"):
        plan_schedule(by_hand(Write(x(0, "A"), 0)), step, seed=())
    placing = LeastSeconds(platform=Platform((Level(name="near"),)), nbytes={"A": 1})
    with pytest.raises(BadInput, match="no level 1; the platform has 1"):
        plan_schedule(schedule, step, seed=(), placing=placing)
    two = Platform((Level(name="near"), Level(name="far")))
    with pytest.raises(BadInput, match="how large A is"):
        plan_schedule(schedule, step, seed=(), placing=LeastSeconds(platform=two, nbytes={}))


def test_an_array_is_in_some_lazy_snapshot_of_successive_checkpoints_or_on_the_last_tape() -> None:
    """These hold other arrays, too: what is stored is shared, and nothing is put back in vain."""
    random, fewer = Random(11), 0
    for _ in range(50):
        steps = random_steps(random, 7, in_part=False)
        forth = [it for i in range(6) for it in (Write(x(i), 0), Advance(i, i + 1))]
        back = [it for i in reversed(range(6)) for it in (Read(x(i), 0), *step_back(i))]
        schedule = by_hand(*forth, *step_back(6), *back, steps=7)
        if not is_right(schedule, steps, frozenset()):
            continue
        snapshots = plan(successive([Plain.of(step) for step in steps]))
        writes = plan_schedule(schedule, steps, seed=()).writes
        most = sum(len(it.stored) for it in snapshots) + len(snapshots[-1].req_d)
        assert writes <= most
        fewer += writes < most
    assert fewer > 5


@pytest.mark.slow
def test_an_ocean_model_stores_half_of_its_arrays() -> None:
    """Third-order Adams-Bashforth with its tendencies in a ring, a constant and a slow field."""

    def step(i: int) -> Step:
        now, ring = {"zeta", "psi", "Q", "slow"}, f"F{i % 3}"
        out = {"zeta", "psi", ring} | ({"slow"} if i % 16 == 15 else set())
        before = {f"F{(i + 1) % 3}", f"F{(i + 2) % 3}"}
        return Step(Flow(now | before, out, out), Flow(now, out, out))

    steps = [step(i) for i in range(100)]
    chain = Chain(steps=100, advance=1, record=1, reverse=1, restart=7, tape=7, adjoint=7)
    schedule = revolve(chain, Platform((Level(name="ram", capacity=10 * 7),), 7))
    whole = sum(isinstance(it, Write) for it in schedule.actions)
    plan = plan_schedule(schedule, steps, seed={"zeta", "psi"})
    perform(schedule, Symbols(steps, frozenset({"zeta", "psi"})), plan)
    most = plan.peaks(dict.fromkeys(("zeta", "psi", "Q", "slow", "F0", "F1", "F2"), 1))
    assert (7 * whole, plan.writes) == (385, 190)
    assert most == (46,)  # of 70
