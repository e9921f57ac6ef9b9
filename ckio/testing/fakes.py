"""Fakes for tests: a level that takes the seconds of its costs, and a model that checks calls."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np

from ckio.actions import (
    Action,
    Advance,
    Buffers,
    Field,
    Key,
    Kind,
    Layout,
    Record,
    Reverse,
    nbytes_of,
)
from ckio.actions.columns import REVERSE
from ckio.backends.base import Backend
from ckio.backends.wrapper import Wrapper
from ckio.errors import BadInput
from ckio.model import Array, as_bytes
from ckio.overlap.costs import backlog_of
from ckio.platform import Affine, Level
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock
from ckio.platform.profile import Profile
from ckio.schedule import Schedule


class Throttled(Wrapper):
    """A backend whose accesses take the seconds of a level's costs, on a given clock.

    The level's profile is used, too: the seconds of transfers in the background, and the bytes that
    wait in a cache until they are written to the device.

    Parameters
    ----------
    backend : Backend
        The backend that stores the checkpoints.
    level : Level
        The costs and the profile.
    clock : Clock
        The clock on which accesses take their time.
    overlaps : callable
        `overlaps(seconds)` is called when an access begins, and returns whether the access overlaps
        with computation. `seconds` is the time that the computation then loses. By default no
        access overlaps.
    """

    def __init__(
        self,
        backend: Backend,
        level: Level,
        clock: Clock,
        *,
        overlaps: Callable[[float], bool] = lambda _seconds: False,
    ) -> None:
        super().__init__(backend)
        self.keeps = False  # a checkpoint without a copy takes no time
        self._level, self._clock, self._overlaps = level, clock, overlaps
        self._profile, self._backlog = level.profile or Profile(), backlog_of(level)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        stored, nbytes = self.backend.write(key, layout, data), nbytes_of(layout)
        profile = self._profile
        beside, loss = profile.write_beside, profile.write_hinders
        seconds = self._seconds(self._level.write, beside, loss, nbytes)
        if self._backlog is None:
            self._clock.sleep(seconds)
        else:
            waiting = self._level.stored(nbytes)
            self._clock.sleep(seconds + self._backlog.longer(self._clock.now(), waiting))
            self._backlog.add(self._clock.now(), waiting)
        return stored

    def read(self, key: Key, into: Buffers, /) -> int:
        stored, nbytes = self.backend.read(key, into), sum(buffer.nbytes for buffer in into)
        beside, loss = self._profile.read_beside, self._profile.read_hinders
        self._clock.sleep(self._seconds(self._level.read, beside, loss, nbytes))
        return stored

    def discard(self, key: Key, /) -> None:
        nbytes = nbytes_of(self.backend.layout(key))
        self.backend.discard(key)
        self._overlaps(self._profile.discard_hinders(nbytes))
        self._clock.sleep(self._level.discard(nbytes))

    def _seconds(self, cost: Affine, beside: Affine | None, loss: Affine, nbytes: int) -> float:
        overlaps = self._overlaps(loss(nbytes))
        return (beside if overlaps and beside is not None else cost)(nbytes)


class CountingModel:
    """A model of a chain that computes nothing and checks each call. Its state is a step number.

    A call in a wrong order, and a wrong checkpoint, raise AssertionError immediately. Each call
    checks the step. The bytes of a checkpoint are a function of its key, so that the bytes of
    another key are detected. Only checkpoints without bytes cannot be distinguished.

    Parameters
    ----------
    chain : Chain
        The number and costs of the steps, and the sizes of checkpoints.
    clock : Clock, optional
        The clock on which steps take the seconds of the chain. Without it they take no time.
    schedule : Schedule, optional
        The schedule that is performed. Then a Record whose state nothing needs takes `record_only`
        for its last step, as in `Chain.seconds_of`. If an action is cut into several calls, the
        last one takes its seconds.

    Attributes
    ----------
    state : int
        The step i of the current state x_i.
    tape : (int, int) or None
        The span of steps whose tape is in memory.
    adjoint : int
        The step of the adjoint. Steps from this one to the end are reversed.
    forward_steps : int
        Number of steps advanced or recorded so far.
    handed : frozenset of Kind
        The kinds of checkpoints that the model passes without a copy, from its chain. The buffers
        that it passed must not be changed.
    tape_restarts : bool
        Whether the state is x_{i+1} after the tape of step i is read, from its chain.
    """

    def __init__(
        self, chain: Chain, clock: Clock | None = None, schedule: Schedule | None = None
    ) -> None:
        self.chain, self.clock = chain, clock
        self._due: deque[tuple[int, float]] | None = None  # the step that is reached, the seconds
        if schedule is not None:
            steps = schedule.actions.take(schedule.actions.op <= REVERSE)
            reached = np.where(steps.op == REVERSE, steps.begin, steps.end)
            seconds = chain.seconds_of(schedule.actions)[schedule.actions.op <= REVERSE]
            self._due = deque(zip(reached.tolist(), seconds.tolist(), strict=True))
        self.state = 0
        self.tape: tuple[int, int] | None = None
        self.adjoint = chain.length
        self.forward_steps = 0
        self.handed, self.tape_restarts = chain.handed, chain.tape_restarts
        self._turned = False

    def layout(self, key: Key, /) -> Layout:
        return (Field("bytes", "|u1", (self.chain.nbytes(key),)),)

    def advance(self, begin: int, end: int, /) -> int:
        self._forward(begin, end)
        return self._done(Advance(begin, end))

    def record(self, begin: int, end: int, /) -> int:
        self._forward(begin, end)
        self.tape = begin, end
        return self._done(Record(begin, end))

    def reverse(self, begin: int, end: int, /) -> None:
        _demand(self.adjoint == end, f"reverse from {end}: the adjoint is at {self.adjoint}")
        tape = self.tape
        _demand(
            tape is not None and tape[0] <= begin and tape[1] == end,
            f"reverse [{begin}, {end}): the tape in memory is {tape}",
        )
        _demand(end < self.chain.length or self._turned, "reverse: the end was never reached")
        self.adjoint = begin
        self.tape = (tape[0], begin) if tape is not None and tape[0] < begin else None
        self._done(Reverse(begin, end))

    def dump(self, key: Key, /) -> Buffers:
        present = {
            Kind.RESTART: self.state == key.step,
            Kind.TAPE: self.tape == (key.step, key.step + 1),
            Kind.ADJOINT: self.adjoint == key.step,
        }
        _demand(present[key.kind], f"dump {key}: it is not in the memory of the model")
        return [as_bytes(self._bytes(key))]

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Iterator[Buffers]:
        _demand(layout == self.layout(key), f"load {key}: its layout is {layout}")
        into = np.zeros(self.chain.nbytes(key), np.uint8)
        yield [as_bytes(into)]
        self._adopt(key, into)

    def give(self, key: Key, slot: Callable[[int], memoryview], /) -> Buffers:
        _demand(key.kind in self.handed, f"give {key}: this kind is not passed without a copy")
        (data,) = self.dump(key)
        memory = slot(data.nbytes)
        memory[:] = data
        return [memory]

    def take(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        _demand(key.kind in self.handed, f"take {key}: this kind is not passed without a copy")
        if layout != self.layout(key):
            raise BadInput(f"take {key}: its layout is {layout}; it must be {self.layout(key)}")
        self._adopt(key, np.frombuffer(b"".join(data), np.uint8))

    def _adopt(self, key: Key, content: Array) -> None:
        _demand(np.array_equal(content, self._bytes(key)), f"{key}: its bytes are wrong")
        match key.kind:
            case Kind.RESTART:
                self.state = key.step
            case Kind.TAPE:
                self.tape = key.step, key.step + 1
                if self.tape_restarts:
                    self.state = key.step + 1
            case Kind.ADJOINT:
                self.adjoint = key.step
                self._turned = self._turned or key.step == self.chain.length

    def _forward(self, begin: int, end: int) -> None:
        _demand(self.state == begin, f"forward from {begin}: the state is x_{self.state}")
        _demand(begin < end <= self.chain.length, f"forward [{begin}, {end}): past the end")
        self.state = end
        self.forward_steps += end - begin
        self._turned = self._turned or end == self.chain.length

    def _done(self, action: Action) -> int:
        if self.clock is not None and self._due is None:
            self.clock.sleep(self.chain.seconds(action))
        elif self.clock is not None and self._due is not None:
            reached = self.adjoint if isinstance(action, Reverse) else self.state
            if reached == self._due[0][0]:
                self.clock.sleep(self._due.popleft()[1])
        return self.state

    def _bytes(self, key: Key) -> Array:
        """Return the bytes of a checkpoint: the digest of its key, repeated."""
        digest = np.frombuffer(blake2b(str(key).encode()).digest(), np.uint8)
        return np.resize(digest, self.chain.nbytes(key))


def _demand(condition: bool, message: str) -> None:
    # This is not an assert statement, because `python -O` would remove it.
    if not condition:
        raise AssertionError(message)
