"""Arrays that a schedule has to store: no way of doing it writes or reads fewer."""

from collections.abc import Callable
from functools import partial
from math import inf
from random import Random

import pytest
from drawing import random_complete, random_legal
from oracles.arrays import ArrayPlan, earliest, latest, plan_schedule

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import Flow, Step
from ckio.analysis.snapshots import Plain, plan, successive
from ckio.errors import BadInput, IllegalAction
from ckio.planners.binomial import revolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

from .symbols import NAMES, is_right, perform, random_steps, subset


def fewest(
    schedule: Schedule, steps: list[Step], seed: frozenset[str], name: str
) -> tuple[float, float]:
    """The least writes, and the least reads, of one variable in any way of doing a schedule.

    By going through all of them: at every Write it is stored or not, at every Read any version that
    is stored is read or none.
    """
    right = [version(steps, name, i) for i in range(len(steps) + 1)]
    start = {
        (
            0,
            frozenset(
                right[key.step]
                for keys in schedule.stored
                for key in keys
                if key.kind is Kind.RESTART
            ),
        )
    }
    writes, reads = dict.fromkeys(start, 0), dict.fromkeys(start, 0)
    seeded = False
    for action in schedule.actions:
        match action:
            case Advance(_, end) | Record(_, end):
                move = partial(forward, steps, name, right, action)
                if end == len(steps) and not seeded:
                    seeded = True
                    if name in seed:
                        move = partial(then_seed, move, right[-1])
                writes, reads = moved(writes, move), moved(reads, move)
            case Reverse():
                move = partial(back, steps, name, right, action)
                writes, reads = moved(writes, move), moved(reads, move)
            case Write(key, _) if key.kind is not Kind.ADJOINT:
                writes, reads = stored(writes, 1), stored(reads, 0)
            case Read(key, _) if key.kind is not Kind.ADJOINT:
                writes, reads = loaded(writes, 0), loaded(reads, 1)
            case _:
                pass
    return min(writes.values(), default=inf), min(reads.values(), default=inf)


Ways = dict[tuple[int, frozenset[int]], int]
"""By the version that is there (-1: none) and those that are stored: the fewest accesses."""


def version(steps: list[Step], name: str, i: int) -> int:
    return max((j + 1 for j in range(i) if name in steps[j].forward.out), default=0)


def forward(
    steps: list[Step], name: str, right: list[int], action: Advance | Record, there: int
) -> int | None:
    for i in range(action.begin, action.end):
        flow = steps[i].forward if isinstance(action, Advance) else steps[i].record
        if name in flow.use and there != right[i]:
            return None
        if name in flow.out:
            made = name in steps[i].forward.out and (name in flow.kill or there == right[i])
            there = right[i + 1] if made else -1
    return there


def back(steps: list[Step], name: str, right: list[int], action: Reverse, there: int) -> int | None:
    for i in reversed(range(action.begin, action.end)):
        step = steps[i]
        if name in step.reverse.use and there != right[i + 1]:
            return None
        if name in step.restored:
            there = right[i]
        elif name in step.reverse.out:
            there = -1
    return there


def then_seed(move: Callable[[int], int | None], needed: int, there: int) -> int | None:
    after = move(there)
    return after if after == needed else None


def moved(ways: Ways, move: Callable[[int], int | None]) -> Ways:
    found: Ways = {}
    for (there, kept), many in ways.items():
        after = move(there)
        if after is not None:
            found[after, kept] = min(many, found.get((after, kept), many))
    return found


def stored(ways: Ways, price: int) -> Ways:
    found = dict(ways)
    for (there, kept), many in ways.items():
        if there >= 0 and there not in kept:
            state = there, kept | {there}
            found[state] = min(many + price, found.get(state, many + price))
    return found


def loaded(ways: Ways, price: int) -> Ways:
    found = dict(ways)
    for (_, kept), many in ways.items():
        for version in kept:
            found[version, kept] = min(many + price, found.get((version, kept), many + price))
    return found


