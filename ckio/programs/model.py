"""A program as a model, whose steps consist of `base` ticks each.

Step k consists of the ticks from k * base to (k + 1) * base, x_k is the state before them, and
there are n = ceil(ticks / base) steps. For example, 17 ticks with base = 2 are 9 steps, of which
the last has one tick. So every schedule, level, simulator and recovery applies to a program. The
size of a state is known only when it is reached. Until then a chain contains an estimate.
"""

import json
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import ceil, inf
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Buffers, Field, Key, Kind, Layout, nbytes_of
from ckio.actions.checks import is_whole
from ckio.errors import BadInput, CkioError, RunFailed, UnsupportedKind
from ckio.model.arrays import as_bytes, empty
from ckio.platform.chain import Chain
from ckio.programs.heap import Json, copy, leaves, rebuild
from ckio.programs.interface import (
    Cotangent,
    Digests,
    Program,
    begin,
    digests,
    gradient,
    has_derivative,
    inputs,
    metered,
    report_ticks,
    seed,
)

S = TypeVar("S")

Arrays = dict[str, NDArray[Any]]
Packed = tuple[Layout, list[NDArray[Any]]]

META: Final = "meta"
"""The name of the first field of a checkpoint: JSON, as bytes."""

_END: Final = "end."
"""Prefix of the names of arrays of the finished state, which are stored with the cotangents."""

_NODE: Final = 192
"""Bytes of Python's own objects for each operation on a tape, in addition to its arrays.

The true value is about half of this for numbers, and twice this for arrays that are changed in
place.
"""

_NEAR: Final = 16
"""A tape that is estimated below this fraction (1/n) of the budget is not measured beforehand."""


def rate(program: Program[S], state: S, ticks: int, /) -> float:
    """Measure and return the bytes of tape per tick for the next ticks."""
    return _pull(program, state, ticks, {})[1]


def _pull(
    program: Program[S], state: S, ticks: int, bars: Cotangent, end: Digests | None = None
) -> tuple[Arrays, float]:
    with metered() as meter:
        meter.compare = end
        cotangent = program.pullback(state, ticks, bars)
    return cotangent, (meter.nbytes + _NODE * meter.nodes) / max(1, ticks)


