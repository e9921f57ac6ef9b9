"""A run that does not know its end does what it would have done, had it known."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckio.actions import Action, Advance, Key, Kind, Read, Write
from ckio.actions.columns import Actions
from ckio.backends.base import Backend
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.errors import BadInput, IllegalAction, MissingCheckpoint, RunFailed
from ckio.model import sizes_of
from ckio.models.burgers import Burgers
from ckio.planners.online import Follower, Online, online
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

CHAIN = Chain(steps=None, advance=1.0, record=1.5, reverse=2.5, restart=100, tape=50, adjoint=70)
X0 = Key(Kind.RESTART, 0)


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

PLATFORMS = {
    "one slot": platform(1),
    "a few slots": ONE,
    "a level without end": platform(None),
    "a far level": platform(2, None),
    "a far level that fills": platform(2, 4),
    "three levels": platform(2, 3, None),
}
every_platform = pytest.mark.parametrize("machine", PLATFORMS.values(), ids=PLATFORMS)


class Ending(CountingModel):
    """A program that ends where its chain does, however far it is asked to go."""

    def advance(self, begin: int, end: int, /) -> int:
        end = min(end, self.chain.length)
        return super().advance(begin, end) if begin < end else begin


def rams(machine: Platform) -> list[Ram]:
    return [Ram(capacity=level.capacity) for level in machine.levels]


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


@pytest.mark.campaign
@every_platform
@pytest.mark.parametrize("steps", [2, 3, 17, 64, 65, 90])
def test_it_does_what_the_planner_would_have_planned(machine: Platform, steps: int) -> None:
    chain, levels = CHAIN.with_steps(steps), rams(machine)
    schedule, timeline = run_to_end(Online(CHAIN, machine), Ending(chain), levels)
    assert schedule.chain == chain
    assert timeline.actions == schedule.actions
    assert validate(schedule, machine).adjoint == 0
    assert not any(level.keys() for level in levels)
    planned = online(chain, machine)
    assert list(forward(schedule)) == list(forward(planned))
    last = Key(Kind.RESTART, steps)
    if not any(Write(last, level) in schedule.actions for level in range(3)):  # in vain
        assert back(schedule) == back(planned)
        assert schedule.note == planned.note


@every_platform
@pytest.mark.parametrize("steps", [1, 2, 31, 90])
def test_its_timeline_is_that_of_simulating_what_it_did(machine: Platform, steps: int) -> None:
    clock = VirtualClock()
    levels = [
        Throttled(ram, level, clock)
        for ram, level in zip(rams(machine), machine.levels, strict=True)
    ]
    model, seen = Ending(CHAIN.with_steps(steps), clock), list[Event]()
    rule = Online(CHAIN, machine)
    schedule, timeline = run_to_end(rule, model, levels, clock=clock, watch=seen.append)
    assert timeline == simulate(schedule, machine)
    assert seen == list(timeline)


def test_time_begins_with_the_first_action() -> None:
    clock, chain = VirtualClock(), CHAIN.with_steps(9)
    clock.sleep(1000.0)
    _, timeline = run_to_end(Online(CHAIN, ONE), Ending(chain, clock), [Ram()], clock=clock)
    assert timeline[0].start == 0.0
    assert 0 < timeline.makespan < 1000


# --- a real model on real levels

GRID = 24
BURGERS = Chain(steps=None, advance=1.0, record=1.3, reverse=2.0, **sizes_of(Burgers(grid=GRID)))


def opened(kinds: str, machine: Platform, path: Path) -> list[Backend]:
    make = {
        "ram": lambda place, room: Ram(capacity=room),
        "directory": lambda place, room: Directory(place, capacity=room),
        "hdf5": lambda place, room: Hdf5(place.with_suffix(".h5"), capacity=room),
    }
    return [
        make[kind](path / f"{number}", level.capacity)
        for number, (kind, level) in enumerate(zip(kinds.split(), machine.levels, strict=True))
    ]


def digest(model: Burgers) -> tuple[float, dict[str, bytes]]:
    return model.functional, {name: array.tobytes() for name, array in model.gradient.items()}


def store_all(model: Burgers) -> int:
    """Record and reverse all of it; returns its steps."""
    steps = model.record(0, 1000)
    model.reverse(0, steps)
    return steps


@pytest.mark.parametrize("time", [0.003, 0.04, 0.1, 1.0])
@pytest.mark.parametrize(
    ("slots", "kinds"),
    [
        ((3,), "ram"),
        ((3,), "directory"),
        ((None,), "hdf5"),
        ((2, None), "ram directory"),
        ((2, 3, None), "ram directory hdf5"),
    ],
)
def test_the_gradient_is_that_of_the_run_that_knows_its_steps(
    slots: tuple[int | None, ...], kinds: str, time: float, tmp_path: Path
) -> None:
    machine = platform(*slots, price=0.5, restart=BURGERS.restart, tape=BURGERS.tape)
    expected, model = Burgers(grid=GRID, time=time), Burgers(grid=GRID, time=time)
    steps = store_all(expected)
    levels = opened(kinds, machine, tmp_path)
    schedule, _ = run_to_end(Online(BURGERS, machine), model, levels)
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
    with pytest.raises(RunFailed, match="finished at step 0; there is no step to reverse"):
        run_to_end(Online(BURGERS, machine), model, [level])
    assert not list(level.keys())
    assert model.functional > 0
    level.close()


# --- what stands in the way


class _Stop(Exception):
    pass


@every_platform
def test_the_watcher_can_stop_a_program_that_never_finishes(
    machine: Platform, tmp_path: Path
) -> None:
    seen: list[Event] = []

    def watch(event: Event) -> None:
        seen.append(event)
        if len(seen) == 60:
            raise _Stop

    levels = opened(" ".join("directory" for _ in machine.levels), machine, tmp_path)
    with pytest.raises(_Stop):
        run_to_end(
            Online(CHAIN, machine), CountingModel(CHAIN.with_steps(10**6)), levels, watch=watch
        )
    advances = [event.action for event in seen if isinstance(event.action, Advance)]
    assert max(action.end - action.begin for action in advances) <= AT_ONCE
    kept = 0
    for level in levels:
        level.close()
    for level in opened(" ".join("directory" for _ in machine.levels), machine, tmp_path):
        for key in list(level.keys()):
            with CountingModel(CHAIN.with_steps(10**6)).load(key, level.layout(key)) as buffers:
                level.read(key, buffers)
            kept += 1
        level.close()
    assert kept


def test_levels_and_backends_must_be_as_many() -> None:
    with pytest.raises(BadInput, match="0 open levels for a platform of 1"):
        run_to_end(Online(CHAIN, ONE), Ending(CHAIN.with_steps(9)), [])


def test_the_model_must_have_the_sizes_of_the_rule() -> None:
    other = replace(CHAIN, restart=99).with_steps(9)
    with pytest.raises(BadInput, match="100 bytes for a restart checkpoint; the model's has 99"):
        run_to_end(Online(CHAIN, ONE), Ending(other), [Ram()])


@pytest.mark.parametrize("left", [X0, Key(Kind.RESTART, 77), Key(Kind.TAPE, 3)])
def test_what_an_earlier_run_left_is_refused(left: Key) -> None:
    model, level = Ending(CHAIN.with_steps(9)), Ram()
    level.write(left, model.layout(left), [model._bytes(left).data])
    with pytest.raises(BadInput, match=rf"level 'level0' already holds {left}"):
        run_to_end(Online(CHAIN, ONE), model, [level])
    assert model.state == 0


def test_too_little_memory_is_seen_before_the_start() -> None:
    model = Ending(CHAIN.with_steps(9))
    with pytest.raises(BadInput, match="level 'level0' has no room for what this rule may store"):
        run_to_end(Online(CHAIN, ONE), model, [Ram(capacity=250)])
    assert model.state == 0


def test_a_tape_beyond_the_memory_of_the_machine_is_seen_before_the_start() -> None:
    chain = replace(CHAIN, tape=1 << 50)
    with pytest.raises(BadInput, match="holds the tape of a step in memory"):
        run_to_end(Online(chain, platform(4, tape=1 << 50)), Ending(chain.with_steps(9)), [Ram()])


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

        return Oddly(self.levels, step, stored)


@pytest.mark.parametrize(
    ("wanted", "stands", "message"),
    [
        (4, 5, r"^#\d+ Read\(x_4, level 0\): it is not stored there"),
        (0, 0, r"^#\d+ Advance\[5, 6\): needs the state x_5; the state is x_0"),
    ],
)
def test_what_is_illegal_is_refused_before_it_is_done(
    wanted: int, stands: int, message: str
) -> None:
    model, seen = Ending(CHAIN.with_steps(9)), list[Event]()
    with pytest.raises(IllegalAction, match=message):
        run_to_end(Odd(CHAIN, platform(2), wanted), model, [Ram()], watch=seen.append)
    assert model.state == stands
    assert Advance(4, 5) in [event.action for event in seen[-2:]]


def test_what_is_illegal_on_the_way_back_is_counted_from_the_start() -> None:
    class Lost(Online):
        def finish(self, steps: int, stored: Sequence[Iterable[Key]], /) -> Schedule:
            return Schedule(self.chain.with_steps(steps), [Advance(steps - 1, steps)])

    seen: list[Event] = []
    with pytest.raises(IllegalAction, match=r"needs the state x_8; the state is x_9") as e:
        run_to_end(Lost(CHAIN, ONE), Ending(CHAIN.with_steps(9)), [Ram()], watch=seen.append)
    assert str(e.value).startswith(f"#{len(seen)} ")


def test_a_rule_that_does_not_look_ahead_is_asked_at_every_step() -> None:
    schedule, _ = run_to_end(Odd(CHAIN, ONE), Ending(CHAIN.with_steps(30)), [Ram()])
    planned = online(schedule.chain, ONE)
    assert list(forward(schedule)) == list(forward(planned))


@pytest.mark.parametrize(
    ("reached", "words"),
    [
        *((value, repr(value)) for value in (None, -1, 10**9, 2.0, True)),
        (np.ones((3, 2)), r"an array of shape \(3, 2\)"),
    ],
    ids=str,
)
def test_a_model_that_does_not_say_where_it_stands_is_told_to(reached: object, words: str) -> None:
    class Vague(Ending):
        def advance(self, begin, end, /):  # type: ignore[no-untyped-def]
            super().advance(begin, end)
            return reached

    with pytest.raises(
        RunFailed, match=rf"advance from .* returned {words}; it must return the step"
    ):
        run_to_end(Online(CHAIN, ONE), Vague(CHAIN.with_steps(9)), [Ram()])


def test_a_model_that_finishes_earlier_on_the_way_back_is_reported() -> None:
    class Moody(Ending):
        turned = False

        def advance(self, begin: int, end: int, /) -> int:
            if self.turned:
                return begin
            self.turned = (reached := super().advance(begin, end)) < end
            return reached

    with pytest.raises(RunFailed, match=r"^#\d+ Advance\[\d+, \d+\): the model finished at step"):
        run_to_end(Online(CHAIN, ONE), Moody(CHAIN.with_steps(40)), [Ram()])


@pytest.mark.parametrize("error", [ZeroDivisionError("by depth"), BadInput("too deep")])
@pytest.mark.parametrize("move", ["advance", "reverse"])
def test_what_a_model_raises_names_the_action(error: Exception, move: str) -> None:
    class Broken(Ending):
        def advance(self, begin: int, end: int, /) -> int:
            return self.fail() if move == "advance" and end > 5 else super().advance(begin, end)

        def reverse(self, begin: int, end: int, /) -> None:
            return self.fail() if move == "reverse" and begin < 5 else super().reverse(begin, end)

        def fail(self) -> Any:
            raise error

    with pytest.raises(
        (RunFailed, BadInput), match=rf"^#\d+ {move.title()}\[.*: .*deep|depth"
    ) as e:
        run_to_end(Online(CHAIN, ONE), Broken(CHAIN.with_steps(9)), [Ram()])
    assert error in (e.value, e.value.__cause__)
    assert str(e.value).startswith(f"#{e.value.action} ")


def test_a_storage_error_names_the_level_and_the_action() -> None:
    class Forgetful(Ram):
        def read(self, key, into, /):  # type: ignore[no-untyped-def]
            raise MissingCheckpoint(f"{key} is gone")

    with pytest.raises(
        MissingCheckpoint, match=r"^#\d+ Read\(x_\d, level 0\) on 'level0': x_"
    ) as e:
        run_to_end(Online(CHAIN, ONE), Ending(CHAIN.with_steps(9)), [Forgetful()])
    assert e.value.level == 0
    assert str(e.value).startswith(f"#{e.value.action} ")


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
    run_to_end(Online(CHAIN, machine), Ending(CHAIN.with_steps(50)), levels)
    assert reserved == [{100: 2}]
