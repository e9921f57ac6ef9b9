"""Sweeps: axes in words, points, answers that are those of a single plan, the front, processes."""

import functools
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckio.errors import BadInput, RunFailed
from ckio.planners.auto import auto, plan
from ckio.planners.base import Planner, without_notes
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.literature import disk_revolve, multistage, revolve_1d, two_level
from ckio.planners.trivial import periodic, recompute_all, store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.policy import AUTO, Overlap
from ckio.schedule.policy import SYNCHRONOUS as NONE
from ckio.sim.engine import simulate
from ckio.sim.failures import Mean
from ckio.sim.ranks import Ranks, Shared
from ckio.sim.ranks.sharing import simulate_ranks
from ckio.sim.sweep import Answer, Question, front, parse, points, sentence, sweep

CHAIN = Chain(steps=30, advance=1.0, record=1.25, reverse=2.5, restart=40, tape=60, adjoint=40)
PLATFORM = Platform(
    (
        Level(name="ram", capacity=200),
        Level(name="nvme", capacity=400, write=Affine(0.1, 1 / 80), read=Affine(0.1, 1 / 100)),
        Level(name="tape", backend="hdf5", write=Affine(1.0, 1 / 40), read=Affine(1.0, 1 / 50)),
    ),
    working_memory=60,
)
PLANNERS: dict[str, Planner] = {
    found.__name__: functools.partial(found)
    for found in (
        *(hrevolve, mixed, multistage, two_level, disk_revolve, revolve_1d),
        *(store_all, recompute_all, periodic),
    )
}


def base(
    chain: Chain = CHAIN, platform: Platform = PLATFORM, planner: str = "hrevolve"
) -> Question:
    return Question(planner, PLANNERS[planner], chain, platform, "ram")


def asked(*axes: str, of: Question | None = None) -> list[Question]:
    question = of or base()
    found = [
        point.question
        for point in points([parse(axis, question.platform) for axis in axes], question, PLANNERS)
    ]
    assert all(isinstance(one, Question) for one in found), found
    return [one for one in found if isinstance(one, Question)]


def answered(*axes: str, of: Question | None = None) -> list[Answer]:
    return sweep(asked(*axes, of=of), processes=1)


AXES = (
    "ram.capacity=0,39,40,100,120,217,1000,100000,unlimited",
    "ram.slots=0,1,2,7",
    "nvme.capacity=50:5000:4",
    "nvme.bandwidth=10,1000",
    "nvme.write.bandwidth=10:1000:3",
    "nvme.read.latency=0,5",
    "tape.latency=0.01:10:2",
    "nvme.ratio=0.3,1,2",
    "nvme=on,off",
    "tape=off,on",
    "steps=1,2,17,30",
    "advance=0.5:2:3",
    "restart=10,40,70",
    "tape=10,60,61",
    "working_memory=59,60,180,unlimited",
    f"planner={','.join(PLANNERS)}",
)


@st.composite
def sweeps(draw: st.DrawFn) -> list[Question]:
    names = draw(st.lists(st.sampled_from(AXES), min_size=1, max_size=3, unique=True))
    try:
        axes = [parse(name, PLATFORM) for name in names]
        found = [*points(axes, base(planner=draw(st.sampled_from(list(PLANNERS)))), PLANNERS)]
    except BadInput:  # two that set the same
        return asked("steps=1,2")
    random = Random(draw(st.integers(0, 99)))
    questions = [point.question for point in found if isinstance(point.question, Question)]
    return random.sample(questions, min(len(questions), 12))


def planned(question: Question) -> Schedule | str:
    """The planner's own answer, or its refusal."""
    try:
        with without_notes():
            found = question.call(question.chain, question.platform)
    except BadInput as error:
        return str(error)
    assert isinstance(found, Schedule)
    return found


@settings(max_examples=20, deadline=None)
@given(questions=sweeps())
def test_every_answer_is_what_the_planner_alone_says(questions: list[Question]) -> None:
    for question, answer in zip(questions, sweep(questions, processes=1), strict=True):
        schedule = planned(question)
        if isinstance(schedule, str):
            assert answer.reason == schedule
            continue
        assert not answer.reason
        assert answer.makespan == makespan(schedule, question.platform)
        assert answer.makespan == simulate(schedule, question.platform).makespan
        expected = counts(schedule)
        assert (answer.forward, answer.actions) == (expected.forward, len(schedule))
        assert answer.levels is not None
        for number, level in enumerate(question.platform.levels):
            if level.ratio == 1.0 and number < len(expected.levels):
                assert answer.levels[level.name].peak == expected.levels[number].peak_bytes
        if "ram" not in answer.levels:
            assert answer.memory == 0