class Pulling(Generic[S]):
    """Runs a program, reports its ticks, and propagates cotangents backwards over them.

    Attributes
    ----------
    rate : float or None
        Bytes of tape per tick of the ticks that were reversed last; None before the first reverse.
    """

    def __init__(self, program: Program[S], budget: float | None = None, /) -> None:
        self.rate: float | None = None
        self._program = program
        self._budget = inf if budget is None else budget

    def advance(self, state: S, limit: float, /) -> tuple[S, int, bool]:
        """Run ticks like `Program.advance`."""
        after, ticks, finished = self._program.advance(state, limit)
        report_ticks(ticks)
        return after, ticks, finished

    def back(
        self, state: S, ticks: int, cotangent: Cotangent, end: Digests | None = None, /
    ) -> Arrays:
        """Return the cotangent of `state` from the cotangent of the state `ticks` ticks later.

        If the digests of that state are given, raises RunFailed unless the tape reaches it.

        If a tape would be larger than the budget, the ticks are reversed in halves, the later half
        first. The size of the tape is estimated from its first ticks and from the ticks after it,
        which have been reversed already. Therefore the division depends only on the program, and on
        `rate` if another process began the reverse run. For example, if 100 ticks of 3 kB each must
        fit into 200 kB, the last 50 are taped and reversed, and then the first 50.
        """
        if self._budget < inf and ticks > 1 and ticks * self._most(state, ticks) > self._budget:
            half = ticks // 2
            middle = self.advance(state, half)[0]
            cotangent = self.back(middle, ticks - half, cotangent, end)
            del middle
            return self.back(state, half, cotangent)
        bars, self.rate = _pull(self._program, state, ticks, cotangent, end)
        report_ticks(ticks)
        return bars

    def _most(self, state: S, ticks: int) -> float:
        """Return an estimate of the bytes of tape per tick, from some of the next ticks."""
        some = min(64, max(ticks // 16, min(8, ticks // 2)))  # a single tick may not be typical
        if self.rate is None:
            self.rate = rate(self._program, self.advance(state, ticks - some)[0], some)
            report_ticks(some)
        if ticks * self.rate < self._budget / _NEAR:
            return self.rate
        report_ticks(some)
        return max(self.rate, rate(self._program, state, some))


def as_chain(program: Program[S], x: Any, base: int, *, ybar: Any = 1.0) -> "ProgramModel[S]":
    """Return a model of the program, whose steps consist of `base` ticks each.

    `x` and `ybar` are the same as for `checkpoint_vjp`. Raises BadInput for an invalid base.
    """
    return ProgramModel(program, x, base, ybar=ybar)


class ProgramModel(Generic[S]):
    """A program with its inputs as a model. Its functional is J = Re(sum(conj(ybar) * y)).

    To record a step, the model only keeps the first state. The step is taped when it is reversed.

    Parameters
    ----------
    program, x, ybar
        The program, a tuple of its inputs or its single input, and the cotangent of y.
    base
        Number of ticks of a step, which are taped together.
    budget
        Bytes that a tape may take. A step with a larger tape is reversed in halves.

    Attributes
    ----------
    base : int
        Number of ticks of a step.
    estimated : bool
        True, because the bytes of a checkpoint are known only when it is written.
    steps, ticks : int or None
        The length of the program in steps and in ticks; None before its end was reached.
    """

    estimated: Final = True
    records_late: Final = True

    def __init__(
        self,
        program: Program[S],
        x: Any,
        base: int,
        *,
        ybar: Any = 1.0,
        budget: float | None = None,
    ) -> None:
        if not is_whole(base) or base < 1:
            raise BadInput(f"as_chain: base = {base!r}; it must be a whole number of ticks >= 1")
        self.steps: int | None = None
        self.ticks: int | None = None
        self.base = int(base)
        begin(program, x)  # raises, and shows the program the classes in x
        self._program, self._x, self._ybar = program, x, ybar
        self._pulling = Pulling(program, budget)
        self._control = {
            name: copy({name: value})[name] if isinstance(value, np.ndarray) else np.array(value)
            for number, given in enumerate(inputs(x))
            for name, value in leaves(given, f"x.{number}").items()
            if has_derivative(value)
        }
        self._state: S | None = None
        self._packed: Packed | None = None
        self._at = 0
        self._tape: tuple[int, int, S] | None = None  # its span, and its first state
        self._end: S | None = None
        self._cotangent: Arrays | None = None
        self._seen = {Kind.RESTART: 0, Kind.ADJOINT: 0}
        self._next: Digests | None = None  # of the state whose cotangent is known

    # Results

    @property
    def result(self) -> Any:
        """The result y of the program. Raises RunFailed before the end was reached."""
        return self._program.result(self._finished())

    @property
    def functional(self) -> float:
        """J = Re(sum(conj(ybar) * y)). Raises RunFailed before the end was reached."""
        y = self.result
        bars, ys = seed(y, self._ybar), leaves(y, "y")
        parts = (np.sum(np.conj(bar) * np.asarray(ys[name])) for name, bar in bars.items())
        return float(sum(part.real for part in parts))

    @property
    def gradient(self) -> Mapping[str, NDArray[Any]]:
        """The derivative of J with respect to each input, after the adjoint has reached x_0."""
        cotangent = self._cotangent or {}
        return {n: cotangent.get(n, np.zeros_like(x)) for n, x in self._control.items()}

    @property
    def xbar(self) -> Any:
        """The gradient in the structure of x."""
        return gradient(self._x, self._cotangent or {})

    @property
    def control(self) -> Mapping[str, NDArray[Any]]:
        """The inputs that have a derivative, by name. Change them only before the first step."""
        return self._control

    # Steps

    def advance(self, begin: int, end: int, /) -> int:
        return self._forward(self._depart(begin), begin, end)

    def record(self, begin: int, end: int, /) -> int:
        state = self._depart(begin)
        self._tape = begin, end, state
        if self._end is not None and self.steps is not None and end <= self.steps:
            self._state, self._packed, self._at = None, None, end
            return end
        reached = self._forward(state, begin, end)
        self._tape = begin, reached, state
        return reached

    def reverse(self, begin: int, end: int, /) -> None:
        if self._tape is None or self._tape[1] != end or begin < self._tape[0]:
            raise RunFailed(f"no tape of steps [{begin}, {end}) is in memory; record them first")
        first, _, state = self._tape
        if self._cotangent is None:
            self._cotangent = seed(self.result, self._ybar)
            self._next = digests(self._program.pack(self._finished()))
        if first < begin:
            low, _, _ = self._pulling.advance(state, (begin - first) * self.base)
            self._tape = first, begin, state
        else:
            low, self._tape = state, None
        last = end * self.base if self.ticks is None else min(end * self.base, self.ticks)
        ticks = last - begin * self.base
        self._cotangent = self._pulling.back(low, ticks, self._cotangent, self._next)
        self._next = digests(self._program.pack(low))

    def rewind(self) -> None:
        """Return to x_0, as a new model. The result y stays known if the end was reached."""
        self._state, self._packed, self._tape, self._at = None, None, None, 0
        self._pulling.rate = None

    def measure(self) -> Chain:
        """Run the program, return to x_0, and return its chain for planners.

        The seconds are the mean of the steps in this run, and the time to reverse the first step.
        To record a step takes no time, because it is taped when it is reversed. The size of restart
        data is that of the largest state.
        """
        reached, seconds = -1, 0.0
        while self.steps is None and self._at > reached:
            reached, before = self._at, time.perf_counter()
            self.advance(reached, reached + 1)
            seconds += time.perf_counter() - before
            self.layout(Key(Kind.RESTART, self._at))
        steps, start = self.steps or 0, self._start()
        before = time.perf_counter()
        self._pulling.back(start, min(self.base, self.ticks or 0), {})
        back = time.perf_counter() - before
        self.rewind()
        return Chain(
            steps=max(1, steps),
            advance=seconds * self.base / max(1, self.ticks or 0),
            record=0.0,
            reverse=back,
            restart=self._seen[Kind.RESTART],
            tape=0,
            adjoint=nbytes_of(self._adjoint()[0]) + nbytes_of(self._restart()[0]),
        )

    # Checkpoints

    def layout(self, key: Key, /) -> Layout:
        """Return the layout of a checkpoint.

        If the model is not at its step, the layout is one field with the bytes of the largest
        checkpoint so far.
        """
        if key.name:
            raise UnsupportedKind(
                f"{key}: a program stores whole states, not single variables; use a planner of"
                " whole states"
            )
        match key.kind:
            case Kind.TAPE:
                raise UnsupportedKind(
                    f"{key}: a program stores no tapes; use a planner that stores restart data only"
                )
            case Kind.RESTART if key.step == self._at or not self._seen[key.kind]:
                layout = self._restart()[0]
            case Kind.ADJOINT if self._cotangent is not None and self._end is not None:
                layout = self._adjoint()[0]
            case _:
                return (Field(META, "uint8", (max(self._seen.values()),)),)
        self._seen[key.kind] = max(self._seen[key.kind], nbytes_of(layout))
        return layout

    def dump(self, key: Key, /) -> Buffers:
        self.layout(key)
        _, arrays = self._adjoint() if key.kind is Kind.ADJOINT else self._restart()
        return [as_bytes(array) for array in arrays]

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        if not layout or layout[0].name != META:
            raise BadInput(f"{key} was not stored by a program; use the model that stored it")
        return self._load(key, layout)

    @contextmanager
    def _load(self, key: Key, layout: Layout) -> Generator[Buffers]:
        self._packed = None  # frees the copy of the current state
        arrays = [empty(field.shape, field.dtype) for field in layout]
        yield [as_bytes(array) for array in arrays]
        try:
            self._take(key, *_decode(arrays))
        except CkioError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise BadInput(f"{key} is no checkpoint of this program: {error}") from error

    def _take(self, key: Key, data: Arrays, meta: Mapping[str, Json]) -> None:
        if key.kind is Kind.RESTART:
            state = self._program.unpack(data, meta["state"])
            self._state, self._packed, self._at = state, None, key.step
        else:
            names = list(data)
            bars, ends = names[: meta["cotangents"]], names[meta["cotangents"] :]
            end = {name.removeprefix(_END): data[name] for name in ends}
            self._end = self._program.unpack(end, meta["state"])
            self.steps, self.ticks = meta["steps"], meta["ticks"]
            self._cotangent, self._next = {name: data[name] for name in bars}, None
            self._pulling.rate = meta["rate"]

    # Parts

    def _depart(self, begin: int) -> S:
        """Return x_begin. If the step before was only recorded, it is run now."""
        if self._state is None:
            if self._tape is not None and self._tape[1] == begin:
                first, _, state = self._tape
                ahead = (begin - first) * self.base
                self._state = self._pulling.advance(state, ahead)[0]
            elif begin == 0:
                self._state = self._start()
            else:
                raise RunFailed(f"x_{begin} is not in memory; read its checkpoint first")
            self._at, self._packed = begin, None
        return self._state

    def _start(self) -> S:
        def now(name: str, value: Any) -> Any:
            given = self._control.get(name)
            if given is None or isinstance(value, np.ndarray):
                return value if given is None else given
            return type(value)(given) if isinstance(value, float | complex) else given[()]

        x = (rebuild(v, f"x.{number}", now) for number, v in enumerate(inputs(self._x)))
        return begin(self._program, tuple(x) if isinstance(self._x, tuple) else next(x))

    def _forward(self, state: S, begin: int, end: int) -> int:
        self._packed = None  # frees the copy of the state before
        after, ticks, done = self._pulling.advance(state, (end - begin) * self.base)
        reached = begin + ceil(ticks / self.base)
        self._state, self._packed, self._at = after, None, reached
        if done and (ticks or self._end is None):
            self._end, self.steps = after, reached
            self.ticks = begin * self.base + ticks
        return reached

    def _finished(self) -> S:
        if self._end is None:
            raise RunFailed("y is not known before the program has ended; run it to its end first")
        return self._end

    def _restart(self) -> Packed:
        if self._packed is None:
            data, meta = self._program.pack(self._depart(self._at))
            self._packed = _encode(data, {"state": meta})
        return self._packed

    def _adjoint(self) -> Packed:
        end, meta = self._program.pack(self._finished())
        bars = self._cotangent if self._cotangent is not None else {}
        data = {**bars, **{_END + name: array for name, array in end.items()}}
        about = {"state": meta, "cotangents": len(bars), "rate": self._pulling.rate}
        return _encode(data, about | {"steps": self.steps, "ticks": self.ticks})


def _encode(arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Json]) -> Packed:
    """Return the fields of a checkpoint: JSON that describes the arrays, and the arrays.

    The JSON contains the names, because some names are not allowed in files, and the dtypes of
    other libraries.
    """
    others = {name: a.dtype.name for name, a in arrays.items() if np.dtype(a.dtype.str) != a.dtype}
    text = json.dumps({"names": list(arrays), "dtypes": others, **about}).encode()
    data = [np.frombuffer(text, np.uint8), *(np.asarray(a, order="C") for a in arrays.values())]
    fields = []
    for number, (name, array) in enumerate(zip((META, *arrays), data, strict=True)):
        plain = name.replace(".", "").replace("_", "").isalnum() and name.isascii()
        fields.append(Field(name if plain else f"array{number}", array.dtype.str, array.shape))
    return tuple(fields), data


def _decode(data: Sequence[NDArray[Any]]) -> tuple[Arrays, dict[str, Json]]:
    """Return the arrays by their names, and the rest of the JSON."""
    meta = json.loads(data[0].tobytes())
    arrays = dict(zip(meta["names"], data[1:], strict=True))
    arrays |= {name: arrays[name].view(np.dtype(of)) for name, of in meta["dtypes"].items()}
    return arrays, meta
