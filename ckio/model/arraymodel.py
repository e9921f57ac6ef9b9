"""The friendly model: a state of named arrays, one step of the forward and one of the adjoint."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.actions.checks import told
from ckio.actions.variables import Step, Variables
from ckio.errors import BadInput, RunFailed
from ckio.model.arrays import (
    AdjointRegister,
    Array,
    Arrays,
    ByteViews,
    Spares,
    Tapes,
    as_bytes,
    copies,
    copy,
    exchange,
)
from ckio.model.checkpoints import Derived, check, checkpoints


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

    >>> import numpy as np
    >>> def growth():
    ...     x = np.array([0.1, 0.2, 0.4])
    ...     return Growth({"x": x, "J": 0.0}, control={"x": x, "rate": 0.3}, tape=["x"])

    However ckio schedules the steps and checkpoints, the gradient is, to the last bit, that of:

    >>> model = growth()
    >>> model.record(0, 9)
    9
    >>> model.reverse(0, 9)
    >>> from ckio.model.gradient import check_gradient
    >>> check_gradient(growth, 9, model.gradient).verified
    True

    Beyond `step` and `adjoint_step`, a model may define `start` with `adjoint_start` (x_0 is more
    than a copy of controls), `adjoint_seed` (J depends on x_n) and `finished` (n is not known).
    It may say what its steps do to which arrays (`flow`), and which arrays can be computed from
    others (`derived` and `derive`): then checkpoints need not hold the whole state.

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
    flow : Step or sequence of Step, optional
        What steps use and overwrite of the state: one `Step` for all of them, or one for each. What
        `finished` reads counts as used. Checkpoints then hold only what has to be stored, tapes
        only what some step overwrites, and arrays can be stored one by one; what no step overwrites
        stays as `start` makes it. A step that is recorded to be reversed may find anything in what
        its `record` does not use. If not given, nothing is known, and the whole state is stored.
    seed : iterable of str, optional
        With `flow`: the state arrays that `adjoint_seed` reads; by default all of them, or "J"
        alone where it is not overridden.
    recompute : iterable of str
        State arrays, among those of `derived`, that are left out of checkpoints and tapes and
        computed again.
    on_step : callable, optional
        Called after each step of either sweep with where it now stands: with i at x_i, or at the
        adjoint of x_i. For progress, signals and hooks; may be set as an attribute at any time.
    """

    derived: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """State arrays, and the arrays that `derive` can compute each from."""

    def __init__(
        self,
        state: Mapping[str, ArrayLike],
        *,
        control: Mapping[str, ArrayLike],
        tape: Iterable[str] | None = None,
        units: Mapping[str, str] | None = None,
        flow: Step | Sequence[Step] | None = None,
        seed: Iterable[str] | None = None,
        recompute: Iterable[str] = (),
        on_step: Callable[[int], None] | None = None,
    ) -> None:
        self.on_step = on_step
        self._control = copies("ArrayModel: controls", control)
        self._state = copies("ArrayModel: state arrays", state)
        self._taped = tuple(self._state if tape is None else dict.fromkeys(tape))
        in_j = type(self).adjoint_seed is ArrayModel.adjoint_seed
        self._derived = Derived(self._state, self.derived, recompute)
        check(self._state, self._control, self._taped, self._derived.names, in_j=in_j)
        self._adjoint = AdjointRegister.of(self._state, self._control)
        self.units = {name: (units or {}).get(name, "") for name in ("J", *state, *control)}
        self._checkpoints = checkpoints(
            self._state,
            self._taped,
            self._derived,
            flow=flow,
            seed=("J",) if seed is None and in_j else seed,
            adjoint=self._adjoint,
            units=self.units,
        )
        self._tapes = Tapes({name: self._state[name] for name in self._checkpoints.tape})
        # What the adjoint reads and no tape holds: arrays that are computed for each step, and
        # those of the state that no step overwrites.
        self._scratch = Arrays({n: copy(self._state[n]) for n in self._derived.of(self._taped)})
        self._needed = self._derived.stored(self._taped)  # what those are computed from, too

        # What a checkpoint is read into before it takes the place of the above.
        restart, tape = (
            {name: self._state[name] for name in names}
            for names in (self._checkpoints.restart, self._checkpoints.tape)
        )
        self._spares = Spares(restart, touched=True)
        # Apart, as they may come to be memory of a level; most tapes are taken where they are.
        self._tape_spares = Spares(tape, touched=False)
        self._spare_adjoint = AdjointRegister.of(self._state, self._control)
        self._views = ByteViews()

        self._started = False  # whether x_0 was made
        self._step: int | None = None  # i where the state is x_i, as far as the next step needs it
        self._stale = False  # whether what is computed again has to be
        self._seeded_at = -1  # the step at which the adjoint is ready to start
        self._turned = False  # whether the adjoint has left its start
        self._adjoint_at = 0  # and where it is then

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

    def derive(self, name: str, arrays: Arrays, /) -> None:
        """Compute arrays[name] in place from those that `derived` names, as they are in `arrays`.

        It must give what is there in every x_i, to the last bit; parts that are always as they were
        given to the constructor need not be written.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define derive, which computes {name!r}"
        )

    @property
    def control(self) -> Arrays:
        return self._control

    @property
    def gradient(self) -> Arrays:
        return self._adjoint.gradient

    @property
    def variables(self) -> Variables | None:
        """The arrays that may be stored, and what steps do to them; None without a flow."""
        return self._checkpoints.variables

    @property
    def functional(self) -> float:
        self._keep_seed()
        return float(self._adjoint.functional)

    def images(self) -> dict[str, Array]:
        """Return the arrays of the state of one or two dimensions, which the report shows.

        A subclass may return a part of them, or others.
        """
        return {name: a for name, a in self._state.items() if a.ndim in (1, 2) and a.size > 1}

    def layout(self, key: Key, /) -> Layout:
        return self._checkpoints.layout(key)

    def advance(self, begin: int, end: int, /) -> int:
        return self._forward(begin, end)

    def record(self, begin: int, end: int, /) -> int:
        self._tapes.record(begin, end)
        return self._forward(begin, end, self._tapes)

    def reverse(self, begin: int, end: int, /) -> None:
        if not self._turned:
            self._check_seeded(end)
            self._turned, self._adjoint_at = True, end
        if end != self._adjoint_at:
            raise RunFailed(_used("adjoint", self._adjoint_at, end))
        for i in reversed(range(begin, end)):
            try:
                tape = self._tape_of(i)
                self._in_place(self.adjoint_step, self._adjoint.cotangent, tape, i)
            except Exception as error:
                error.add_note(f"(adjoint of step {i})")
                raise
            self._tapes.spend(i)
            self._adjoint_at = i
            if i == 0:
                self._in_place(self.adjoint_start, self._adjoint.cotangent)
            self._report(i)

    def dump(self, key: Key, /) -> Buffers:
        match key.kind:
            case Kind.ADJOINT:
                self._checkpoints.layout(key)
                if not self._turned:
                    self._check_seeded(key.step)
                return self._views.of(self._adjoint.arrays())
            case Kind.RESTART:
                names, register = self._checkpoints.names(key), self._state
                self._ensure_started()
            case Kind.TAPE:
                names = self._checkpoints.names(key)
                register = self._tapes.single() if key.name else self._tapes.of(key.step)
        arrays = [self._home(name, register)[name] for name in names]
        return self._views_of(key, arrays)

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        self._check_layout(key, layout)
        return self._load_adjoint(key.step) if key.kind is Kind.ADJOINT else self._load(key)

    def _check_layout(self, key: Key, layout: Layout) -> None:
        if layout != self.layout(key):
            raise BadInput(
                f"{key} does not fit this model: it holds {_listed(layout)} where the model has"
                f" {_listed(self.layout(key))}; was it written with other options?"
            )

    @contextmanager
    def _load_adjoint(self, step: int) -> Generator[Buffers]:
        yield self._views.of(self._spare_adjoint.arrays())
        self._adjoint, self._spare_adjoint = self._spare_adjoint, self._adjoint
        self._turned, self._adjoint_at = True, step

    @contextmanager
    def _load(self, key: Key) -> Generator[Buffers]:
        names = self._checkpoints.names(key)
        spares = self._tape_spares if key.kind is Kind.TAPE else self._spares
        filled = spares.take(self._state, names)
        try:
            yield self._views_of(key, filled.values())
            match key.kind:
                case Kind.RESTART:
                    register = self._state
                    self._leave_state()
                    self._step = None if key.name else key.step
                    self._stale = True
                case _:
                    register = self._tapes.read(None if key.name else key.step, names)
            for name in names:
                exchange(self._home(name, register), filled, name)
        finally:
            spares.give(filled)

    @property
    def handed(self) -> frozenset[Kind]:
        return frozenset((Kind.TAPE,))

    def give(self, key: Key, slot: Callable[[int], memoryview], /) -> Buffers:
        names, arrays = self._checkpoints.names(key), self._tapes.give(key.step, slot)
        return [as_bytes(arrays[name]) for name in names]

    def take(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        self._check_layout(key, layout)
        arrays = Arrays(
            {
                field.name: np.ndarray(field.shape, field.dtype, view)
                for field, view in zip(layout, data, strict=True)
            }
        )
        if all(array.flags.aligned for array in arrays.values()):
            self._tapes.take(key.step, arrays)
        else:
            with self._load(key) as into:
                for target, source in zip(into, data, strict=True):
                    target[:] = source

    def _views_of(self, key: Key, arrays: Iterable[Array]) -> Buffers:
        """Return their bytes; those of tapes are not remembered: they may be memory of a level."""
        if key.kind is Kind.TAPE:
            return [as_bytes(array) for array in arrays]
        return self._views.of(arrays)

    def _home(self, name: str, register: Arrays) -> Arrays:
        """Return where an array of a register is: what no step overwrites is on no tape."""
        if name in register:
            return register
        self._ensure_started()
        return self._state

    def _tape_of(self, i: int) -> Arrays:
        """Return all that the adjoint of step i reads.

        Of a tape in parts, what was not read is as it is in the state: in a run that is shorter
        than the model's flow, an array that changes only later is on no tape.
        """
        if not self._tapes.may_hold(i) and self._checkpoints.reads_tape(i):
            raise RunFailed(f"no tape of step {i} is held; record it, or read it, before")
        tape = self._tapes.to_spend(i)
        elsewhere = [n for n in self._state if n in self._needed and n not in tape]
        if not self._scratch and not elsewhere:
            return tape
        self._ensure_started()
        every = Arrays({**{n: self._state[n] for n in elsewhere}, **tape, **self._scratch})
        for name in self._scratch:
            self._in_place(self.derive, name, every)
        return Arrays({name: every[name] for name in self._taped})

    def _forward(self, begin: int, end: int, tapes: Tapes | None = None) -> int:
        self._depart(begin)
        for i in range(begin, end):
            ends: object = self.finished(self._state, i)
            if ends is not False and self._is_true(ends, i):
                return i
            self._checkpoints.check_known(i)
            if tapes is not None:
                tapes.keep(i, self._state)
            try:
                self._in_place(self.step, self._state, i)
            except Exception as error:
                error.add_note(f"(step {i})")
                raise
            self._step = i + 1
            self._report(i + 1)
        return end

    def _is_true(self, ends: object, i: int) -> bool:
        try:
            return bool(ends)
        except Exception:  # each kind of array has its own
            raise RunFailed(
                f"{type(self).__name__}.finished returned {told(ends)}; it must return True or"
                f" False, whether the program ends at step {i}"
            ) from None

    def _depart(self, begin: int) -> None:
        """Set out from x_begin: what was read makes the state that, or nothing had to be read."""
        self._ensure_started()
        if begin != self._step:
            if self.variables is None:
                raise RunFailed(_used("state", self._step, begin))
            self._leave_state()
            self._step = begin
        self._renew()

    def _leave_state(self) -> None:
        """Give the state up, which may be x_n."""
        if self._started:
            self._keep_seed()
        elif self.variables is None:
            self._started = True  # all of x_0 is in what is read
        else:
            self._ensure_started()

    def _renew(self) -> None:
        """Compute again what lies in no checkpoint."""
        if self._stale:
            for name in self._derived.names:
                self._in_place(self.derive, name, self._state)
            self._stale = False

    def _in_place(self, change: Callable[..., object], *arguments: object) -> None:
        """Refuse arrays that a step returns instead of writing to them: they would be lost."""
        if (returned := change(*arguments)) is not None:
            raise RunFailed(
                f"{type(self).__name__}.{change.__name__} returned {told(returned)}; it"
                " must change its arrays in place and return nothing"
            )

    def _report(self, i: int) -> None:
        if self.on_step is not None:
            self.on_step(i)

    def _ensure_started(self) -> None:
        """Make x_0, unless there is a state already."""
        if not self._started:
            self._in_place(self.start, self._state)
            self._started, self._step = True, 0

    def _keep_seed(self) -> None:
        """Keep what the adjoint would start from here, where the forward is farther than ever."""
        if self._turned:
            return
        self._ensure_started()
        i = self._step
        if i is None or i <= self._seeded_at:
            return
        self._renew()
        for array in self._adjoint.arrays():
            array[...] = 0
        value: object = self.adjoint_seed(self._state, self._adjoint.cotangent, i)
        try:
            self._adjoint.functional[...] = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise RunFailed(
                f"{type(self).__name__}.adjoint_seed returned {told(value)}; it must return J, a"
                " number"
            ) from None
        self._seeded_at = i

    def _check_seeded(self, n: int) -> None:
        self._keep_seed()
        if self._seeded_at != n:
            raise RunFailed(
                f"the adjoint cannot start at step {n}: the forward has come to {self._seeded_at},"
                " and J is known only where it ends"
            )


def _used(what: str, there: int | None, wanted: int) -> str:
    return (
        f"the {what} of this model is at step {there}, not {wanted}; a run needs a fresh model, and"
        " one that was in a run before, or in a part of it, is none"
    )


def _listed(layout: Layout) -> str:
    return ", ".join(f"{f.name} {f.dtype}{list(f.shape)}" for f in layout) or "nothing"