def test_what_a_planner_sees_alike_is_planned_once() -> None:
    made: list[int] = []

    def counting(chain: Chain, platform: Platform) -> Schedule:
        made.append(chain.length)
        return hrevolve(chain, platform)

    counting.__module__ = hrevolve.__module__
    question = Question("ours", counting, CHAIN, PLATFORM, "ram")
    capacities = "ram.capacity=200,201,210,219"
    answers = answered(capacities, "overlap=none,all", of=question)
    assert made == [30]
    assert len({answer.makespan for answer in answers[::2]}) == 1
    counting.__module__ = "somebody.else"
    answered(capacities, of=question)
    assert len(made) == 5


def test_runs_that_fail_are_asked_of_who_knows_what_comes_of_them() -> None:
    asked: list[tuple[float, int | None]] = []

    def expect(question: Question) -> tuple[Schedule, Mean]:
        asked.append((question.mtbf, question.platform.levels[0].capacity))
        if question.mtbf < 50:
            raise BadInput("it never ends")
        return hrevolve(CHAIN, question.platform), Mean(1000 / question.mtbf, 0.5)

    question = replace(base(), expect=expect)
    found = answered("mtbf=10,100,never", "ram.capacity=200,201", of=question)
    # What holds as many checkpoints may fail otherwise: each is asked for, and nothing without it.
    assert asked == [(10.0, 200), (10.0, 201), (100.0, 200), (100.0, 201)]
    assert [answer.reason for answer in found] == ["it never ends"] * 2 + [""] * 4
    plain = makespan(hrevolve(CHAIN, PLATFORM), PLATFORM)
    assert [answer.makespan for answer in found[2:]] == [10, 10, plain, plain]
    assert [answer.error for answer in found[2:]] == [0.5, 0.5, 0, 0]
    assert found[2].memory == found[4].memory
    for axis in ("ranks=2", "overlap=all"):
        (refused,) = answered("mtbf=100", axis, of=question)
        assert "alone, and without overlap" in refused.reason
    assert len(asked) == 4


def test_more_slots_and_more_bandwidth_never_cost_time() -> None:
    for axis in ("ram.slots=1,2,3,4,5,6,8,12,20,30", "nvme.bandwidth=1:100000:20"):
        seconds = [answer.makespan for answer in answered(axis)]
        assert all(after <= before * (1 + 1e-12) for before, after in pairwise(seconds))
        assert seconds[-1] < seconds[0]


def test_bytes_are_counted_as_they_are_stored() -> None:
    (answer,) = answered("nvme.ratio=0.5", "tape=off", "ram=off")
    schedule = hrevolve(CHAIN, Platform((PLATFORM.levels[1],), working_memory=60))
    assert answer.levels is not None
    assert answer.memory == 0
    half = Platform(
        (Level(name="n", capacity=400, write=Affine(0.1, 1 / 80), read=Affine(0.1, 1 / 100),
               ratio=0.5),), working_memory=60
    )  # fmt: skip
    found = counts(hrevolve(CHAIN, half)).levels[0]
    use = answer.levels["nvme"]
    assert (use.written, use.read, use.peak) == (
        20 * found.writes,
        20 * found.reads,
        20 * found.peak,
    )
    assert found.peak > counts(schedule).levels[0].peak  # it has more room for them


NVME = PLATFORM.levels[1]


@pytest.mark.parametrize(
    ("axis", "level"),
    [
        ("nvme.capacity=unlimited", replace(NVME, capacity=None)),
        ("nvme.slots=3", replace(NVME, capacity=120)),
        ("nvme.ratio=0.5", replace(NVME, ratio=0.5)),
        (
            "nvme.bandwidth=1kB/s",
            replace(NVME, write=Affine(0.1, 0.001), read=Affine(0.1, 0.001)),
        ),
        ("nvme.write.bandwidth=50", replace(NVME, write=Affine(0.1, 0.02))),
        ("nvme.read.bandwidth=50", replace(NVME, read=Affine(0.1, 0.02))),
        ("nvme.latency=2", replace(NVME, write=Affine(2, 1 / 80), read=Affine(2, 1 / 100))),
        ("nvme.write.latency=2", replace(NVME, write=Affine(2, 1 / 80))),
        ("nvme=on", NVME),
    ],
)
def test_an_axis_changes_one_thing_of_a_level(axis: str, level: Level) -> None:
    (question,) = asked(axis)
    assert question.platform == replace(
        PLATFORM, levels=(PLATFORM.levels[0], level, PLATFORM.levels[2])
    )
    assert question.chain == CHAIN


