"""What fails behind the program is told, costs nothing else, and leaves nothing running."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from ckio.actions import Advance, Buffers, Discard, Key, Layout, Read, Record, Write
from ckio.backends import payload
from ckio.backends.base import Backend
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.errors import (
    BadInput,
    CkioError,
    CorruptCheckpoint,
    LevelFull,
    RunFailed,
    Stopped,
    StorageError,
)
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import WallClock
from ckio.runner import overlapped as runner
from ckio.runner import perform as perform_schedule
from ckio.runner import run
from ckio.runner.channels import Channels
from ckio.runner.failover import failover
from ckio.runner.overlapped import overlapped
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Event
from ckio.testing import CountingModel, x

from .overlapping import Access, Memory, Watched, opened, perform, random_case, threads

CHAIN = Chain(steps=9, advance=1.0, record=1.5, reverse=2.5, restart=100, tape=50, adjoint=70)
RAM, FAR = Level(name="ram"), Level(name="disk", backend="directory")
OTHER = Level(name="tape", backend="directory")
PLATFORM = Platform((RAM, FAR, OTHER))
ALL = Overlap(None, None)
PATIENCE = 60.0


pytestmark = pytest.mark.usefixtures("watchdog")


def interrupt() -> None:
    """Ctrl-C, for the program, which may be waiting."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


class Fails:
    """Raises at the k-th access of a sort, to any of the levels that share this."""

    def __init__(self, access: Access, k: int, error: Exception) -> None:
        self.access, self.left, self.error = access, k, error
        self.key: Key | None = None
        self._turn = threading.Lock()

    def __call__(self, access: Access, key: Key) -> None:
        with self._turn:
            if access is self.access:
                self.left -= 1
                if self.left == 0:
                    self.key = key
                    raise self.error


def inject(seed: int, access: Access, k: int, error: Exception) -> CkioError | None:
    """A random case with a fault; returns what it raised, or None where it was not reached."""
    schedule, platform, overlap = random_case(seed)
    backends, fails = opened(schedule, platform), Fails(access, k, error)
    for backend in backends:
        if isinstance(backend, Watched):
            backend.before = fails
    raised = None
    try:
        perform(schedule, platform, backends, overlap)
    except CkioError as caught:
        raised = caught
    assert threads() == []
    for level, backend in zip(platform.levels, backends, strict=True):
        if isinstance(backend, Memory):
            assert (backend.capacity, backend.lent) == (level.capacity, 0)
    assert (raised is None) or (fails.key is not None)
    if raised is None:  # only a read ahead that the program did not come to may fail unseen
        assert fails.key is None
        return None
    assert raised.action is not None
    failed = schedule.actions[raised.action]
    assert isinstance(failed, access)
    assert failed.key == fails.key
    assert f"#{raised.action} {failed} on {platform.levels[failed.level].name!r}: " in str(raised)
    _check_what_is_left(schedule, platform, backends, failed)
    return raised


def _check_what_is_left(
    schedule: Schedule, platform: Platform, backends: list[Memory | Watched], failed: object
) -> None:
    """All of the other channels that the program did is done; all that is listed can be read."""
    model = CountingModel(schedule.chain)
    assert isinstance(failed, Write | Read | Discard)
    for backend in backends:
        plain = backend.backend if isinstance(backend, Watched) else backend
        for key in plain.keys():  # noqa: SIM118
            into = bytearray(schedule.chain.nbytes(key))
            plain.read(key, [memoryview(into)])
            assert into == model._bytes(key).tobytes()


@pytest.mark.parametrize(
    "seeds", [range(25), pytest.param(range(25, 2000), marks=pytest.mark.slow)], ids=len
)
def test_an_error_names_the_transfer_and_keeps_its_class_if_it_is_one_of_ours(seeds: range) -> None:
    count = 0
    for seed in seeds:
        random = Random(seed)
        access, k = random.choice((Write, Read, Discard)), random.randint(1, 8)
        full, other = LevelFull("no room"), ZeroDivisionError("by depth")
        raised = inject(seed, access, k, full)
        assert raised in (None, full), f"seed {seed}"
        assert raised is None or full.level is not None, f"seed {seed}"
        raised = inject(seed, access, k, other)
        assert raised is None or isinstance(raised, RunFailed), f"seed {seed}"
        assert raised is None or raised.__cause__ is other, f"seed {seed}"
        assert raised is None or "ZeroDivisionError: by depth" in str(raised), f"seed {seed}"
        count += raised is not None
    assert count > 5