def compare_with_fewest(random: Random, *, in_part: bool) -> list[tuple[int, float, int, float]]:
    """For each variable of a random case: writes and fewest writes, reads and fewest reads."""
    make = random_complete if random.random() < 0.8 else random_legal
    schedule, _ = make(random, most_steps=5)
    steps = random_steps(random, schedule.chain.length, in_part=in_part, asleep=False)
    seed = subset(random, NAMES, 0.3)
    bounds = {name: fewest(schedule, steps, seed, name) for name in NAMES}
    try:
        plan = plan_schedule(schedule, steps, seed=seed)
    except BadInput:
        # Only where there is no way, or a tape is read while the state is needed further on.
        assert not is_right(schedule, steps, seed)
        return []
    found = []
    for name, (writes, reads) in bounds.items():
        own = [access for access in plan.accesses if access.key.name == name]
        written, read = (sum(isinstance(it, kind) for it in own) for kind in (Write, Read))
        found.append((written, writes, read, reads))
    return found


@pytest.mark.campaign
@pytest.mark.parametrize("variables", [12, 1000])
def test_no_way_of_doing_a_schedule_writes_or_reads_fewer_arrays(variables: int) -> None:
    for in_part in (False, True):
        random, compared = Random(1), 0
        while compared < variables:
            for written, writes, read, reads in compare_with_fewest(random, in_part=in_part):
                assert written == writes
                assert read == reads
                compared += written > 0


def on_arrays(schedule: Schedule, plan: ArrayPlan) -> Schedule:
    """The schedule with accesses to arrays in place of those to whole states."""
    actions = []
    for place, action in enumerate(schedule.actions):
        access = isinstance(action, Write | Read | Discard)
        if not (access and action.key.kind is Kind.RESTART):
            actions.append(action)
        actions += plan.at(place)
    stored = [{key for key in keys if key.kind is not Kind.RESTART} for keys in schedule.stored]
    stored = [keys | arrays for keys, arrays in zip(stored, plan.stored, strict=True)]
    return Schedule(schedule.chain, actions, stored)


