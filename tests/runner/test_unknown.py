"""A run that does not know its end does what it would have done, had it known."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import digest

from ckio.actions import Action, Advance, Key, Kind, Read, Write
from ckio.actions.columns import Actions
from ckio.backends.base import Backend
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.errors import BadInput, IllegalAction, MissingCheckpoint, RunFailed
from ckio.model import sizes_of
from ckio.models.burgers import Burgers
from ckio.planners.unknown import Follower, Online, online
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import VirtualClock
from ckio.runner import run
from ckio.runner.unknown import AT_ONCE, run_to_end
from ckio.schedule import Schedule
from ckio.schedule.replay import validate
from ckio.schedule.timeline import Event
from ckio.sim.engine import simulate
from ckio.testing import CountingModel, Throttled

from .failing import Forgetful

CHAIN = Chain(steps=None, advance=1.0, record=1.5, reverse=2.5, restart=100, tape=50, adjoint=70)
NINE = CHAIN.with_steps(9)


def platform(
    *slots: int | None, price: float = 1.0, restart: int = CHAIN.restart, tape: int = CHAIN.tape
) -> Platform:
    """Levels of so many slots, the farther the dearer; room for the tape of one step."""
    levels = (
        Level(
            name=f"level{number}",
            capacity=None if many is None else many * restart,
            write=Affine(number * price),
            read=Affine(number * price),
        )
        for number, many in enumerate(slots)
    )
    return Platform(tuple(levels), working_memory=tape)


ONE = platform(4)
SLOTS = ((1,), (4,), (None,), (2, None), (2, 4), (2, 3, None))


class Ending(CountingModel):
    """A program that ends where its chain does, however far it is asked to go."""

    def advance(self, begin: int, end: int, /) -> int:
        end = min(end, self.chain.length)
        return super().advance(begin, end) if begin < end else begin


def to_end(
    model: CountingModel | None = None,
    *levels: Backend,
    rule: Online | None = None,
    watch: Callable[[Event], None] | None = None,
) -> Schedule:
    rule = rule or Online(CHAIN, ONE)
    return run_to_end(rule, model or Ending(NINE), levels or [Ram()], watch=watch)[0]


def forward(schedule: Schedule) -> Iterator[tuple[int, Action]]:
    """What is done with the levels before the end is reached, and how far the chain was then."""
    reached = 0
    for action in schedule.actions:
        if reached == schedule.chain.length:
            return
        match action:
            case Advance(_, end):
                reached = max(reached, end)
            case _:
                yield reached, action


def back(schedule: Schedule) -> list[Action]:
    """What is done from there on."""
    actions = list(schedule.actions)
    turn = next(n for n, a in enumerate(actions, 1) if getattr(a, "end", 0) == schedule.chain.steps)
    return actions[turn:]


@pytest.mark.parametrize("slots", SLOTS, ids=str)
@pytest.mark.parametrize(
    "steps", [1, 17, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 64, 65, 90))]
)
def test_it_does_what_the_planner_would_have_planned_as_it_is_simulated(
    slots: tuple[int | None, ...], steps: int
) -> None:
    machine, chain, clock = platform(*slots), CHAIN.with_steps(steps), VirtualClock()
    clock.sleep(1024.0)  # time begins with the first action
    rams, seen = [Ram(capacity=level.capacity) for level in machine.levels], list[Event]()
    levels = [Throttled(*pair, clock) for pair in zip(rams, machine.levels, strict=True)]
    schedule, timeline = run_to_end(
        Online(CHAIN, machine), Ending(chain, clock), levels, clock=clock, watch=seen.append
    )
    assert schedule.chain == chain
    assert timeline == simulate(schedule, machine)
    assert seen == list(timeline)
    assert validate(schedule, machine).adjoint == 0
    assert not any(ram.keys() for ram in rams)
    if steps == 1:  # which has nothing to be planned
        return
    planned = online(chain, machine)
    assert list(forward(schedule)) == list(forward(planned))
    last = Key(Kind.RESTART, steps)
    if not any(Write(last, level) in schedule.actions for level in range(3)):  # in vain
        assert back(schedule) == back(planned)
        assert schedule.note == planned.note


# --- a real model on real levels

GRID = 24
BURGERS = Chain(steps=None, advance=1.0, record=1.3, reverse=2.0, **sizes_of(Burgers(grid=GRID)))


def opened(kinds: Iterable[type[Backend]], machine: Platform, path: Path) -> list[Backend]:
    made = list[Backend]()
    for number, (kind, level) in enumerate(zip(kinds, machine.levels, strict=True)):
        place = [] if kind is Ram else [path / f"{number}{'.h5' * (kind is Hdf5)}"]
        made.append(kind(*place, capacity=level.capacity))  # type: ignore[call-arg]
    return made


@pytest.mark.parametrize("time", [0.003, 0.1, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("slots", "kinds"),
    [((3,), [Directory]), ((None,), [Hdf5]), ((2, 3, None), [Ram, Directory, Hdf5])],
    ids=["directory", "hdf5", "all"],
)
def test_the_gradient_is_that_of_the_run_that_knows_its_steps(
    slots: tuple[int | None, ...], kinds: list[type[Backend]], time: float, tmp_path: Path
) -> None:
    machine = platform(*slots, price=0.5, restart=BURGERS.restart, tape=BURGERS.tape)
    expected, model = Burgers(grid=GRID, time=time), Burgers(grid=GRID, time=time)
    steps = expected.record(0, 1000)
    expected.reverse(0, steps)
    levels = opened(kinds, machine, tmp_path)
    schedule = to_end(model, *levels, rule=Online(BURGERS, machine))
    assert schedule.chain.steps == steps
    assert digest(model) == digest(expected)
    for again in (schedule, online(schedule.chain, machine)):
        model = Burgers(grid=GRID, time=time)
        run(again, machine, model, levels)  # the same levels, which the run has left empty
        assert digest(model) == digest(expected)
    for level in levels:
        level.close()


def test_a_program_without_a_step_leaves_nothing_behind(tmp_path: Path) -> None:
    class Done(Burgers):
        def finished(self, state: Any, i: int, /) -> bool:
            return True

    machine = platform(3, restart=BURGERS.restart, tape=BURGERS.tape)
    model, level = Done(grid=GRID), Directory(tmp_path)
    with pytest.raises(RunFailed, match=r"finished at step 0.* no step"):
        to_end(model, level, rule=Online(BURGERS, machine))
    assert not list(level.keys())
    assert model.functional > 0
    level.close()


# --- what stands in the way


class _Stop(Exception):
    pass


@pytest.mark.parametrize("slots", [(4,), (2, 3, None)])
def test_the_watcher_can_stop_a_program_that_never_finishes(
    slots: tuple[int | None, ...], tmp_path: Path
) -> None:
    machine, model = platform(*slots), CountingModel(CHAIN.with_steps(10**6))
    seen, kinds, count = list[Event](), [Directory] * len(slots), 0

    def watch(event: Event) -> None:
        seen.append(event)
        if len(seen) == 60:
            raise _Stop

    levels = opened(kinds, machine, tmp_path)
    with pytest.raises(_Stop):
        to_end(model, *levels, rule=Online(CHAIN, machine), watch=watch)
    advances = [event.action for event in seen if isinstance(event.action, Advance)]
    assert max(action.end - action.begin for action in advances) <= AT_ONCE
    for level in levels:
        level.close()
    for level in opened(kinds, machine, tmp_path):
        for key in list(level.keys()):
            with CountingModel(model.chain).load(key, level.layout(key)) as buffers:
                level.read(key, buffers)
            count += 1
        level.close()
    assert count


HUGE_TAPE = replace(CHAIN, tape=1 << 50)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model: run_to_end(Online(CHAIN, ONE), model, []), "0 open levels .* 1"),
        (
            lambda model: to_end(model, rule=Online(replace(CHAIN, restart=101), platform(4))),
            "101 bytes for a restart checkpoint; the model's has 100",
        ),
        (lambda model: to_end(model, Ram(capacity=250)), "'level0' has no space"),
        (
            lambda model: to_end(
                Ending(HUGE_TAPE.with_steps(9)),
                rule=Online(HUGE_TAPE, platform(4, tape=1 << 50)),
            ),
            "memory for the tape of a step",
        ),
    ],
)
def test_what_cannot_be_performed_is_refused_before_the_start(call: Any, words: str) -> None:
    model = Ending(NINE)
    with pytest.raises(BadInput, match=words):
        call(model)
    assert model.state == 0


@pytest.mark.parametrize("kind", [Kind.RESTART, Kind.TAPE])
def test_what_an_earlier_run_left_is_refused(kind: Kind) -> None:
    model, level, left = Ending(NINE), Ram(), Key(kind, 77)
    level.write(left, model.layout(left), [model._bytes(left).data])
    with pytest.raises(BadInput, match=rf"level 'level0' already holds {left}"):
        to_end(model, level)
    assert model.state == 0


@dataclass(frozen=True)
class Odd(Online):
    """A rule that reads something at step 5, or nothing, and does not look ahead."""

    wanted: int | None = None

    def follow(self, step: int = 0, stored: Sequence[Iterable[Key]] = (), /) -> Follower:
        wanted = self.wanted

        class Oddly(Follower):
            def at(self, step: int, /) -> Actions:
                if step == 5 and wanted is not None:
                    return Actions.of([Read(Key(Kind.RESTART, wanted), 0)])
                return super().at(step)

            def until(self, step: int, /) -> int:
                return 0

        return Oddly(self._levels, step, stored)


@pytest.mark.parametrize(
    ("wanted", "state", "message"),
    [
        (4, 5, r"^#\d+ Read\(x_4, level 0\): it is not stored there"),
        (0, 0, r"^#\d+ Advance\[5, 6\): needs the state x_5; the state is x_0"),
    ],
)
def test_what_is_illegal_is_refused_before_it_is_done(
    wanted: int, state: int, message: str
) -> None:
    model, seen = Ending(NINE), list[Event]()
    with pytest.raises(IllegalAction, match=message):
        to_end(model, rule=Odd(CHAIN, platform(2), wanted), watch=seen.append)
    assert model.state == state
    assert Advance(4, 5) in [event.action for event in seen[-2:]]


def test_a_rule_that_does_not_look_ahead_is_asked_at_every_step() -> None:
    schedule = to_end(Ending(CHAIN.with_steps(30)), rule=Odd(CHAIN, ONE))
    planned = online(schedule.chain, ONE)
    assert list(forward(schedule)) == list(forward(planned))


@pytest.mark.parametrize("reached", [None, -1, 10**9, 2.0, True, np.ones((3, 2))], ids=str)
def test_a_model_that_does_not_say_where_it_stands_is_told_to(reached: object) -> None:
    class Vague(Ending):
        def advance(self, begin, end, /):  # type: ignore[no-untyped-def]
            super().advance(begin, end)
            return reached

    words = r"an array of shape \(3, 2\)" if isinstance(reached, np.ndarray) else repr(reached)
    with pytest.raises(RunFailed, match=rf"advance .* returned {words}; .* return the step"):
        to_end(Vague(NINE))


class Moody(Ending):
    """A program that takes no step after it has been at its end."""

    turned = False

    def advance(self, begin: int, end: int, /) -> int:
        if self.turned:
            return begin
        self.turned = (reached := super().advance(begin, end)) < end
        return reached


@dataclass(eq=False)
class Broken(Ending):
    """A model that raises at one of its methods."""

    error: Exception
    method: str

    def __post_init__(self) -> None:
        super().__init__(NINE)

    def advance(self, begin: int, end: int, /) -> int:
        self.fail("advance", end > 5)
        return super().advance(begin, end)

    def reverse(self, begin: int, end: int, /) -> None:
        self.fail("reverse", begin < 5)
        super().reverse(begin, end)

    def fail(self, method: str, now: bool) -> None:
        if method == self.method and now:
            raise self.error


DIVISION, DEEP = ZeroDivisionError("by depth"), BadInput("too deep")


@pytest.mark.parametrize(
    ("model", "level", "error", "words"),
    [
        (Moody(CHAIN.with_steps(40)), Ram(), RunFailed, r"Advance\[.*finished at step"),
        (Broken(DIVISION, "advance"), Ram(), RunFailed, r"Advance\[.*: .*by depth"),
        (Broken(DIVISION, "reverse"), Ram(), RunFailed, r"Reverse\[.*: .*by depth"),
        (Broken(DEEP, "advance"), Ram(), BadInput, r"Advance\[.*: too deep"),
        (Broken(DEEP, "reverse"), Ram(), BadInput, r"Reverse\[.*: too deep"),
        (None, Forgetful(), MissingCheckpoint, r"Read\(x_\d, level 0\) on 'level0': x_"),
    ],
)
def test_an_error_names_the_action(
    model: CountingModel | None, level: Ram, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=rf"^#\d+ {words}") as caught:
        to_end(model, level)
    assert str(caught.value).startswith(f"#{caught.value.action} ")  # type: ignore[attr-defined]
    assert caught.value.__cause__ in (None, DIVISION)
    assert getattr(caught.value, "level", None) == (0 if "level0" in words else None)


def test_memory_for_the_rule_is_there_before_the_start_and_disks_grow(tmp_path: Path) -> None:
    reserved: list[dict[int, int]] = []

    class Asked(Ram):
        def reserve(self, sizes, /):  # type: ignore[no-untyped-def]
            reserved.append(dict(sizes))
            super().reserve(sizes)

    class Huge(Directory):
        def reserve(self, sizes, /):  # type: ignore[no-untyped-def]
            raise AssertionError("a run may be short, and its disk large")

    machine = platform(2, 4, None)
    levels = [Asked(capacity=200), Huge(tmp_path / "b", capacity=400), Huge(tmp_path / "c")]
    to_end(Ending(CHAIN.with_steps(50)), *levels, rule=Online(CHAIN, machine))
    assert reserved == [{100: 2}]