class Moves(CountingModel):
    """A model that notes how far it has come, and may do something when it is there."""

    def __init__(self, chain: Chain = CHAIN, at: int = -1, do: object = None) -> None:
        super().__init__(chain)
        self.at, self.do, self.done = at, do, 0

    def advance(self, begin: int, end: int, /) -> int:
        if begin == self.at:
            self.do()  # type: ignore[operator]
        self.done = super().advance(begin, end)
        return self.done


def go(actions: list[object], levels: list[Backend], model: CountingModel, overlap=ALL) -> None:  # type: ignore[no-untyped-def]
    platform = Platform(PLATFORM.levels[: len(levels)])
    list(overlapped(Schedule(CHAIN, actions), platform, model, levels, overlap))  # type: ignore[arg-type]


def fails(error: BaseException, *, on: Key, access: Access = Write) -> Watched:
    def before(sort: Access, key: Key) -> None:
        if (sort, key) == (access, on):
            raise error

    return Watched(Ram(), before)


def test_a_write_that_fails_is_told_at_the_next_action_on_that_level() -> None:
    """The others go on, and what is staged there is written before it is told."""
    failing, other = fails(LevelFull("full"), on=x(0)), Watched(Ram())
    model = Moves(at=2, do=lambda: _until(lambda: failing.log))
    actions = [Write(x(0), 1), Advance(0, 2), Write(x(2), 2), Advance(2, 4), Write(x(4), 2)]
    actions += [Advance(4, 6), Write(x(6), 1), Advance(6, 7)]
    with pytest.raises(LevelFull, match=r"^#0 Write\(x_0, level 1\) on 'disk': full$") as e:
        go(actions, [Ram(), failing, other], model)
    assert (e.value.action, e.value.level) == (0, 1)
    assert model.done == 6
    assert set(other.keys()) == {x(2), x(4)}
    assert list(failing.keys()) == []


def _until(condition: object) -> None:
    pause = threading.Event()
    for _ in range(6000):
        if condition():  # type: ignore[operator]
            return
        pause.wait(0.01)
    raise AssertionError("it did not come to that")


