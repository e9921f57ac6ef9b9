"""Where variables stand in pictures: there where the checkpoints stood that they are parts of."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import DISCARD, WRITE, Actions
from ckio.actions.variables import Flow, Step, Variables
from ckio.analysis.lowering import lower
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.trivial import store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.report.pictures import PlotAxis, spacetime, storage, sweeps
from ckio.report.pictures.lines import Places, members, of_program
from ckio.report.render import render
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.occupancy import BEFORE, Lifetimes, accesses
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

from .drawing import shapes

CHAIN = Chain(steps=23, advance=1.0, record=1.5, reverse=2.0, restart=30, tape=30, adjoint=3)
RAM = Level(name="ram", capacity=90, write=Affine(0.0, 0.01), read=Affine(0.0, 0.01))
FAR = Level(name="far", write=Affine(0.0, 0.1), read=Affine(0.0, 0.1))
PLATFORM = Platform((RAM, FAR), working_memory=40)
PLANNERS = {"hrevolve": hrevolve, "mixed": mixed, "store-all": store_all}
THAW = (4, 5, 13)
"""The steps that overwrite m."""


def variables_of(length: int) -> Variables:
    """Each step overwrites u, some overwrite m, which all read, and none overwrites k."""
    names = {"u", "m", "k"}

    def step(i: int) -> Step:
        out = {"u", "m"} if i in THAW else {"u"}
        return Step(Flow(names, out, {"u"}), reverse=Flow({"k"}, set(), set()))

    sizes = {"u": 20, "m": 10, "k": 10}
    return Variables(sizes, [step(i) for i in range(length)], seed={"u"}, tape={"u", "m"})


def version(step: int) -> int:
    """That of m in x_step."""
    ends = [0, *(i + 1 for i in THAW)]
    return ends[bisect_right(ends, step) - 1]


def in_parts(actions: Actions) -> Iterator[Action]:
    """Two variables for each checkpoint: one as old as m, whose name tells whose part it is."""
    for action in actions:
        match action:
            case Write(key, level) | Read(key, level) | Discard(key, level) if (
                key.kind is not Kind.ADJOINT
            ):
                yield type(action)(replace(key, name="u"), level)
                yield type(action)(Key(key.kind, version(key.step), f"m of {key.step}"), level)
            case _:
                yield action


def drawing(actions: Actions) -> list[str]:
    """The picture in text, without its legend and its labels."""
    return [line[11:] for line in render(actions).split("\n\n", 1)[1].split("\n")]


@pytest.mark.parametrize("steps", [1, 2, 7, 23])
@pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS)
def test_the_picture_is_that_of_whole_checkpoints(
    planner: Callable[[Chain, Platform], Schedule], steps: int
) -> None:
    whole = planner(CHAIN.with_steps(steps), PLATFORM).actions
    parts = Actions.of(in_parts(whole))
    assert drawing(parts) == drawing(whole)
    before, after = Places.of(whole), Places.of(parts)
    shown = np.flatnonzero(whole.op != DISCARD)
    first = np.unique(after.mark[parts.op != DISCARD])
    assert after.line[first].tolist() == before.line[shown].tolist()
    assert after.step[first].tolist() == before.step[shown].tolist()


def check_writes(lowered: Schedule, platform: Platform) -> int:
    """Each stands where the state, or the tape, is; returns how many are of an older version."""
    step, machine, older = Places.of(lowered.actions).step, Machine(lowered.chain, platform), 0
    for at, action in zip(step.tolist(), lowered.actions, strict=True):
        match action:
            case Write(Key(Kind.RESTART, version), _):
                assert machine.versions is not None
                assert machine.versions.complete(at), action
                older += version < at
            case Write(Key(Kind.TAPE, version), _):
                assert machine.tape is not None
                assert machine.tape[0] == at, action
                older += version < at
        machine.apply(action)
    return older


@pytest.mark.slow
def test_what_is_written_stands_where_the_state_is() -> None:
    older = 0
    for seed in range(40):
        random = Random(seed)
        steps = random.randint(2, 60)
        ram = replace(RAM, capacity=30 * random.randint(1, 5))
        platform = Platform((ram, FAR), working_memory=30)
        planned = random.choice((hrevolve, mixed))(CHAIN.with_steps(steps), platform)
        older += check_writes(lower(planned, variables_of(steps), platform=platform), platform)
    assert older > 40


# Five steps: m in x_2 is as step 0 left it, and lies on the other level than u.
U0, U2, M0, M1 = (Key(Kind.RESTART, i, name) for name in "um" for i in (0, 2 - (name == "m")))
SMALL: list[Action] = [
    *(Write(U0, 1), Write(M0, 1), Advance(0, 2), Write(U2, 1), Write(M1, 0), Advance(2, 4)),
    *(Record(4, 5), Reverse(4, 5), Read(U2, 1), Advance(2, 3), Record(3, 4), Reverse(3, 4)),
    *(Read(U2, 1), Discard(U2, 1), Read(M1, 0), Record(2, 3), Reverse(2, 3), Discard(M1, 0)),
    *(Read(U0, 1), Read(M0, 1), Discard(U0, 1), Discard(M0, 1), Record(0, 2), Reverse(0, 2)),
]
PICTURE = """\
5 steps, 24 actions   --> advance   ==> record   <~~ reverse   0 1 restart data on level 0, 1
* variables on several levels   | as long as it is stored

   action  0     1     2     3     4     5
        0  1---------->*---------->=====>
        7  |           |           <~~~~~
        8  |           1---->=====>
       11  |           |     <~~~~~
       12  |           *====>
       16  |           <~~~~~
       18  1==========>
       23  <~~~~~~~~~~~"""


def test_a_small_schedule_looks_like_this() -> None:
    assert render(SMALL, width=100) == PICTURE


def test_what_is_read_for_the_adjoint_turns_nothing() -> None:
    """A variable that only the adjoint reads comes between recording and reversing."""
    m = Key(Kind.RESTART, 0, "m")
    actions = Actions.of(
        [
            *(Write(U0, 0), Write(m, 0), Advance(0, 2), Record(2, 3), Read(m, 0), Reverse(2, 3)),
            *(Read(U0, 0), Record(0, 2), Reverse(1, 2), Read(m, 0), Reverse(0, 1)),
        ]
    )
    places = Places.of(actions)
    assert places.line.tolist() == [0, 0, 0, 0, 0, 1, 2, 2, 3, 3, 3]
    assert places.step[[4, 6, 9]].tolist() == [3, 0, 1]


def test_what_is_read_where_the_state_stays_is_on_the_way() -> None:
    m = Key(Kind.RESTART, 0, "m")
    places = Places.of(Actions.of([Advance(0, 2), Read(m, 0), Record(2, 3), Reverse(2, 3)]))
    assert places.line.tolist() == [0, 0, 0, 1]
    assert places.step.tolist() == [0, 2, 2, 2]


def test_what_is_written_after_a_reverse_belongs_to_the_next_step_forward() -> None:
    m = Key(Kind.RESTART, 0, "m")
    places = Places.of(Actions.of([Record(3, 4), Reverse(3, 4), Write(m, 0), Record(2, 3)]))
    assert places.step.tolist() == [3, 3, 2, 2]


def small() -> tuple[Schedule, Platform]:
    steps = [Step(Flow({"u", "m"}, {"u", "m"} if i == 0 else {"u"}, {"u"})) for i in range(5)]
    chain = replace(CHAIN.with_steps(5), variables=Variables({"u": 20, "m": 10}, steps, {"u"}))
    return Schedule(chain, SMALL), Platform((replace(RAM, capacity=900), FAR))


def test_variables_that_are_written_or_read_together_have_one_mark_that_names_them() -> None:
    schedule, platform = small()
    timeline = simulate(schedule, platform)
    picture = spacetime(timeline, schedule.chain, platform).element()
    marks = [
        shapes(picture, f"line mark {verb} level{k} point")
        for k in (0, 1)
        for verb in ("write", "read")
    ]
    far = [title.split("\n") for title, _ in marks[2] + marks[3]]
    assert [[line for line in title if "_" in line] for title in far] == [
        ["write x_0.u, 20 B", "write x_0.m, 10 B"],
        ["write x_2.u, 20 B"],
        ["read x_2.u, 20 B"],
        ["read x_2.u, 20 B"],
        ["read x_0.u, 20 B", "read x_0.m, 10 B"],
    ]
    assert far[0][1] == "to far, 0 s to 2 s: 2 s"
    # The mark of m as in x_1 is at x_2, beside that of u.
    (_, near), (_, far_mark) = marks[0][0], marks[2][1]
    assert middle(near) == pytest.approx(middle(far_mark), abs=0.1)


def middle(d: str) -> float:
    """Of a path, along the steps."""
    across = [float(x) for x in re.findall(r"[ML](-?[\d.]+) ", d)]
    return (min(across) + max(across)) / 2


def test_they_have_one_line_as_long_as_one_of_them_is_stored() -> None:
    schedule, platform = small()
    timeline = simulate(schedule, platform)
    for picture, css in (
        (spacetime(timeline, schedule.chain, platform), "line stay stored level1"),
        (
            sweeps(timeline, schedule.chain, platform, PlotAxis(timeline.makespan)),
            "line stay stored level1",
        ),
    ):
        titles = [title.split("\n") for title, _ in shapes(picture.element(), css)]
        assert [title[::2] for title in titles] == [
            ["x_0.u on far", "x_0.m on far"],
            ["x_2.u on far"],
        ]


def test_a_stay_of_several_lasts_until_the_last_is_discarded() -> None:
    actions = Actions.of([Write(U0, 0), Write(M0, 0), Advance(0, 1), Discard(M0, 0)])
    stays, which = Places.of(actions).together(Lifetimes.of(actions))
    assert (stays.written.tolist(), stays.discarded.tolist()) == ([0], [4])
    assert members(which) == [[0, 1]]
    actions = Actions.of([Write(U0, 0), Write(M0, 0), Advance(0, 1), Discard(U0, 0)])
    stays, _ = Places.of(actions).together(Lifetimes.of(actions))
    assert stays.discarded.tolist() == [4]
    nothing, none = Places.of(actions[:0]).together(Lifetimes.of(actions[:0]))
    assert (len(nothing.written), members(none)) == (0, [])


def test_what_lay_there_before_stands_at_its_version() -> None:
    actions = Actions.of([Read(M1, 0), Read(Key(Kind.RESTART, 3, "u"), 0), Record(3, 4)])
    places, stays = Places.of(actions), Lifetimes.of(actions)
    assert places.step.tolist() == [3, 3, 3]
    assert (stays.written == BEFORE).all()
    assert places.of_stays(stays).tolist() == [1, 3]


@pytest.mark.parametrize("behind", [1, 3, None])
def test_with_overlap_a_level_line_is_at_the_step_where_the_program_wrote(
    behind: int | None,
) -> None:
    platform = Platform((replace(RAM, capacity=60), FAR), working_memory=30)
    schedule = lower(hrevolve(CHAIN, platform), variables_of(23), platform=platform)
    timeline = simulate(schedule, platform, overlap=Overlap(behind, 2))
    events = accesses(timeline, platform, 1)
    assert len(timeline.transfers)
    found = of_program(events, timeline, 1)
    writes = np.flatnonzero(events.actions.op == WRITE)
    assert len(writes) > 2
    for place in writes.tolist():
        assert schedule.actions[int(found[place])] == events.actions[place]
        assert timeline.start[found[place]] <= events.start[place]
    assert len(np.unique(found[writes])) == len(writes)


def test_a_key_that_is_written_twice_is_told_apart_by_time() -> None:
    """The second time the program is elsewhere, and the first transfer may have been cancelled."""
    m = Key(Kind.RESTART, 1, "m")
    again = [Write(m, 1), Advance(2, 3), Discard(m, 1), Write(m, 1), Advance(3, 4), Read(m, 1)]
    actions = Actions.of([Write(U0, 1), Advance(0, 2), *again])
    every = np.arange(len(actions), dtype=np.float64)
    program = Timeline(actions, every, every + 1, np.zeros(len(actions), np.int64))
    for written, start in (([5], [0.0, 5.5]), ([2, 5], [0.0, 2.5, 5.5])):
        late = Actions.of([Write(U0, 1), *(Write(m, 1) for _ in written)])
        begin = np.array(start)
        events = Timeline(late, begin, begin + 0.5, np.zeros(len(late), np.int64))
        assert of_program(events, program, 1).tolist() == [0, *written]
    assert Places.of(actions).step[[2, 5]].tolist() == [2, 3]


def test_levels_hold_arrays_where_single_variables_are_stored() -> None:
    schedule, platform = small()
    timeline = simulate(schedule, platform)
    axis = PlotAxis(timeline.makespan)
    told = storage(timeline, schedule.chain, platform, axis).element()
    assert re.findall(r"\d+ (?:array|checkpoint)s?(?=<)", told) == ["1 array", "3 arrays"]