def test_slots_are_of_the_checkpoints_of_the_same_point() -> None:
    small, large = asked("nvme.slots=3", "restart=10,70")
    assert [one.platform.levels[1].capacity for one in (small, large)] == [30, 210]


def test_an_axis_changes_one_thing_of_the_chain() -> None:
    for name, value in (("steps", 7), ("advance", 3.0), ("tape", 7), ("restart", 7)):
        (question,) = asked(f"{name}={value}")
        changed: dict[str, Any] = {name: value}
        assert question.chain == replace(CHAIN, **changed)
        assert question.platform == PLATFORM
    (question,) = asked("working_memory=unlimited")
    assert question.platform == replace(PLATFORM, working_memory=None)


def test_overlap_and_ranks_are_simulated() -> None:
    schedule = hrevolve(CHAIN, PLATFORM)
    none, everything, two = answered("overlap=none,all,write_behind=2/read_ahead=1")
    assert none.makespan == makespan(schedule, PLATFORM)
    for answer, policy in ((everything, Overlap(None, None)), (two, Overlap(2, 1))):
        assert answer.makespan == simulate(schedule, PLATFORM, overlap=policy).makespan
        assert answer.makespan < none.makespan
        assert answer.memory == 200
    shared = {"tape": Shared(100.0)}
    question = Question(
        "hrevolve",
        PLANNERS["hrevolve"],
        CHAIN,
        PLATFORM,
        "ram",
        None,
        Ranks(count=1, shared=shared),
    )
    for count, answer in zip((1, 10, 100), answered("ranks=1:100:3", of=question), strict=True):
        ranks = Ranks(count=count, shared=shared)
        assert answer.makespan == simulate_ranks(schedule, PLATFORM, ranks).makespan
    behind, policy = Ranks(count=10, shared=shared), Overlap(None, None)
    (answer,) = answered("ranks=10", of=replace(question, overlap=policy))
    found = simulate_ranks(schedule, PLATFORM, behind, overlap=policy)
    assert answer.makespan == found.makespan


@pytest.mark.slow  # compiled code is loaded
def test_a_plan_for_overlap_is_carried_out_as_it_is_meant() -> None:
    made = plan(CHAIN, PLATFORM)
    assert made.overlap
    question = Question("overlapped", auto, CHAIN, PLATFORM, "ram")
    same = replace(question, planner="auto", overlap=AUTO)
    exact = replace(question, overlap=made.overlap)
    for answer in sweep([question, same, exact], processes=1):
        assert answer.makespan == made.makespan
    synchronous = replace(question, planner="auto"), replace(question, planner="auto", overlap=NONE)
    for answer in sweep(synchronous, processes=1):
        assert answer.makespan == made.synchronous
    (three,) = answered("ranks=3", of=question)
    ranks = Ranks(count=3)
    found = simulate_ranks(made, PLATFORM, ranks)
    assert three.makespan == found.makespan


@given(st.lists(st.tuples(st.none() | st.integers(0, 6), st.integers(0, 6), st.booleans())))
def test_the_front_is_what_no_other_beats(drawn: list[tuple[int | None, int, bool]]) -> None:
    answers = [
        Answer(makespan=float(seconds), memory=memory, reason="full" if refused else "")
        for memory, seconds, refused in drawn
    ]
    known = [answer for answer in answers if not answer.reason and answer.memory is not None]

    def is_best(answer: Answer) -> bool:
        return answer in known and not any(
            (other.memory or 0) <= (answer.memory or 0)
            and other.makespan <= answer.makespan
            and (other.memory, other.makespan) != (answer.memory, answer.makespan)
            for other in known
        )

    assert front(answers) == [is_best(answer) for answer in answers]