def _interrupted() -> bool:
    """Whether the program knows of the interrupt: its channels begin nothing more."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        own = frame.f_locals.get("self")
        if isinstance(own, Channels) and own._halted:
            return True
        frame = frame.f_back
    return False


def test_a_failed_channel_begins_nothing_more_and_says_what_is_not_written() -> None:
    gate = threading.Event()

    def before(*_: object) -> None:
        assert gate.wait(PATIENCE)
        raise LevelFull("full")

    failing = Watched(Ram(), before)
    actions = [Write(x(0), 1), Advance(0, 2), Write(x(2), 1), Advance(2, 4), Write(x(4), 1)]
    with pytest.raises(LevelFull) as e:
        go([*actions, Advance(4, 5)], [Ram(), failing], Moves(at=4, do=gate.set))
    assert failing.log == [(Write, x(0))]
    assert e.value.__notes__ == [
        "(not written any more: Write(x_2, level 1) on 'disk', Write(x_4, level 1) on 'disk')"
    ]


def test_two_levels_may_fail() -> None:
    levels = [fails(LevelFull("full"), on=x(0)), fails(OSError("gone"), on=x(2))]
    with pytest.raises(CkioError) as e:
        go(
            [Write(x(0), 1), Advance(0, 2), Write(x(2), 2), Advance(2, 9)],
            [Ram(), *levels],
            Moves(),
        )
    told = [str(e.value), *e.value.__notes__]
    assert sum("#0 Write(x_0, level 1) on 'disk': full" in each for each in told) == 1
    assert sum("#2 Write(x_2, level 2) on 'tape': OSError: gone" in each for each in told) == 1


def test_who_waits_for_room_that_will_not_come_is_told() -> None:
    """The failed write is one of two that may be staged, and keeps its place."""
    failing, other = fails(LevelFull("full"), on=x(0)), Watched(Ram())
    actions = [Write(x(0), 1), Advance(0, 2), Write(x(2), 2), Advance(2, 4)]
    with pytest.raises(LevelFull, match=r"#0 Write\(x_0, level 1\)"):
        go(actions, [Ram(), failing, other], Moves(), Overlap(1))


def test_a_corrupt_checkpoint_that_is_read_ahead_is_told_when_it_is_needed(tmp_path: Path) -> None:
    far = Directory(tmp_path / "far")
    watched = Watched(far)

    def damage() -> None:
        _until(lambda: (Read, x(0)) in watched.log)

    def before(access: Access, _: Key) -> None:
        if access is Read:
            for path in (tmp_path / "far").iterdir():
                data = bytearray(path.read_bytes())
                place = data.find(CountingModel(CHAIN)._bytes(x(0)).tobytes())
                if place >= 0:
                    with path.open("r+b") as file:
                        file.seek(place + 3)
                        file.write(bytes([data[place + 3] ^ 1]))

    watched.before = before
    actions = [Write(x(0), 1), Advance(0, 2), Advance(2, 5), Advance(5, 7), Write(x(7), 1)]
    model = Moves(at=5, do=damage)
    with pytest.raises(CorruptCheckpoint, match=r"^#5 Read\(x_0, level 1\) on 'disk': ") as e:
        go([*actions, Read(x(0), 1)], [Ram(), watched], model, Overlap(0, 1))
    assert (e.value.action, e.value.level, model.done, model.state) == (5, 1, 7, 7)
    assert list(far.keys()) == [x(0), x(7)]
    far.close()


def test_what_the_model_raises_is_told_once_all_is_written() -> None:
    gate = threading.Event()

    def before(*_: object) -> None:
        assert gate.wait(PATIENCE)

    def broken() -> None:
        gate.set()
        raise ZeroDivisionError("by depth")

    far = Watched(Ram(), before)
    actions = [Write(x(0), 1), Advance(0, 2), Write(x(2), 1), Advance(2, 4)]
    with pytest.raises(RunFailed, match=r"^#3 Advance\[2, 4\): ZeroDivisionError: by depth$"):
        go(actions, [Ram(), far], Moves(at=2, do=broken))
    assert set(far.keys()) == {x(0), x(2)}


def test_what_the_program_copies_from_is_kept_until_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though it is written meanwhile: the next transfer has begun."""
    gate, memory = threading.Event(), Memory(capacity=1000)

    def before(_: Access, key: Key) -> None:
        if key == x(0):
            assert gate.wait(PATIENCE)

    far, lent = Watched(Ram(), before), list[int]()

    def get(_: runner.OverlappedPerformer, data: memoryview, into: Buffers) -> None:
        gate.set()
        _until(lambda: (Write, x(2)) in far.log)
        lent.append(memory.lent)
        payload.scatter(data, into)

    monkeypatch.setattr(runner.OverlappedPerformer, "get", get)
    actions = [Write(x(0), 1), Advance(0, 2), Write(x(2), 1), Read(x(0), 1)]
    schedule, platform = Schedule(CHAIN, actions), Platform((replace(RAM, capacity=1000), FAR))
    list(overlapped(schedule, platform, CountingModel(CHAIN), [memory, far], Overlap(2)))
    assert lent in ([100], [200])
    assert memory.lent == 0


