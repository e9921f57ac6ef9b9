"""Fakes: a level that takes the seconds it is priced at, and a model that checks its own step."""

from collections.abc import Callable, Iterable, Iterator, Mapping
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
from ckio.backends.base import Backend
from ckio.errors import BadInput
from ckio.model import Array, as_bytes
from ckio.overlap.prices import backlog_of
from ckio.platform import Affine, Level
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock
from ckio.platform.profile import Profile


class Throttled:
    """A backend that takes, on a clock, the seconds that its level is priced at.

    The level's profile counts, too: the seconds of transfers in the background, and the bytes that
    wait to be brought to the device.

    Parameters
    ----------
    backend : Backend
        Which stores the checkpoints.
    level : Level
        Its prices and its profile.
    clock : Clock
        On which accesses take their time.
    overlaps : callable
        Called when an access begins, with the seconds that the computation loses if the access
        overlaps with it; returns whether it does. By default none does.
    """

    def __init__(
        self,
        backend: Backend,
        level: Level,
        clock: Clock,
        *,
        overlaps: Callable[[float], bool] = lambda _seconds: False,
    ) -> None:
        self.durable = backend.durable
        self._backend, self._level, self._clock, self._overlaps = backend, level, clock, overlaps
        self._profile, self._backlog = level.profile or Profile(), backlog_of(level)
        if (evict := getattr(backend, "evict", None)) is not None:
            self.evict = evict

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._backend.reserve(sizes)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        stored, nbytes = self._backend.write(key, layout, data), nbytes_of(layout)
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

    def layout(self, key: Key, /) -> Layout:
        return self._backend.layout(key)

    def read(self, key: Key, into: Buffers, /) -> int:
        stored, nbytes = self._backend.read(key, into), sum(buffer.nbytes for buffer in into)
        beside, loss = self._profile.read_beside, self._profile.read_hinders
        self._clock.sleep(self._seconds(self._level.read, beside, loss, nbytes))
        return stored

    def discard(self, key: Key, /) -> None:
        nbytes = nbytes_of(self._backend.layout(key))
        self._backend.discard(key)
        self._overlaps(self._profile.discard_hinders(nbytes))
        self._clock.sleep(self._level.discard(nbytes))

    def keys(self) -> Iterable[Key]:
        return self._backend.keys()

    def close(self) -> None:
        self._backend.close()

    def remove(self) -> None:
        """Close the backend and delete its files, if it can."""
        getattr(self._backend, "remove", self._backend.close)()

    def _seconds(self, price: Affine, beside: Affine | None, loss: Affine, nbytes: int) -> float:
        overlaps = self._overlaps(loss(nbytes))
        return (beside if overlaps and beside is not None else price)(nbytes)


class CountingModel:
    """The model of a chain whose state is its own step number.

    Any wrong order or wrong restore raises AssertionError at once: each call checks the step,
    and the bytes of a checkpoint are a function of its key, so another key's bytes are noticed (as
    far as the sizes of the chain allow: a checkpoint of no bytes cannot be told from another).

    Attributes
    ----------
    state : int
        The model stands at x_state.
    tape : (int, int) or None
        The span of steps whose tape is held.
    adjoint : int
        Steps from here to the end are reversed.
    forward_steps : int
        Steps advanced or recorded so far.
    handed : frozenset of Kind
        What it hands over, as its chain says; what it gave must not be changed by anybody.
    """

    def __init__(self, chain: Chain, clock: Clock | None = None) -> None:
        self.chain, self.clock = chain, clock
        self.state = 0
        self.tape: tuple[int, int] | None = None
        self.adjoint = chain.length
        self.forward_steps = 0
        self.handed = chain.handed
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
            f"reverse [{begin}, {end}): the tape held is {tape}",
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
        _demand(present[key.kind], f"dump {key}: the model does not hold it")
        return [as_bytes(self._bytes(key))]

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Iterator[Buffers]:
        _demand(layout == self.layout(key), f"load {key}: its layout is {layout}")
        into = np.zeros(self.chain.nbytes(key), np.uint8)
        yield [as_bytes(into)]
        self._adopt(key, into)

    def give(self, key: Key, slot: Callable[[int], memoryview], /) -> Buffers:
        _demand(key.kind in self.handed, f"give {key}: it is not handed over")
        (data,) = self.dump(key)
        memory = slot(data.nbytes)
        memory[:] = data
        return [memory]

    def take(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        _demand(key.kind in self.handed, f"take {key}: it is not handed over")
        if layout != self.layout(key):
            raise BadInput(f"take {key}: its layout is {layout}")
        self._adopt(key, np.frombuffer(b"".join(data), np.uint8))

    def _adopt(self, key: Key, content: Array) -> None:
        _demand(np.array_equal(content, self._bytes(key)), f"{key}: these are not its bytes")
        match key.kind:
            case Kind.RESTART:
                self.state = key.step
            case Kind.TAPE:
                self.tape = key.step, key.step + 1
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
        if self.clock is not None:
            self.clock.sleep(self.chain.seconds(action))
        return self.state

    def _bytes(self, key: Key) -> Array:
        """The bytes of a checkpoint: a digest of its key, over and over."""
        digest = np.frombuffer(blake2b(str(key).encode()).digest(), np.uint8)
        return np.resize(digest, self.chain.nbytes(key))


def _demand(condition: bool, message: str) -> None:
    # Not an assert statement: it must hold under `python -O` too.
    if not condition:
        raise AssertionError(message)