def test_ranges_grow_by_equal_factors_and_end_where_they_say() -> None:
    axis = parse("ram.capacity=1GiB:64GiB:13", PLATFORM)
    numbers = [float(value) for value in axis.values if isinstance(value, int)]
    assert len(numbers) == 13
    assert (numbers[0], numbers[-1]) == (1 << 30, 64 << 30)
    assert all(math.isclose(b / a, math.sqrt(2), rel_tol=1e-8) for a, b in pairwise(numbers))
    assert parse("steps=1:8:10", PLATFORM).values == (1, 2, 3, 4, 5, 6, 8)
    assert parse("advance=1:4:3", PLATFORM).values == (1.0, 2.0, 4.0)
    assert parse("mtbf=15m:1h:3", PLATFORM).values == (900.0, 1800.0, 3600.0)
    assert parse("mtbf=90,1.5h,never", PLATFORM).values == (90.0, 5400.0, None)
    assert parse("tape=off", PLATFORM).is_presence
    assert parse("tape=60", PLATFORM).level is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ram", "axis 'ram' is not NAME=VALUE"),
        ("=3", "is not NAME=VALUE"),
        ("disk.capacity=3", "axis disk.capacity: there is no such thing to vary"),
        ("ram.colour=3", "axis ram.colour: there is no such thing to vary"),
        ("ram.slot=3", "axis ram.slot: there is no such thing to vary; did you mean ram.slots"),
        ("stps=3", "axis stps: there is no such thing to vary; did you mean steps?"),
        ("x=3", "axis x: there is no such thing to vary; take planner, "),
        ("ram.capacity=1:2", "axis ram.capacity: '1:2' is not LOW:HIGH:COUNT"),
        ("ram.capacity=0:2:3", "axis ram.capacity: '0:2:3': a range must go from a number above 0"),
        ("ram.capacity=9:2:3", "axis ram.capacity: '9:2:3': a range must go"),
        ("ram.capacity=1:unlimited:3", "axis ram.capacity: '1:unlimited:3': a range must go"),
        ("ram.capacity=1:2:1", "axis ram.capacity: '1:2:1': a range must have 2 to"),
        ("ram.capacity=1:2:99999999", "a range must have 2 to"),
        ("ram.capacity=3,,4", "axis ram.capacity: a value is missing"),
        ("ram.capacity=many", "axis ram.capacity: 'many' is not a size"),
        ("ram.slots=-1", "axis ram.slots: '-1' is not a whole number of at least 0"),
        ("steps=0", "axis steps: '0' is not a whole number of at least 1"),
        ("steps=5,6,5", "axis steps: 5 is given twice"),
        ("nvme.bandwidth=0", "axis nvme.bandwidth: a bandwidth must be above 0"),
        ("nvme.latency=nan", "axis nvme.latency: 'nan' is not a finite number"),
        ("nvme.ratio=0,1", "axis nvme.ratio: level 'nvme': ratio = 0.0"),
        ("nvme=off,gone", "axis nvme: 'gone' is neither on nor off"),
        ("mtbf=1:never:3", "axis mtbf: '1:never:3': a range must go"),
        ("mtbf=60,1m", "axis mtbf: 60.0 is given twice"),
        ("mtbf=inf", "axis mtbf: 'inf' is not a time"),
        ("overlap=some", "axis overlap: overlap 'some' is not write_behind=N"),
        ("restart=4611686TB", "axis restart: Chain: steps = 30"),
    ],
)
def test_a_wrong_axis_is_named_with_the_rule(text: str, said: str) -> None:
    with pytest.raises(BadInput) as error:
        list(points([parse(text, PLATFORM)], base(), PLANNERS))
    assert said in str(error.value)


def test_axes_that_set_the_same_or_span_too_much_are_refused() -> None:
    for one, other in (
        ("ram.slots=1", "ram.capacity=1"),
        ("nvme.bandwidth=1", "nvme.read.bandwidth=2"),
        ("nvme=on", "nvme=off"),
    ):
        with pytest.raises(BadInput, match=rf"{other.split('=')[0]}: .* sets the same"):
            asked(one, other)
    assert len(asked("nvme.write.bandwidth=1", "nvme.read.bandwidth=2")) == 1
    with pytest.raises(BadInput, match="combinations of values"):
        asked("ram.capacity=1:100000:1000", "nvme.capacity=1:100000:1000")