def test_a_run_that_is_stopped_has_written_what_was_staged() -> None:
    far, asked = Watched(Ram()), iter([False, False, False, True])
    actions = [Write(x(0), 1), Advance(0, 1), Write(x(1), 1), Advance(1, 2)]
    schedule, platform = Schedule(CHAIN, actions), Platform((RAM, FAR))
    model = CountingModel(CHAIN)
    with pytest.raises(Stopped):
        list(overlapped(schedule, platform, model, [Ram(), far], ALL, stop=lambda: next(asked)))
    assert set(far.keys()) == {x(0), x(1)}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_an_interrupt_while_the_program_waits_lets_the_transfer_end(count: int) -> None:
    """The one that is being moved is written, whole; what is only staged is not, and is named."""

    def before(*_: object) -> None:
        _until(lambda: memory.lent == 100 * count)  # as many are staged as may be
        interrupt()
        _until(_interrupted)

    far, memory = Watched(Ram(), before), Memory(capacity=1000)
    platform = Platform((replace(RAM, capacity=1000), FAR))
    actions = [Write(x(0), 1), Advance(0, 2), Write(x(2), 1), Advance(2, 4), Write(x(4), 1)]
    schedule = Schedule(CHAIN, actions)
    with pytest.raises(KeyboardInterrupt) as e:
        list(overlapped(schedule, platform, Moves(), [memory, far], Overlap(count)))
    assert far.log == [(Write, x(0))]
    assert list(far.keys()) == [x(0)]
    assert (memory.lent, memory.capacity) == (0, 1000)
    expected = ["(not written any more: Write(x_2, level 1) on 'disk')"]
    assert getattr(e.value, "__notes__", []) == (expected if count == 2 else [])


def test_an_interrupt_does_not_leave_a_thread_at_the_models_memory() -> None:
    """A direct read is under way: `load` must not end before it has."""
    order: list[str] = []

    def before(access: Access, _: Key) -> None:
        if access is Read:
            interrupt()
            _until(_interrupted)
            order.append("read")

    class Loads(CountingModel):
        def load(self, key, layout, /):  # type: ignore[no-untyped-def]
            loading = super().load(key, layout)

            class Told:
                def __enter__(self) -> Buffers:
                    return loading.__enter__()

                def __exit__(self, *error: object) -> bool | None:
                    order.append("left")
                    return loading.__exit__(*error)  # type: ignore[arg-type]

            return Told()

    far = Watched(Ram(), before)
    with pytest.raises(KeyboardInterrupt):
        go([Write(x(0), 1), Advance(0, 2), Read(x(0), 1)], [Ram(), far], Loads(CHAIN), Overlap(0))
    assert order == ["read", "left"]


def test_what_is_not_of_its_layout_is_refused_before_it_is_staged() -> None:
    class Wrong(CountingModel):
        def dump(self, key: Key, /) -> Buffers:
            return [memoryview(np.zeros(101, "u1"))]

    with pytest.raises(StorageError, match="x_0 cannot be stored: its layout has 1 fields of 100"):
        go([Write(x(0), 1)], [Ram(), far := Watched(Ram())], Wrong(CHAIN))
    assert far.log == []


# Staging memory


def test_memory_that_is_lent_is_not_there_for_checkpoints() -> None:
    level, model = Ram(capacity=250), CountingModel(CHAIN)
    loan = level.lend(100)
    level.write(x(0), model.layout(x(0)), model.dump(x(0)))
    assert (loan.memory.nbytes, level.capacity) == (100, 150)
    with pytest.raises(LevelFull, match="cannot lend 51 bytes; 50 are free"):
        level.lend(51)
    model.advance(0, 1)
    with pytest.raises(LevelFull, match="has no space for x_1"):
        level.write(x(1), model.layout(x(1)), model.dump(x(1)))
    level.give_back(loan)
    level.write(x(1), model.layout(x(1)), model.dump(x(1)))
    level.close()


def test_nothing_is_allocated_while_the_run_goes_on() -> None:
    """As many slots as the level holds are there before, and no more."""
    memory, far = Memory(capacity=500 << 10), Watched(Ram())
    chain = replace(CHAIN, restart=100 << 10, tape=100 << 10, adjoint=100 << 10)
    platform = Platform((replace(RAM, capacity=500 << 10), FAR))
    actions = [Write(x(0), 0), Write(x(0), 1)]
    for step in range(1, 9):
        actions += [Advance(step - 1, step), Write(x(step), 1)]
    schedule, model = Schedule(chain, actions), CountingModel(chain)
    times = overlapped(schedule, platform, model, [memory, far], ALL)
    there = memory.mapped
    assert there == 5 * (100 << 10)
    list(times)
    assert memory.mapped == there
    assert memory.most <= 500 << 10
    assert len(list(far.keys())) == 9


