"""Schedules are performed an action at a time, stop where they are told to, and say where."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckio.actions import Advance, Buffers, Key, Kind, Layout, Read, Record, Reverse, Write
from ckio.backends.ram import Ram
from ckio.errors import (
    BadInput,
    CkioError,
    MissingCheckpoint,
    RunFailed,
    Stopped,
    UnsupportedKind,
)
from ckio.planners.binomial import revolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import VirtualClock
from ckio.runner import perform, run
from ckio.runner.perform import PIECE, where
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.timeline import Event
from ckio.testing import CountingModel
from ckio.testing.strategies import legal_schedules
from tests.runner.throttled import opened, roomy
from tests.single import perform_one

CHAIN = Chain(steps=9, advance=1.0, record=1.5, reverse=2.5, restart=100, tape=50, adjoint=70)
PLATFORM = Platform((Level(name="ram", capacity=300),), working_memory=50)
X0, X2 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 2)


def test_perform_gives_each_event_as_it_has_happened() -> None:
    schedule, clock = revolve(CHAIN, PLATFORM), VirtualClock()
    model, machine = CountingModel(CHAIN, clock), Machine(CHAIN, PLATFORM)
    levels = opened(schedule, PLATFORM, clock)
    for event in perform(schedule, PLATFORM, model, levels, clock=clock):
        machine.apply(event.action)
        assert event.stop == clock.now()
        assert (model.state, model.adjoint) == (machine.state, machine.adjoint)
        assert set(levels[0].keys()) == machine.stored[0]
    assert machine.count == len(schedule)


def test_perform_checks_when_it_is_called() -> None:
    with pytest.raises(BadInput, match="0 open levels"):
        perform(revolve(CHAIN, PLATFORM), PLATFORM, CountingModel(CHAIN), [])


def test_whoever_leaves_the_loop_leaves_the_model_there() -> None:
    schedule, model = revolve(CHAIN, PLATFORM), CountingModel(CHAIN)
    for event in perform(schedule, PLATFORM, model, [Ram()]):
        if event.action == Reverse(5, 6):
            break
    assert model.adjoint == 5


@pytest.mark.slow
@settings(max_examples=30)
@given(legal_schedules())
def test_an_action_alone_does_what_it_does_in_a_run(case: tuple[Schedule, Platform]) -> None:
    schedule, platform = case[0], roomy(case[1])
    one, all_of_them = VirtualClock(), VirtualClock()
    levels, model = opened(schedule, platform, one), CountingModel(schedule.chain, one)
    others = opened(schedule, platform, all_of_them)
    for event in perform(
        schedule, platform, CountingModel(schedule.chain, all_of_them), others, clock=all_of_them
    ):
        assert perform_one(event.action, model, levels) == event.nbytes
        assert one.now() == event.stop


def test_an_action_is_named_with_its_level() -> None:
    assert where(Read(X2, 0), PLATFORM) == "Read(x_2, level 0) on 'ram'"
    assert where(Advance(0, 2), PLATFORM) == "Advance[0, 2)"


class _Forgetful(Ram):
    """A level that loses what it is given."""

    def read(self, key: Key, into: Buffers, /) -> int:
        raise MissingCheckpoint(f"{key} is gone")


class _Broken(CountingModel):
    """A model that raises whatever it was given when it reverses step 5."""

    def __init__(self, error: Exception) -> None:
        super().__init__(CHAIN)
        self.error = error

    def reverse(self, begin: int, end: int, /) -> None:
        if begin == 5:
            raise self.error
        super().reverse(begin, end)


class _Short(CountingModel):
    """A model that never gets as far as it is asked to."""

    def advance(self, begin: int, end: int, /) -> int:
        return super().advance(begin, end) - 1


def failed_at(model: CountingModel, *levels: Ram) -> CkioError:
    with pytest.raises(CkioError) as caught:
        run(revolve(CHAIN, PLATFORM), PLATFORM, model, levels or [Ram()])
    return caught.value


def test_errors_carry_the_numbers_of_the_action_and_of_the_level() -> None:
    actions = list(revolve(CHAIN, PLATFORM).actions)
    first_read = next(n for n, action in enumerate(actions) if isinstance(action, Read))
    fifth = actions.index(Reverse(5, 6))
    gone = failed_at(CountingModel(CHAIN), _Forgetful())
    assert isinstance(gone, MissingCheckpoint)
    assert (gone.action, gone.level) == (first_read, 0)
    assert failed_at(_Broken(ZeroDivisionError())).action == fifth
    assert failed_at(_Broken(BadInput("too deep"))).action == fifth
    assert failed_at(_Short(CHAIN)).action == actions.index(
        next(action for action in actions if isinstance(action, Advance))
    )
    no_tape = failed_at(_Broken(UnsupportedKind("no such tape")))
    assert isinstance(no_tape, UnsupportedKind)
    assert (no_tape.action, no_tape.level) == (fifth, None)
    assert failed_at(CountingModel(CHAIN), Ram(capacity=200)).action is None


class _After:
    """Says stop when it has been asked so many times; notes when it was, on a clock."""

    def __init__(self, count: float, clock: VirtualClock | None = None) -> None:
        self.left, self.clock = count, clock or VirtualClock()
        self.asked: list[float] = []

    def __call__(self) -> bool:
        self.asked.append(self.clock.now())
        self.left -= 1
        return self.left <= 0


@pytest.mark.slow
@settings(max_examples=60)
@given(legal_schedules(), st.integers(1, 60))
def test_a_run_that_is_stopped_says_where_the_model_stands(
    case: tuple[Schedule, Platform], count: int
) -> None:
    schedule, platform = case[0], roomy(case[1])
    clock = VirtualClock()
    model, levels = CountingModel(schedule.chain, clock), opened(schedule, platform, clock)
    done: list[Event] = []
    stop = _After(count)
    stopped = None
    try:
        run(schedule, platform, model, levels, clock=clock, watch=done.append, stop=stop)
    except Stopped as error:
        stopped = error
    if stopped is None:
        assert len(done) == len(schedule)
        assert len(stop.asked) < count
    else:
        assert (stopped.state, stopped.adjoint) == (model.state, model.adjoint)
        assert stopped.action == len(done)
        assert len(stop.asked) == count


def test_a_stop_within_an_action_leaves_it_done_in_part() -> None:
    schedule = Schedule(CHAIN, [Record(0, 9), Reverse(2, 9)])
    model = CountingModel(CHAIN)
    platform = replace(PLATFORM, working_memory=None)
    with pytest.raises(Stopped, match=r"^stopped before action #1 of 2: .* the adjoint is at 8$"):
        run(schedule, platform, model, [Ram()], stop=_After(3))
    assert (model.adjoint, model.tape) == (8, (0, 8))
    model = CountingModel(CHAIN)
    with pytest.raises(Stopped, match="the state is x_1, the adjoint is at 9") as caught:
        run(Schedule(CHAIN, [Advance(0, 9)]), platform, model, [Ram()], stop=_After(2))
    assert (caught.value.action, model.state) == (0, 1)


@pytest.mark.parametrize("seconds", [2**-12, 2**-6, 0.25, 2.0])
def test_stop_is_asked_again_soon_within_long_actions(seconds: float) -> None:
    chain = replace(CHAIN, steps=4096, advance=seconds, record=seconds, reverse=seconds)
    schedule = Schedule(
        chain,
        [Write(X0, 0), Advance(0, 4096), Read(X0, 0), Record(0, 4096), Reverse(0, 4096)],
    )
    platform, clock = replace(PLATFORM, working_memory=None), VirtualClock()
    stop = _After(float("inf"), clock)
    model = CountingModel(chain, clock)
    timeline = run(schedule, platform, model, [Ram()], clock=clock, stop=stop)
    assert [event.stop for event in timeline] == [
        seconds * steps for steps in (0, 4096, 4096, 8192, 12288)
    ]
    gaps = [after - before for before, after in itertools.pairwise(stop.asked)]
    gaps.remove(4096 * seconds)  # the Record, which nobody can cut
    assert max(gaps) <= max(seconds, PIECE)
    # Asked more often than is of use only while the pieces grow, four times from one to the next.
    pieces = 2 * 4096 / max(1, PIECE / seconds)
    assert len(stop.asked) <= pieces + 2 * 8 + len(schedule)


def test_pieces_shrink_again_where_steps_become_slower() -> None:
    slow = [2**-10] * 2048 + [1.0] * 2048
    chain = replace(CHAIN, steps=4096, advance=slow)
    clock = VirtualClock()
    stop = _After(float("inf"), clock)
    schedule = Schedule(chain, [Advance(0, 2048), Advance(2048, 4096)])
    run(schedule, PLATFORM, CountingModel(chain, clock), [Ram()], clock=clock, stop=stop)
    gaps = [after - before for before, after in itertools.pairwise(stop.asked)]
    assert gaps.count(1.0) > 1500
    assert sum(gap > 1.0 for gap in gaps) == 1


def test_a_step_that_is_fast_promises_nothing_of_a_hundred_others() -> None:
    chain = replace(CHAIN, steps=101, advance=[2**-20] + [0.25] * 100)
    clock = VirtualClock()
    stop = _After(float("inf"), clock)
    schedule = Schedule(chain, [Advance(0, 101)])
    run(schedule, PLATFORM, CountingModel(chain, clock), [Ram()], clock=clock, stop=stop)
    assert max(after - before for before, after in itertools.pairwise(stop.asked)) <= 1.0


def test_what_stop_raises_ends_the_run_as_it_is() -> None:
    class Alarm:
        count = 0

        def __call__(self) -> bool:
            self.count += 1
            if self.count == 2:
                raise TimeoutError("now")
            return False

    model = CountingModel(CHAIN)
    with pytest.raises(TimeoutError, match=r"^now$"):
        run(Schedule(CHAIN, [Advance(0, 9)]), PLATFORM, model, [Ram()], stop=Alarm())
    assert model.state == 1


def test_a_model_that_finishes_early_within_pieces_is_reported() -> None:
    class Finishing(CountingModel):
        def advance(self, begin: int, end: int, /) -> int:
            return 1 if begin == 1 else super().advance(begin, end)

    schedule, model = Schedule(CHAIN, [Advance(0, 9)]), Finishing(CHAIN)
    with pytest.raises(RunFailed, match=r"^#0 Advance\[0, 9\): the model finished at step 1"):
        run(schedule, PLATFORM, model, [Ram()], stop=_After(float("inf")))


def test_an_error_that_the_models_load_hides_is_told() -> None:
    """Else the model would not stand where everybody thinks, and its gradient be another one."""

    class Hides(CountingModel):
        @contextmanager
        def load(self, key: Key, layout: Layout, /) -> Iterator[Buffers]:
            with suppress(MissingCheckpoint), super().load(key, layout) as into:
                yield into

    class Loses(Ram):
        def read(self, key: Key, into: Buffers, /) -> int:
            raise MissingCheckpoint(f"no {key} here")

    with pytest.raises(MissingCheckpoint, match=r"#\d+ Read\(x_\d, level 0\) on 'ram': no x_"):
        run(revolve(CHAIN, PLATFORM), PLATFORM, Hides(CHAIN), [Loses()])