def test_what_does_not_go_together_is_a_point_with_its_reason() -> None:
    axes = [parse(text, PLATFORM) for text in (f"steps=1,{2**40}", f"restart=1,{2**30}")]
    found = [point.question for point in points(axes, base(), PLANNERS)]
    assert [isinstance(question, str) for question in found] == [False, False, False, True]
    assert "2**63" in str(found[3])
    (refused,) = sweep([found[2]], processes=1)  # type: ignore[list-item]
    assert "more memory than there is" in refused.reason


def said(axis: str, seconds: list[float]) -> str:
    found = [Answer(makespan=one) if one else Answer(reason="no room") for one in seconds]
    return sentence(parse(axis, PLATFORM), found, lambda _axis, value: f"<{value}>")


def test_one_axis_is_answered_in_a_sentence() -> None:
    most = (
        "from <2> to <3> of ram.slots: 40.0% less, the largest step; beyond <4> nothing is gained"
    )
    assert said("ram.slots=1,2,3,4,5,6", [11, 10, 6, 5, 5, 5]) == most
    assert said("ram.slots=2,1", [5, 10]) == "from <1> to <2> of ram.slots: 50.0% less"
    assert said("nvme.latency=1,2", [5, 10]) == "from <1.0> to <2.0> of nvme.latency: 100.0% more"
    assert said("ram.slots=1,2,3", [5, 5, 5]) == "ram.slots makes no difference"
    assert said("ram.slots=1,2,3", [0, 5, 0]) == "only ram.slots = <2> has a schedule"
    assert said("ram.slots=1", [0]) == "no value of ram.slots has a schedule: no room"
    assert said("nvme=on,off", [4, 5]) == "with nvme: 20.0% less than without it"
    assert said("planner=a,b", [5, 4]) == "planner: <b> is the best, 20.0% less than <a>"


def test_processes_find_the_same_in_the_same_order() -> None:
    questions = asked("steps=3,9,20,30", "ram.slots=1,2,3", "nvme=on,off", "overlap=none,all")
    told: list[int] = []
    here = sweep(questions, processes=1)
    there = sweep(questions, processes=2, alone=0.0, watch=told.append)
    assert there == here
    assert sum(told) == len(questions)


@pytest.mark.campaign
@pytest.mark.parametrize(("call", "error"), [("fails", ZeroDivisionError), ("dies", RunFailed)])
def test_what_goes_wrong_in_a_process_is_told(
    call: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "theirs.py"
    module.write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)  # which other processes get, too
    import theirs  # type: ignore[import-not-found]

    question = Question(call, getattr(theirs, call), CHAIN, PLATFORM, "ram")
    with pytest.raises(error):
        sweep(asked("steps=3,4,5,6", of=question), processes=2, alone=0.0)


MODULE = """
import os, signal, time
def fails(chain, platform):
    raise ZeroDivisionError("a mistake of the planner")
def dies(chain, platform):
    os.kill(os.getpid(), signal.SIGKILL)
def waits(chain, platform):
    open(f"{os.environ['HERE']}/{os.getpid()}", "w").close()
    time.sleep(600)
"""

SCRIPT = """
import sys
sys.path.insert(0, {place!r})
import theirs
from ckio.platform.chain import Chain
from ckio.platform import Platform
from ckio.sim.sweep import Question, sweep
if __name__ == "__main__":
    chains = [Chain(steps=n, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
              for n in range(1, 9)]
    asked = [Question("waits", theirs.waits, chain, Platform(()), "") for chain in chains]
    try:
        sweep(asked, processes=2, alone=0.0)
    except KeyboardInterrupt:
        sys.exit(77)
"""


@pytest.mark.campaign
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 77), (signal.SIGKILL, -9)])
def test_no_process_is_left_behind(number: int, status: int, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(MODULE)
    (tmp_path / "script.py").write_text(SCRIPT.format(place=str(tmp_path)))
    here = tmp_path / "here"
    here.mkdir()
    words = [sys.executable, str(tmp_path / "script.py")]
    with subprocess.Popen(words, env={**os.environ, "HERE": str(here)}) as process:
        _until(lambda: len(list(here.iterdir())) == 2)
        process.send_signal(number)
        assert process.wait(60) == status
    for path in here.iterdir():
        _until(functools.partial(_is_gone, int(path.name)))


def _is_gone(process: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return True


def _until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)