@pytest.mark.parametrize(("room", "staged"), [(1000, 5), (399, 1), (100, 0), (None, 8)])
def test_staging_takes_half_of_the_memory_that_is_available(
    room: int | None, staged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions = [Write(x(0), 0)]
    for step in range(1, 8):
        actions += [Advance(step - 1, step), Write(x(step), 0)]
    schedule, platform = Schedule(CHAIN, actions), Platform((FAR,))
    monkeypatch.setattr(runner, "available", lambda: room)
    made = runner.make_staging(schedule, platform, CountingModel(CHAIN), [Ram()], ALL)
    assert (made.overlap.write_behind, made.overlap.read_ahead) == (staged, 0)


def test_memory_that_cannot_be_had_is_bad_input_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    huge = replace(CHAIN, restart=1 << 50)
    schedule = Schedule(huge, [Write(x(0), 1)])

    class Huge(CountingModel):
        def dump(self, key: Key, /) -> Buffers:
            raise AssertionError

    monkeypatch.setattr(runner, "available", lambda: None)

    class Endless(Ram):
        def reserve(self, sizes: object, /) -> None:
            pass

    with pytest.raises(BadInput, match=r"no memory for staged checkpoints: .*; allow less overlap"):
        overlapped(schedule, Platform((RAM, FAR)), Huge(huge), [Ram(), Endless()], Overlap(1))


def test_an_open_level_smaller_than_planned_is_what_counts() -> None:
    memory, far = Memory(capacity=250), Watched(Ram())
    actions = [Write(x(0), 0), Write(x(0), 1), Advance(0, 1), Write(x(1), 1), Advance(1, 2)]
    actions += [Write(x(2), 1), Record(2, 3)]
    platform = Platform((replace(RAM, capacity=1000), FAR))
    list(overlapped(Schedule(CHAIN, actions), platform, CountingModel(CHAIN), [memory, far], ALL))
    assert memory.most <= 250
    assert len(list(far.keys())) == 3


class Told:
    """A `stop` that is told how long writing takes what is staged, and notes it."""

    def __init__(self, gate: threading.Event) -> None:
        self.gate, self.seconds = gate, list[float]()

    def report_backlog(self, behind: float, /) -> None:
        self.seconds.append(behind)
        if len(self.seconds) == 6:
            self.gate.set()

    def __call__(self) -> bool:
        return False


def test_who_may_stop_a_run_is_told_what_is_staged() -> None:
    """By the prices of the levels; what shares no channel is written at the same time."""
    slow, slower = (replace(each, write=Affine(latency=t)) for each, t in ((FAR, 3), (OTHER, 4)))
    actions = [Write(x(0), 1), Write(x(0), 2), Advance(0, 1), Write(x(1), 1), Advance(1, 2)]
    schedule = Schedule(CHAIN, [*actions, Advance(2, 9)])
    for performs in (run, _failover):
        gate = threading.Event()
        stop, platform = Told(gate), Platform((RAM, slow, slower))
        far = [Watched(Ram(), lambda *_, gate=gate: gate.wait(PATIENCE)) for _ in range(2)]  # type: ignore[misc]
        performs(schedule, platform, Moves(), [Ram(), *far], overlap=ALL, stop=stop)  # type: ignore[operator]
        assert stop.seconds[:5] == [0.0, 3.0, 4.0, 4.0, 6.0]


def test_what_is_written_is_not_staged_any_more() -> None:
    stop, far, memory = Told(threading.Event()), Watched(Ram()), Memory(capacity=None)
    model = Moves(at=2, do=lambda: _until(lambda: memory.lent == 0))
    actions = [Write(x(0), 1), Advance(0, 2), Advance(2, 3), Read(x(0), 1), Advance(0, 1)]
    priced = replace(FAR, write=Affine(latency=3), read=Affine(latency=5))
    schedule, platform = Schedule(CHAIN, actions), Platform((RAM, priced))
    list(overlapped(schedule, platform, model, [memory, far], Overlap(1, 0), stop=stop))
    assert stop.seconds[-1] == 0.0


def test_a_clock_that_fails_on_a_channel_ends_the_run() -> None:
    class Stops(WallClock):
        def now(self) -> float:
            if threading.current_thread() is not threading.main_thread():
                raise OSError("no time")
            return super().now()

    schedule = Schedule(CHAIN, [Write(x(0), 1), Advance(0, 9)])
    levels = [Ram(), Ram()]
    with pytest.raises(RunFailed, match=r"^#0 Write\(x_0, level 1\) on 'disk': OSError: no time$"):
        run(schedule, Platform((RAM, FAR)), Moves(), levels, overlap=ALL, clock=Stops())


# Who leaves by an error

Performs = Callable[..., object]


def _failover(*given: object, **named: object) -> None:
    failover(*given, fresh=Moves, replan=_none, warn=print, **named)  # type: ignore[arg-type]


def _none(*_: object) -> Schedule:
    raise AssertionError


@pytest.mark.parametrize("performs", [run, _failover])
@pytest.mark.parametrize("error", [KeyError, StopIteration])
def test_what_a_watcher_raises_leaves_nothing_running(
    performs: Performs, error: type[Exception]
) -> None:
    """Though the error is held, and with it the frame of the run."""
    gate = threading.Event()

    def before(access: Access, key: Key) -> None:
        assert gate.wait(PATIENCE)
        if key == x(2):
            raise LevelFull("full")

    def watch(event: Event) -> None:
        if event.action == Write(x(2), 1):
            gate.set()
            raise error("mine")

    far, actions = Watched(Ram(), before), [Write(x(0), 1), Advance(0, 2), Write(x(2), 1)]
    levels = [Ram(), far]
    with pytest.raises(error, match="mine") as e:
        performs(
            Schedule(CHAIN, [*actions, Advance(2, 9)]),
            Platform((RAM, FAR)),
            Moves(),
            levels,
            overlap=ALL,
            watch=watch,
        )
    assert threads() == []
    assert list(far.keys()) == [x(0)]
    assert e.value.__notes__ == ["(and #2 Write(x_2, level 1) on 'disk': full)"]


def test_who_ends_the_events_is_told_what_failed() -> None:
    failing = fails(LevelFull("full"), on=x(0))
    schedule = Schedule(CHAIN, [Write(x(0), 1), Advance(0, 2)])
    levels = [Ram(), failing]
    events = perform_schedule(
        schedule, Platform((RAM, FAR)), CountingModel(CHAIN), levels, overlap=ALL
    )
    next(events)
    with pytest.raises(LevelFull, match=r"^#0 Write\(x_0, level 1\) on 'disk': full$"):
        events.close()


@pytest.mark.parametrize("overlap", [Overlap(0, 1), Overlap(0, 1, 0.0)])
def test_an_error_that_the_models_load_hides_is_told(overlap: Overlap) -> None:
    class Hides(CountingModel):
        @contextmanager
        def load(self, key: Key, layout: Layout, /) -> Iterator[Buffers]:
            with suppress(CorruptCheckpoint), super().load(key, layout) as into:
                yield into

    failing = fails(CorruptCheckpoint("bad"), on=x(0), access=Read)
    actions = [Write(x(0), 1), Advance(0, 2), Read(x(0), 1), Advance(0, 1)]
    with pytest.raises(CorruptCheckpoint, match=r"^#2 Read\(x_0, level 1\) on 'disk': bad$"):
        go(actions, [Ram(), failing], Hides(CHAIN), overlap)


def test_a_channel_that_gets_no_thread_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    start, left = threading.Thread.start, [1]

    def refused(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(
        RunFailed, match=r"^no thread can be started for channel 'tape' \(can't start"
    ):
        run(Schedule(CHAIN, ()), PLATFORM, CountingModel(CHAIN), [Ram(), Ram(), Ram()], overlap=ALL)
