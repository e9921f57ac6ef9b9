"""Schedules of single variables, done with symbols, in the bytes of whole checkpoints."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from ckio.actions import Advance, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import Flow, Step, Variables
from ckio.analysis.lowering import ByVariable, lower, reduced, whole_checkpoints
from ckio.errors import BadInput, IllegalAction, NoSchedule
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.literature import multistage
from ckio.planners.recovery import recover
from ckio.planners.trivial import store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.replay import validate

from .symbols import (
    NAMES,
    PLANNERS,
    VARYING,
    Planned,
    Wrong,
    in_place,
    is_right,
    perform,
    random_planned,
    random_steps,
    random_variables,
    subset,
)


def roomy(schedule: Schedule) -> Platform:
    return Platform(tuple(Level(name=f"level{n}") for n in range(len(counts(schedule).levels))))


def chain_of(steps: int, size: int) -> Chain:
    return Chain(steps=steps, advance=1, record=1, reverse=1, restart=size, tape=size, adjoint=1)


def moves(schedule: Schedule) -> list[object]:
    return [action for action in schedule.actions if isinstance(action, Advance | Record | Reverse)]


def cases(
    name: str, planner: Planned, count: int, *, differ: bool = False
) -> Iterator[tuple[Random, Schedule, list[Step], frozenset[str]]]:
    """Schedules of whole checkpoints, and steps for which these do."""
    random, done = Random(name + "lowered" + str(differ)), 0
    while done < count:
        try:
            schedule = random_planned(random, name, planner, differ=differ)
        except NoSchedule:
            continue
        for _ in range(5):
            steps = random_steps(random, schedule.chain.length, in_part=random.random() < 0.5)
            seed = subset(random, NAMES, 0.3)
            if is_right(schedule, steps, seed):
                done += 1
                yield random, schedule, steps, seed


@pytest.mark.campaign
@pytest.mark.parametrize("count", [3, 20])
def test_every_planner_is_lowered_to_what_the_machine_allows_and_no_variable_can_be_left_out(
    count: int,
) -> None:
    alike = [(name, planner, False) for name, planner in PLANNERS.items()]
    felt = 0
    for name, planner, differ in alike + [(name, it, True) for name, it in VARYING.items()]:
        for random, schedule, steps, seed in cases(name, planner, count, differ=differ):
            tape = subset(random, NAMES, 0.4)
            variables = random_variables(random, steps, seed, tape=tape)
            lowered, taped = lower(schedule, variables), variables.taped
            assert validate(lowered, roomy(schedule)).adjoint == 0, name
            assert moves(lowered) == moves(schedule), name
            assert not perform(lowered, steps, seed, taped=taped), name
            writes = [it for it in lowered.actions if isinstance(it, Write) and it.key.name]
            assert len({it.key for it in writes}) == len(writes), name
            for write in writes[:4]:
                with pytest.raises(Wrong):
                    perform(lowered, steps, seed, taped=taped, lost=(write.key, write.level))
                felt += 1
    assert felt > 20 * count


@pytest.mark.campaign
@pytest.mark.parametrize("count", [5, 40])
def test_what_is_planned_with_reduced_sizes_fits_when_it_is_lowered(count: int) -> None:
    gained = 0
    for planner in (hrevolve, multistage, mixed):
        random, done = Random(planner.__name__), 0
        while done < count:
            fewer = planned_with_reduced_sizes(random, planner)
            if fewer is not None:
                done, gained = done + 1, gained + fewer
    assert gained > 0.4 * count


def planned_with_reduced_sizes(random: Random, planner: Planned) -> bool | None:
    """Whether that takes fewer forward steps; None where whole checkpoints do not do."""
    steps = in_place(random_steps(random, random.randint(2, 20), in_part=random.random() < 0.3))
    tape = subset(random, NAMES, 0.4)
    variables = random_variables(random, steps, subset(random, NAMES, 0.5), tape=tape)
    size = sum(variables.nbytes.values())
    chain = chain_of(len(steps), size)
    levels = tuple(
        Level(
            name=f"level{number}",
            capacity=random.randint(size, 4 * size) if number != 2 else None,
            write=Affine(number * random.random(), random.random() / 9),
            read=Affine(number * random.random(), random.random() / 9),
            ratio=random.choice((1.0, 1.0, 0.37)),
        )
        for number in range(random.randint(1, 3))
    )
    platform = Platform(levels, working_memory=2 * size)
    if not is_right(planner(*reduced(chain, platform, variables)), steps, variables.seed):
        return None
    schedule = ByVariable(planner, variables)(chain, platform)
    assert validate(schedule, platform).adjoint == 0
    assert not perform(schedule, steps, variables.seed, taped=variables.taped)
    on_whole_states = planner(chain, platform)
    assert makespan(lower(on_whole_states, variables, platform=platform), platform) >= 0
    return counts(schedule).forward < counts(on_whole_states).forward


def test_a_platform_without_a_level_of_the_schedule_is_refused() -> None:
    near, far = Level(name="near", capacity=16), Level(name="far")
    chain, step = chain_of(9, 8), Step(Flow({"a"}, {"a"}, {"a"}))
    schedule = hrevolve(chain, Platform((near, far)))
    with pytest.raises(BadInput, match="has a level 1, but the platform has 1 levels"):
        lower(schedule, Variables({"a": 8}, step), platform=Platform((near,)))


@pytest.mark.campaign
@pytest.mark.parametrize("runs", [5, 40])
def test_a_killed_run_goes_on_from_the_variables_that_are_left(runs: int) -> None:
    random, done, used = Random(3), 0, 0
    while done < runs:
        steps = in_place(random_steps(random, random.randint(4, 16), in_part=False))
        variables = random_variables(random, steps, subset(random, NAMES, 0.5))
        size = sum(variables.nbytes.values())
        chain = chain_of(len(steps), size)
        platform = Platform(
            (Level(name="ram", capacity=2 * size), Level(name="disk", capacity=3 * size)), size
        )
        smaller = reduced(chain, platform, variables)
        planned = hrevolve(*smaller)
        if not is_right(planned, steps, variables.seed):
            continue
        schedule = lower(planned, variables)
        cut = random.randrange(len(schedule))
        machine = validate(replace(schedule, actions=schedule.actions[:cut]), roomy(schedule))
        there = [set(keys) for keys in machine.stored] + [set[Key]()] * 2
        grouped = schedule.chain.variables
        assert grouped is not None
        left = [frozenset(keys) for keys in there[:2]]
        found = whole_checkpoints(left, *smaller, grouped)
        again = recover(*smaller, found, level=None, every=0)
        goes_on = lower(again, grouped, stored=left)
        assert validate(goes_on, Platform((Level(name="ram"), Level(name="disk")))).adjoint == 0
        assert not perform(goes_on, steps, variables.seed)
        done, used = done + 1, used + any(found)
    assert used > 0.25 * runs


def test_what_a_schedule_starts_with_has_to_be_there() -> None:
    step = Step(Flow({"a"}, {"a"}, {"a"}))
    variables = Variables({"a": 1}, step)
    chain = chain_of(2, 1)
    platform = Platform((Level(name="ram", capacity=3),), 1)
    there = (frozenset({Key(Kind.RESTART, 1)}),)
    survived = recover(chain, platform, there, level=None, every=0)
    with pytest.raises(BadInput, match=r"starts with x_1 on level 0, of which x_1\.a is not"):
        lower(survived, variables)
    stored = [{Key(Kind.RESTART, 1, "a")}]
    assert validate(lower(survived, variables, stored=stored), platform).adjoint == 0


def test_a_stored_adjoint_checkpoint_remains_at_the_start_of_the_lowered_schedule() -> None:
    a_1, x_0, u_0 = Key(Kind.ADJOINT, 1), Key(Kind.RESTART, 0), Key(Kind.RESTART, 0, "u")
    variables = Variables({"u": 1}, Step(Flow({"u"}, {"u"}, {"u"})), seed={"u"}, tape={"u"})
    actions = [Read(a_1, 0), Read(x_0, 1), Record(0, 1), Reverse(0, 1)]
    schedule = Schedule(chain_of(1, 1), actions, [{a_1}, {x_0}])
    lowered = lower(schedule, variables, stored=[set(), {u_0}])
    assert list(map(set, lowered.stored)) == [{a_1}, {u_0}]
    assert validate(lowered, roomy(schedule)).adjoint == 0


def test_variables_that_steps_treat_alike_are_stored_as_one() -> None:
    flow = Flow({"u", "v"}, {"u", "v", "w"}, {"u", "v", "w"})
    variables = Variables({"u": 4, "v": 4, "w": 4, "map": 4}, Step(flow), seed={"u"})
    chain = Chain(steps=5, advance=1, record=1, reverse=1, restart=16, tape=1, adjoint=1)
    platform = Platform((Level(name="ram", capacity=32),), 1)
    lowered = lower(hrevolve(chain, platform), variables, platform=platform)
    names = {action.key.name for action in lowered.actions if isinstance(action, Write)}
    assert names == {"u+v"}
    assert lowered.chain.variables is not None
    assert lowered.chain.variables.nbytes == {"u+v": 8, "w": 4, "map": 4}


def test_where_an_access_takes_long_fewer_are_made() -> None:
    """Reversed at once, a step needs `u` alone; but two accesses take twice the latency."""
    both = Flow({"u", "v"}, {"u", "v"}, {"u", "v"})
    variables = Variables({"u": 4, "v": 4}, Step(both, Flow({"u"}, {"u", "v"}, {"u", "v"})))
    chain = Chain(steps=30, advance=1, record=1, reverse=1, restart=8, tape=1, adjoint=1)
    slow, quick = Affine(latency=1.0), Affine(per_byte=0.1)
    for price, names in ((slow, {"u+v"}), (quick, {"u", "v"})):
        platform = Platform((Level(name="disk", capacity=32, write=price, read=price),), 1)
        lowered = lower(hrevolve(chain, platform), variables, platform=platform)
        written = {it.key.name for it in lowered.actions if isinstance(it, Write)}
        assert written == names


def test_what_is_overwritten_once_takes_its_room_once() -> None:
    """The array A is large, and only the last step but one overwrites it."""
    keeps = Step(Flow({"u", "A"}, {"u"}, {"u"}))
    changes = Step(Flow({"u", "A"}, {"u", "A"}, {"u", "A"}))
    steps = (*(keeps,) * 38, changes, keeps)
    variables = Variables({"u": 10, "A": 100}, steps, seed={"u"}, tape={"u", "A"})
    chain = chain_of(40, 110)
    platform = Platform((Level(name="ram", capacity=330),), 110)
    smaller, room = reduced(chain, platform, variables)
    assert (smaller.restart, room.levels[0].capacity) == (10, 130)
    schedule = ByVariable(hrevolve, variables)(chain, platform)
    assert counts(schedule).levels[0].peak_bytes <= 330
    assert makespan(schedule, platform) < makespan(hrevolve(chain, platform), platform)

    # Tapes that hold one version of it hold it together.
    whole_tapes = store_all(chain, Platform((Level(name="ram"),), 110))
    lowered = lower(whole_tapes, variables)
    assert counts(whole_tapes).levels[0].peak_bytes == 39 * 110
    assert counts(lowered).levels[0].peak_bytes == 39 * 10 + 100


def test_a_lowered_schedule_that_does_not_fit_is_refused() -> None:
    step = Step(Flow({"a"}, {"a"}, {"a"}))
    chain = chain_of(9, 1)
    platform = Platform((Level(name="ram", capacity=3),), 1)
    with pytest.raises(IllegalAction, match="needs 2 bytes, but"):
        lower(hrevolve(chain, platform), Variables({"a": 2}, step), platform=platform)


def test_versions_that_no_checkpoint_needs_take_no_room() -> None:
    """In the thaw each step computes the large K anew: the versions in between are dead."""
    keeps = Step(Flow({"T", "K"}, {"T"}, {"T"}))
    thaws = Step(Flow({"T"}, {"T", "K"}, {"T", "K"}))
    steps = (*(keeps,) * 15, *(thaws,) * 10, *(keeps,) * 15)
    variables = Variables({"T": 10, "K": 100}, steps, seed={"T"}, tape={"T", "K"})
    chain = chain_of(40, 110)
    platform = Platform((Level(name="ram", capacity=330),), 110)
    smaller, room = reduced(chain, platform, variables)
    assert (smaller.restart, room.levels[0].capacity) == (10, 130)
    schedule = ByVariable(hrevolve, variables)(chain, platform)
    assert validate(schedule, platform).adjoint == 0
    assert not perform(schedule, list(steps), "T", taped="TK")
    stored = {it.key for it in schedule.actions if isinstance(it, Write) and it.key.name == "K"}
    assert {key.step for key in stored} <= {0, 25}
