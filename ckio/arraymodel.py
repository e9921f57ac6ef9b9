"""The friendly model: a state of named arrays, one step of the forward and one of the adjoint."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ckio.actions import Buffers, Field, Key, Kind, Layout
from ckio.arrays import Array, Arrays, as_bytes, copies, empty, is_differentiable
from ckio.errors import BadInput, RunFailed, UnsupportedKind


class ArrayModel(ABC):
    """A model whose state is a dict of arrays; you write one step forward and one of the adjoint.

    All that changes from step to step is in the state, also the functional J that they sum up:

    >>> class Growth(ArrayModel):
    ...     def step(self, state, i):
    ...         x, rate = state["x"], self.control["rate"]
    ...         state["J"] += (x**2).sum()
    ...         x *= 1 + rate * (1 - x)
    ...
    ...     def adjoint_step(self, adjoint, tape, i):
    ...         x, rate = tape["x"], self.control["rate"]
    ...         self.gradient["rate"] += (x * (1 - x) * adjoint["x"]).sum()
    ...         adjoint["x"] *= 1 + rate * (1 - 2 * x)
    ...         adjoint["x"] += 2 * x * adjoint["J"]

    A model is made of x_0, what the gradient refers to, and which arrays the adjoint reads:

    >>> def growth():
    ...     x = np.array([0.1, 0.2, 0.4])
    ...     return Growth({"x": x, "J": 0.0}, control={"x": x, "rate": 0.3}, tape=["x"])

    However ckio schedules the steps and checkpoints, the gradient is, to the last bit, that of:

    >>> model = growth()
    >>> model.record(0, 9)
    9
    >>> model.reverse(0, 9)
    >>> from ckio.gradient import check_gradient
    >>> check_gradient(growth, 9, model.gradient).verified
    True

    Beyond `step` and `adjoint_step`, a model may define `start` with `adjoint_start` (x_0 is more
    than a copy of controls), `adjoint_seed` (J depends on x_n) and `finished` (n is not known).

    Parameters
    ----------
    state : mapping of str to array
        x_0; copied. Integer arrays may be among them; they have no adjoint.
    control : mapping of str to array
        What the gradient is taken of; copied. A control with the name of a state array is its value
        in x_0, any other is a parameter that `step` reads.
    tape : iterable of str, optional
        The state arrays that `adjoint_step` reads as they were before the step; by default all.
    units : mapping of str to str, optional
        Units of state arrays, controls and "J", for the files that checkpoints lie in.
    on_step : callable, optional
        Called after each step of either sweep with where it now stands: with i at x_i, or at the
        adjoint of x_i. For progress, signals and hooks; may be set as an attribute at any time.
    """

    def __init__(
        self,
        state: Mapping[str, ArrayLike],
        *,
        control: Mapping[str, ArrayLike],
        tape: Iterable[str] | None = None,
        units: Mapping[str, str] | None = None,
        on_step: Callable[[int], None] | None = None,
    ) -> None:
        self.on_step = on_step
        self._control = copies("ArrayModel: controls", control)
        self._state = copies("ArrayModel: state arrays", state)
        self._taped = tuple(self._state if tape is None else dict.fromkeys(tape))
        self._check()
        self._adjoint = _Adjoint.of(self._state, self._control)
        self._tape = self._new_tapes(1)
        self._layouts = self._layout_by_kind(units or {})

        # What a checkpoint is read into before it takes the place of the above.
        self._spare_state = copies("ArrayModel: state arrays", self._state)
        self._spare_adjoint = _Adjoint.of(self._state, self._control)
        (self._spare_tape,) = self._new_tapes(1)

        self._step: int | None = None  # i where the state is x_i; None before x_0 is made
        self._taped_from = 0  # the step whose tape is the first of self._tape
        self._seeded_at = -1  # the step at which the adjoint is ready to start
        self._turned = False  # whether the adjoint has left its start

    @abstractmethod
    def step(self, state: Arrays, i: int, /) -> None:
        """Take x_i to x_{i+1} in place: a function of x_i and the controls that are parameters."""

    @abstractmethod
    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        """Take dJ/dx_{i+1} to dJ/dx_i in place, and add to `gradient` what step i adds to it."""

    def start(self, state: Arrays, /) -> None:
        """Put the controls into x_0; by default each that has the name of a state array."""
        for name in state.keys() & self._control.keys():
            state[name][...] = self._control[name]

    def adjoint_start(self, adjoint: Arrays, /) -> None:
        """Add to `gradient` what x_0 adds to it: the transpose of `start`."""
        for name in adjoint.keys() & self._control.keys():
            self.gradient[name][...] += adjoint[name]

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        """Return J at x_n and put dJ/dx_n into `adjoint`, which is all zero.

        By default J is the sum in `state["J"]`. May be called at any x_i on the way.
        """
        adjoint["J"][...] = 1
        return float(state["J"].item())

    def finished(self, state: Arrays, i: int, /) -> bool:
        """Whether the program ends at x_i; by default it goes on for as long as it is asked to."""
        return False

    @property
    def control(self) -> Arrays:
        return self._control

    @property
    def gradient(self) -> Arrays:
        return self._adjoint.gradient

    @property
    def functional(self) -> float:
        self._keep_seed()
        return float(self._adjoint.functional)

    def layout(self, key: Key, /) -> Layout:
        if key.name:
            raise UnsupportedKind(f"{key}: this model stores whole checkpoints, not single arrays")
        return self._layouts[key.kind]

    def advance(self, begin: int, end: int, /) -> int:
        return self._forward(begin, end)

    def record(self, begin: int, end: int, /) -> int:
        self._tape += self._new_tapes(max(0, end - begin - len(self._tape)))
        self._taped_from = begin
        return self._forward(begin, end, self._tape)

    def reverse(self, begin: int, end: int, /) -> None:
        if not self._turned:
            self._check_seeded(end)
            self._turned = True
        for i in reversed(range(begin, end)):
            cotangent, tape = self._adjoint.cotangent, self._tape[i - self._taped_from]
            try:
                self._check_nothing(self.adjoint_step(cotangent, tape, i), "adjoint_step")
            except Exception as error:
                error.add_note(f"(adjoint of step {i})")
                raise
            if i == 0:
                self.adjoint_start(self._adjoint.cotangent)
            self._report(i)

    def dump(self, key: Key, /) -> Buffers:
        return [as_bytes(array) for array in self._register(key)]

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        if layout != self.layout(key):
            raise BadInput(
                f"{key} does not fit this model: it holds {_listed(layout)} where the model has"
                f" {_listed(self.layout(key))}; was it written with other options?"
            )
        return self._load(key)

    @contextmanager
    def _load(self, key: Key) -> Generator[Buffers]:
        match key.kind:
            case Kind.RESTART:
                yield [as_bytes(array) for array in self._spare_state.values()]
                if self._step is not None:
                    self._keep_seed()  # the state that is given up may be x_n
                self._state, self._spare_state = self._spare_state, self._state
                self._step = key.step
            case Kind.TAPE:
                yield [as_bytes(array) for array in self._spare_tape.values()]
                self._tape[0], self._spare_tape = self._spare_tape, self._tape[0]
                self._taped_from = key.step
            case Kind.ADJOINT:
                yield [as_bytes(array) for array in self._spare_adjoint.arrays()]
                self._adjoint, self._spare_adjoint = self._spare_adjoint, self._adjoint
                self._turned = True

    def _register(self, key: Key) -> Iterable[Array]:
        """The live arrays of a checkpoint, in the order of its layout."""
        self.layout(key)
        match key.kind:
            case Kind.RESTART:
                self._ensure_started()
                return self._state.values()
            case Kind.TAPE:
                return self._tape[key.step - self._taped_from].values()
            case Kind.ADJOINT:
                if not self._turned:
                    self._check_seeded(key.step)
                return self._adjoint.arrays()

    def _forward(self, begin: int, end: int, tapes: Sequence[Arrays] = ()) -> int:
        self._ensure_started()
        for i in range(begin, end):
            if self.finished(self._state, i):
                return i
            if tapes:
                for name, kept in tapes[i - begin].items():
                    np.copyto(kept, self._state[name])
            try:
                self._check_nothing(self.step(self._state, i), "step")
            except Exception as error:
                error.add_note(f"(step {i})")
                raise
            self._step = i + 1
            self._report(i + 1)
        return end

    def _check_nothing(self, returned: object, method: str) -> None:
        """Arrays that are returned instead of written to would be lost without a word."""
        if returned is not None:
            raise RunFailed(
                f"{type(self).__name__}.{method} returned a {type(returned).__name__}; it must"
                " change its arrays in place and return nothing"
            )

    def _report(self, i: int) -> None:
        if self.on_step is not None:
            self.on_step(i)

    def _ensure_started(self) -> int:
        """Make x_0, unless there is a state already; returns i where it is x_i."""
        if self._step is None:
            self.start(self._state)
            self._step = 0
        return self._step

    def _keep_seed(self) -> None:
        """Keep what the adjoint would start from here, where the forward is farther than ever."""
        if self._turned or (i := self._ensure_started()) <= self._seeded_at:
            return
        for array in self._adjoint.arrays():
            array[...] = 0
        value = self.adjoint_seed(self._state, self._adjoint.cotangent, i)
        self._adjoint.functional[...] = float(value)  # which refuses None
        self._seeded_at = i

    def _check_seeded(self, n: int) -> None:
        self._keep_seed()
        if self._seeded_at != n:
            raise RunFailed(
                f"the adjoint cannot start at step {n}: the forward has come to {self._seeded_at},"
                " and J is known only where it ends"
            )

    def _new_tapes(self, count: int) -> list[Arrays]:
        """Room for the tape of so many steps; in one piece, which costs fewer page faults."""
        rooms = {
            name: empty((count, *x.shape), x.dtype)
            for name, x in self._state.items()
            if name in self._taped
        }
        return [Arrays({name: rooms[name][k, ...] for name in self._taped}) for k in range(count)]

    def _layout_by_kind(self, units: Mapping[str, str]) -> dict[Kind, Layout]:
        unit = {name: units.get(name, "") for name in ("J", *self._state, *self._control)}
        per = {
            name: f"({unit['J'] or 1})/({unit[name]})" if unit[name] else unit["J"] for name in unit
        }
        cotangent, gradient = self._adjoint.cotangent, self._adjoint.gradient
        return {
            Kind.RESTART: tuple(_field(n, x, unit[n]) for n, x in self._state.items()),
            Kind.TAPE: tuple(_field(n, self._state[n], unit[n]) for n in self._taped),
            Kind.ADJOINT: (
                *(_field(f"adjoint_{n}", x, per[n]) for n, x in cotangent.items()),
                *(_field(f"gradient_{n}", x, per[n]) for n, x in gradient.items()),
                _field("functional", self._adjoint.functional, unit["J"]),
            ),
        }

    def _check(self) -> None:
        if unknown := [name for name in self._taped if name not in self._state]:
            raise BadInput(f"ArrayModel: tape names {unknown}; the state has {list(self._state)}")
        if fixed := [name for name, x in self._control.items() if not is_differentiable(x)]:
            raise BadInput(f"ArrayModel: controls {fixed} have no derivative; make them float64")
        for name in self._state.keys() & self._control.keys():
            start, control = self._state[name], self._control[name]
            if start.shape != control.shape:
                raise BadInput(
                    f"ArrayModel: control {name!r} has shape {control.shape}, the array"
                    f" in the state {start.shape}; they must be the same"
                )
            if not is_differentiable(start):
                raise BadInput(
                    f"ArrayModel: {name!r} is a control, and {start.dtype} in the state, which has"
                    " no derivative; make it float64 there too"
                )
        accumulates = "J" in self._state and _is_number(self._state["J"])
        if type(self).adjoint_seed is ArrayModel.adjoint_seed and not accumulates:
            raise BadInput(
                "ArrayModel: the state needs one real number 'J', in which step sums up the"
                " functional; or define adjoint_seed, which computes it from x_n"
            )


@dataclass(frozen=True, slots=True)
class _Adjoint:
    """The adjoint register: dJ/dx_i, the gradient so far, and J."""

    cotangent: Arrays
    gradient: Arrays
    functional: NDArray[np.float64]

    @staticmethod
    def of(state: Arrays, control: Arrays) -> "_Adjoint":
        """One of zeros for this state and these controls."""
        return _Adjoint(
            Arrays({n: np.zeros_like(x) for n, x in state.items() if is_differentiable(x)}),
            Arrays({n: np.zeros_like(x) for n, x in control.items()}),
            np.zeros(()),
        )

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All of it, in the order of the layout."""
        return *self.cotangent.values(), *self.gradient.values(), self.functional


def _is_number(array: Array) -> bool:
    return array.size == 1 and np.issubdtype(array.dtype, np.floating)


def _field(name: str, array: Array, unit: str) -> Field:
    return Field(name, array.dtype.str, array.shape, unit)


def _listed(layout: Layout) -> str:
    return ", ".join(f"{f.name} {f.dtype}{list(f.shape)}" for f in layout) or "nothing"
