"""What the tests of the runner with overlap share: levels that are watched, and runs on them."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from drawing import random_complete, random_legal

from ckio.actions import Buffers, Discard, Key, Layout, Read, Write
from ckio.backends.base import Backend
from ckio.backends.ram import Loan, Ram
from ckio.backends.wrapper import Wrapper
from ckio.platform import Platform
from ckio.runner import run
from ckio.runner.overlapped import overlapped
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.testing import CountingModel

Access = type[Write] | type[Read] | type[Discard]
Before = Callable[[Access, Key], object]
Moves = list[tuple[int, float, float, int]]


class Watched(Wrapper):
    """A level that notes what it is asked for, and by which thread; it does `before` first."""

    def __init__(self, backend: Backend, before: Before = lambda *_: None) -> None:
        super().__init__(backend)
        self.keeps, self.before = False, before
        self.log: list[tuple[Access, Key]] = []
        self.threads: set[int] = set()

    def _note(self, access: Access, key: Key) -> None:
        self.log.append((access, key))
        self.threads.add(threading.get_ident())
        self.before(access, key)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        self._note(Write, key)
        return super().write(key, layout, data)

    def read(self, key: Key, into: Buffers, /) -> int:
        self._note(Read, key)
        return super().read(key, into)

    def discard(self, key: Key, /) -> None:
        self._note(Discard, key)
        super().discard(key)


class Memory(Ram):
    """The memory level: it sees to it that what it holds, and what it has lent, fit together."""

    def __init__(self, *, capacity: int | None) -> None:
        super().__init__(capacity=capacity)
        self.room = capacity
        self.most = self.lent = 0
        self.threads: set[int] = set()

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        self.threads.add(threading.get_ident())
        nbytes = super().write(key, layout, data)
        self._look()
        return nbytes

    def read(self, key: Key, into: Buffers, /) -> int:
        self.threads.add(threading.get_ident())
        return super().read(key, into)

    def lend(self, nbytes: int, /) -> Loan:
        loan = super().lend(nbytes)
        self.lent += nbytes
        self._look()
        return loan

    def give_back(self, loan: Loan, /) -> None:
        self.lent -= loan.memory.nbytes
        super().give_back(loan)

    def _look(self) -> None:
        self.most = max(self.most, self._ledger.used + self.lent)
        assert self.room is None or self.most <= self.room

    @property
    def mapped(self) -> int:
        """Bytes of all slots that there are."""
        return sum(size * slots.count for size, slots in self._free._sizes.items())


def random_case(seed: int, /, *, complete: bool = False) -> tuple[Schedule, Platform, Overlap]:
    """A legal schedule on memory and far levels that may share channels, and a policy."""
    random = Random(seed)
    make = random_complete if complete else random_legal
    schedule, platform = make(random, most_steps=12, most_levels=4)
    levels = [
        replace(level, ratio=1.0, capacity=_room(level.capacity)) for level in platform.levels
    ]
    for number in range(1, len(levels)):
        channel = random.choice(("", "shared", "other"))
        levels[number] = replace(levels[number], backend="directory", channel=channel)
    if random.random() < 0.2:  # no level shares its memory
        levels[0] = replace(levels[0], backend="directory")
    counts = random.choice((0, 1, 2, None)), random.choice((0, 1, 2, None))
    horizon = random.choice((float("inf"), float("inf"), 3.0, 0.0))
    return schedule, replace(platform, levels=tuple(levels)), Overlap(*counts, horizon)


def _room(capacity: int | None) -> int | None:
    """Twice of it: ratios above 1 are left out, and then it is legal still."""
    return None if capacity is None else 2 * capacity


def opened(schedule: Schedule, platform: Platform) -> list[Memory | Watched]:
    """The levels with what the schedule starts from."""
    model, backends = CountingModel(schedule.chain), list[Memory | Watched]()
    for number, level in enumerate(platform.levels):
        plain = Memory(capacity=level.capacity)
        for key in schedule.stored[number] if number < len(schedule.stored) else ():
            plain.write(key, model.layout(key), [model._bytes(key).data])
        plain.threads.clear()
        backends.append(plain if level.backend in ("", "ram") else Watched(plain))
    return backends


def perform(
    schedule: Schedule, platform: Platform, backends: Sequence[Backend], overlap: Overlap
) -> Moves:
    """Perform it with a model that checks what it is given; returns the transfers."""
    moves: Moves = []
    times = overlapped(
        schedule,
        platform,
        model := CountingModel(schedule.chain),
        backends,
        overlap,
        moved=lambda *move: moves.append(move),
    )
    assert len(list(times)) == len(schedule)
    machine = validate(schedule, platform)
    assert model.adjoint == machine.adjoint
    assert machine.state is None or model.state == machine.state
    return moves


def synchronous(schedule: Schedule, platform: Platform) -> list[Memory | Watched]:
    """The levels after a run without overlap."""
    run(schedule, platform, CountingModel(schedule.chain), backends := opened(schedule, platform))
    return backends


def threads() -> list[str]:
    """The threads of channels that there are."""
    return [each.name for each in threading.enumerate() if each.name.startswith("ckio-")]