def by_hand(*actions: object, steps: int) -> Schedule:
    chain = Chain(steps=steps, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    return Schedule(chain, actions)  # type: ignore[arg-type]


def x(step: int, name: str = "") -> Key:
    return Key(Kind.RESTART, step, name)


def step_back(i: int) -> tuple[Record, Reverse]:
    return Record(i, i + 1), Reverse(i, i + 1)


BACK = (
    *(Write(x(0), 1), Advance(0, 1), Write(x(1), 0), Advance(1, 2), *step_back(2)),
    *(Read(x(1), 0), Discard(x(1), 0), *step_back(1)),
    *(Read(x(0), 1), Discard(x(0), 1), *step_back(0)),
)
"""Three steps and two checkpoints, far and near."""


def test_what_several_checkpoints_hold_is_stored_once() -> None:
    """The paper's example: all steps use A, only the last overwrites it."""
    read, change = Step(Flow({"A"})), Step(Flow({"A"}, {"A"}, {"A"}))
    for placing, place, level in ((latest, 2, 0), (earliest, 0, 1)):
        plan = plan_schedule(
            by_hand(*BACK, steps=3), [read, read, change], seed=(), placing=placing
        )
        assert plan.places == (place, 6, 6)
        assert list(plan.accesses) == [
            Write(x(0, "A"), level),
            Read(x(0, "A"), level),
            Discard(x(0, "A"), level),
        ]


def test_what_an_adjoint_step_restores_need_not_be_read() -> None:
    change = Flow({"A"}, {"A"}, {"A"})
    at_once = by_hand(Record(0, 3), Reverse(0, 3), steps=3)
    assert plan_schedule(at_once, Step(change, None, Flow({"A"}), {"A"}), seed={"A"}).writes == 0
    with pytest.raises(BadInput, match=r"Reverse\[0, 3\) needs A as in x_2; .*tape"):
        plan_schedule(at_once, Step(change, None, Flow({"A"})), seed={"A"})


def test_a_recording_step_needs_all_where_its_state_is_needed() -> None:
    both = Flow({"A", "F"}, {"A", "F"}, {"A", "F"})
    tape = Step(both, Flow({"A"}, {"A", "F"}, {"A", "F"}))
    on = by_hand(
        *(Write(x(0), 0), Advance(0, 3), Read(x(0), 0), Discard(x(0), 0), Record(0, 2)), steps=9
    )
    plan = plan_schedule(on, tape, seed=())
    assert {str(it.key) for it in plan.accesses} == {"x_0.A", "x_0.F"}


def test_dead_at_a_write_and_alive_at_its_read_it_is_brought_to_the_write() -> None:
    """A is overwritten in part by step 0 and used by the tape of step 1 alone."""
    steps = [Step(Flow((), {"A"})), Step(Flow((), {"A"}, {"A"}), Flow({"A"}, {"A"}, {"A"}))]
    schedule = by_hand(
        *(Write(x(0), 0), Advance(0, 2), Read(x(0), 0), Advance(0, 1), Write(x(1), 0)),
        *(Advance(1, 2), Read(x(1), 0), Discard(x(1), 0), *step_back(1)),
        steps=2,
    )
    plan = plan_schedule(schedule, steps, seed=())
    accesses = [it for it in plan.accesses if not isinstance(it, Discard)]
    assert accesses == [
        *(Write(x(0, "A"), 0), Read(x(0, "A"), 0)),
        *(Write(x(1, "A"), 0), Read(x(1, "A"), 0)),
    ]
    perform(on_arrays(schedule, plan), steps, ())


def test_what_is_asked_has_to_fit_together() -> None:
    schedule, step = by_hand(*BACK, steps=3), Step(Flow({"A"}, {"A"}, {"A"}))
    with pytest.raises(BadInput, match=r"2 steps .*chain has 3"):
        plan_schedule(schedule, [step, step], seed=())
    with pytest.raises(BadInput, match="seed = 'A'"):
        plan_schedule(schedule, step, seed="A")
    with pytest.raises(IllegalAction):
        plan_schedule(by_hand(*BACK[1:], steps=3), step, seed=())
    with pytest.raises(BadInput, match="one variable"):
        plan_schedule(by_hand(Write(x(0, "A"), 0), steps=9), step, seed=())


def test_an_array_is_in_some_lazy_snapshot_of_successive_checkpoints_or_on_the_last_tape() -> None:
    """These hold other arrays, too: what is stored is shared, and nothing is put back in vain."""
    random, fewer = Random(11), 0
    forth = [it for i in range(6) for it in (Write(x(i), 0), Advance(i, i + 1))]
    back = [it for i in reversed(range(6)) for it in (Read(x(i), 0), *step_back(i))]
    schedule = by_hand(*forth, *step_back(6), *back, steps=7)
    for _ in range(50):
        steps = random_steps(random, 7, in_part=False)
        if is_right(schedule, steps, frozenset()):
            snapshots = plan(successive([Plain.of(step) for step in steps]))
            writes = plan_schedule(schedule, steps, seed=()).writes
            most = sum(len(it.stored) for it in snapshots) + len(snapshots[-1].req_d)
            assert writes <= most
            fewer += writes < most
    assert fewer > 5


def test_an_ocean_model_stores_half_of_its_arrays() -> None:
    """Third-order Adams-Bashforth with its tendencies in a ring, a constant and a slow field."""

    def step(i: int) -> Step:
        now, ring = {"zeta", "psi", "Q", "slow"}, f"F{i % 3}"
        out = {"zeta", "psi", ring} | ({"slow"} if i % 16 == 15 else set())
        before = {f"F{(i + 1) % 3}", f"F{(i + 2) % 3}"}
        return Step(Flow(now | before, out, out), Flow(now, out, out))

    steps, seed = [step(i) for i in range(100)], {"zeta", "psi"}
    chain = Chain(steps=100, advance=1, record=1, reverse=1, restart=7, tape=7, adjoint=7)
    schedule = revolve(chain, Platform((Level(name="ram", capacity=10 * 7),), 7))
    whole = sum(isinstance(it, Write) for it in schedule.actions)
    arrays = plan_schedule(schedule, steps, seed=seed)
    perform(on_arrays(schedule, arrays), steps, seed)
    most = arrays.peaks(dict.fromkeys(("zeta", "psi", "Q", "slow", "F0", "F1", "F2"), 1))
    assert (7 * whole, arrays.writes) == (385, 190)
    assert most == (46,)  # of 70
