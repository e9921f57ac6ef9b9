"""`ArrayModel`: a model with a state of named arrays, one forward step and one adjoint step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.actions.checks import describe
from ckio.actions.variables import Step, Variables
from ckio.errors import BadInput, RunFailed
from ckio.model.arrays import (
    AdjointRegister,
    Array,
    Arrays,
    ByteViews,
    Spares,
    Tapes,
    Views,
    as_bytes,
    copies,
    copy,
    exchange,
)
from ckio.model.checkpoints import Derived, check, checkpoints


class _NotInitialised:
    """An attribute of a model whose `__init__` has not called that of ArrayModel."""

    def __get__(self, model: object, kind: type) -> "_NotInitialised":
        if model is None:
            return self
        raise BadInput(
            f"{kind.__name__}.__init__ has to call super().__init__(state, control=...), before the"
            " model is used"
        )


class ArrayModel(ABC):
    """A model whose state is a dict of arrays. You write one time step and its adjoint.

    The state has every array that changes from step to step, including the functional J, to which
    the steps add. This model is logistic growth, x ← x + rate x (1 - x), and J is the sum of x²
    over all steps:

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

    The constructor takes the state x_0, the controls, and the names of the state arrays that the
    adjoint reads:

    >>> import numpy as np
    >>> def growth():
    ...     x = np.array([0.1, 0.2, 0.4])
    ...     return Growth({"x": x, "J": 0.0}, control={"x": x, "rate": 0.3}, tape=["x"])

    With every schedule of steps and checkpoints, the gradient is equal, to the last bit, to that
    of a run that stores all tapes:

    >>> model = growth()
    >>> model.record(0, 9)
    9
    >>> model.reverse(0, 9)
    >>> from ckio.model.gradient import check_gradient
    >>> check_gradient(growth, 9, model.gradient).verified
    True

    A subclass must define two methods and may define five more. Their arguments `state`, `adjoint`
    and `tape` are dicts of arrays. Each array has the shape and the dtype of the state array with
    the same name, and is changed only in place: `state["x"] += v` or `state["x"][...] = v`.
    A method that changes arrays must return None.

    `step(state, i)`
        Required. Called for each forward step: take x_i to x_{i+1}.
    `adjoint_step(adjoint, tape, i)`
        Required. Called for each adjoint step: take dJ/dx_{i+1} to dJ/dx_i, and add to `gradient`.
    `start(state)`
        Optional, if x_0 is more than a copy of controls. Called once, before the first step.
    `adjoint_start(adjoint)`
        The transpose of `start`, required if `start` is overridden. Called once, after the adjoint
        of step 0.
    `adjoint_seed(state, adjoint, n)`
        Optional, if J depends on x_n. Called before the first adjoint step, and if `functional` is
        read; it returns what J has in addition to `state["J"]`, and sets dJ/dx_n.
    `finished(state, i)`
        Optional, if the model decides itself at which step it ends. Called before each step.
    `derive(name, arrays)`
        Optional, with `derived`: compute one array from others, so that checkpoints need not have
        it. Called after a checkpoint was read and before an adjoint step, for each array in
        `recompute`.

    Parameters
    ----------
    state : mapping of str to array
        The state x_0, which is copied. Scalars become arrays of shape (). Integer arrays are
        allowed; they have no adjoint.
    control : mapping of str to array
        The controls of the gradient, which are copied. A control with the name of a state array is
        the value of that array in x_0, and has its shape. Any other control is a parameter that
        `step` reads.
    tape : iterable of str, optional
        The state arrays that `adjoint_step` reads, with their values before the step. By default
        all state arrays.
    units : mapping of str to str, optional
        Units of state arrays, controls and "J". They are written to the files of checkpoints.
    flow : Step or sequence of Step, optional
        The state arrays that steps use and overwrite: one `Step` for all of them, or one for each.
        Arrays that `finished` reads count as used. With a flow, checkpoints contain only the arrays
        that have to be stored, tapes only those that some step overwrites, and arrays can be stored
        one by one. Arrays that no step overwrites keep the values that `start` gives them. If a
        step is recorded only in order to be reversed, arrays that are not in the `use` of its
        `record` may have any values. Without a flow, the whole state is stored.
    seed : iterable of str, optional
        With `flow`: the state arrays that `adjoint_seed` reads. By default "J" alone if
        `adjoint_seed` is not overridden, and otherwise all state arrays.
    recompute : iterable of str
        State arrays, from the keys of `derived`, that are computed again by `derive` and are left
        out of checkpoints and tapes.

    Raises
    ------
    BadInput
        If names, shapes or dtypes do not fit each other, or the state has no "J" and
        `adjoint_seed` is not overridden.
    """

    if not TYPE_CHECKING:  # the constructor sets them, if a subclass calls it
        _state = _control = _adjoint = _checkpoints = _started = _turned = _NotInitialised()

    derived: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """For each state array that `derive` can compute: the state arrays that it is computed from."""

    on_step: Callable[[int], None] | None = None
    """Called after each step of either sweep, with i, when the forward has reached x_i or the
    adjoint has reached dJ/dx_i. Set it on a model at any time, for progress or signals."""

    records_late: bool = False
    """Whether `record` leaves its last step to be computed when the state after it is needed: never
    if the step is reversed next. Set it to True in a class whose `adjoint_step` reads nothing that
    `step` has left, in an attribute or elsewhere; `ckio check` tells whether it does."""

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
    ) -> None:
        for what, names in {"tape": tape, "seed": seed, "recompute": recompute}.items():
            if isinstance(names, str):
                raise BadInput(f"ArrayModel: {what} = {names!r} is text; give a list: [{names!r}]")
        self._control = copies("ArrayModel: controls", control)
        self._state = copies("ArrayModel: state arrays", state)
        self._taped = tuple(self._state if tape is None else dict.fromkeys(tape))
        in_j = type(self).adjoint_seed is ArrayModel.adjoint_seed
        if in_j or (seed is not None and "J" in state):
            seed = dict.fromkeys((*(seed or ()), "J"))  # J is read at x_n whenever there is one
        self._derived = Derived(self._state, self.derived, recompute)
        check(self._state, self._control, self._taped, self._derived.names, in_j=in_j)
        self._adjoint = AdjointRegister.of(self._state, self._control)
        self.units = {name: (units or {}).get(name, "") for name in ("J", *state, *control)}
        self._checkpoints = checkpoints(
            self._state,
            self._taped,
            self._derived,
            flow=flow,
            seed=seed,
            adjoint=self._adjoint,
            units=self.units,
        )
        self._has_flows = flow is not None and not isinstance(flow, Step)  # one for each step
        self._tapes = Tapes({name: self._state[name] for name in self._checkpoints.tape})
        # The adjoint also reads arrays that are on no tape: those in `_scratch` are computed for
        # each step, and the others are state arrays that no step overwrites.
        self._scratch = Arrays({n: copy(self._state[n]) for n in self._derived.of(self._taped)})
        self._copies: dict[str, Array] = {}  # of the others, because the adjoint may overwrite them
        self._needed = self._derived.stored(self._taped)  # also the arguments of `_scratch`

        # A checkpoint is read into spare arrays, which are then exchanged with the model's own: a
        # read that fails leaves the model as it was.
        restart, tape = (
            {name: self._state[name] for name in names}
            for names in (self._checkpoints.restart, self._checkpoints.tape)
        )
        self._spares = Spares(restart, touched=True)
        # Separate from the above, because these arrays may become memory of a level. They are not
        # touched, because most tapes are adopted without a copy and need no spare.
        self._tape_spares = Spares(tape, touched=False)
        self._spare_adjoint = AdjointRegister.of(self._state, self._control)
        self._views = ByteViews()

        self._started = False  # whether the state has values (x_0, or a checkpoint)
        self._step: int | None = None  # i if the state is x_i in all arrays that the next step uses
        self._due = False  # whether the state is still x_(i-1): the step was recorded, not computed
        self._stale = False  # whether the arrays in `recompute` have to be computed again
        self._seeded_at = -1  # the step at which the adjoint is ready to start
        self._turned = False  # whether the adjoint has left its start, or was read
        self._adjoint_at = 0  # i if the adjoint is dJ/dx_i; only if `_turned`

    @abstractmethod
    def step(self, state: Arrays, i: int, /) -> None:
        """Take x_i to x_{i+1} in place.

        The result may depend only on x_i, on i and on controls that are parameters, because ckio
        computes the same step several times.

        Parameters
        ----------
        state : dict of str to array
            x_i on entry and x_{i+1} on return, with the names and shapes of the constructor's
            `state`. If J is summed in the state, the step adds its part to `state["J"]`.
        i : int
            The number of the step, from 0.
        """

    @abstractmethod
    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        """Take dJ/dx_{i+1} to dJ/dx_i in place, and add the part of step i to `gradient`.

        Parameters
        ----------
        adjoint : dict of str to array
            dJ/dx_{i+1} on entry and dJ/dx_i on return, with one array for each state array of real
            or complex numbers, of the same shape. `adjoint["J"]` is the weight of `state["J"]`, 1.
        tape : dict of str to array
            The state arrays named by the constructor's `tape`, with their values in x_i. The method
            may overwrite them.
        i : int
            The number of the step; the steps come in descending order.

        Notes
        -----
        Add dJ/dc of this step to `self.gradient[c]` for each control c that `step` reads.
        """

    def start(self, state: Arrays, /) -> None:
        """Compute x_0 from the controls. Called once, before the first step.

        By default, each control that has the name of a state array is copied into it. A model that
        begins with a whole checkpoint, in a resumed run, may not call it.

        Parameters
        ----------
        state : dict of str to array
            The arrays of the constructor's `state`, to be changed in place.
        """
        for name in state.keys() & self._control.keys():
            state[name][...] = self._control[name]

    def adjoint_start(self, adjoint: Arrays, /) -> None:
        """Add the part of x_0 to `gradient`: the transpose of `start`.

        Called once, after the adjoint of step 0. By default, dJ/dx_0 is added to the gradient of
        each control that has the name of a state array. Override it if you override `start`.

        Parameters
        ----------
        adjoint : dict of str to array
            dJ/dx_0, with arrays as in `adjoint_step`.
        """
        for name in adjoint.keys() & self._control.keys():
            self.gradient[name][...] += adjoint[name]

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        """Return the part of J that is a function of x_n, and set `adjoint` to dJ/dx_n.

        J is `adjoint["J"] * state["J"]` plus the value that this method returns; without "J" in the
        state, J is that value. Called before the first adjoint step, if `functional` is read, and
        before the model leaves the latest state that it has reached. The method is therefore also
        called with an x_i of an i less than n; the last call counts.

        Parameters
        ----------
        state : dict of str to array
            x_n without "J"; only to be read.
        adjoint : dict of str to array
            dJ/dx_n on return, with arrays as in `adjoint_step`. On entry, "J" is 1, the weight of
            `state["J"]` in J, and all others are zero. Set "J" to 1 / n for a mean over the steps,
            or to 0 to leave out `state["J"]`.
        n : int
            The step that the forward has reached.

        Returns
        -------
        float
            J without `adjoint["J"] * state["J"]`; 0 by default.
        """
        return 0.0

    def finished(self, state: Arrays, i: int, /) -> bool:
        """Return whether the model ends at x_i: True or False. Called before each step i.

        By default it returns False, so that the schedule determines the number of steps.

        Parameters
        ----------
        state : dict of str to array
            x_i; only to be read.
        i : int
            The number of the step that would follow.
        """
        return False

    def derive(self, name: str, arrays: Arrays, /) -> None:
        """Compute `arrays[name]` in place from the arrays in `derived[name]`.

        Called for each array in `recompute`, after a checkpoint was read and the forward continues
        from it, and before each adjoint step that reads the array. For every x_i the method must
        give the array that the steps give, to the last bit. Parts of the array that always keep the
        values given to the constructor need not be written.

        Parameters
        ----------
        name : str
            A key of `derived`.
        arrays : dict of str to array
            The arrays in `derived[name]`, to be read, and `arrays[name]`, to be written. All have
            the shapes of the state.
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
        """The state arrays that may be stored, and the flows of the steps; None without a flow."""
        return self._checkpoints.variables

    @property
    def functional(self) -> float:
        self._keep_seed()
        return float(self._adjoint.functional)

    def state_arrays(self) -> dict[str, Array]:
        """Return the arrays of the state by name, as they are now; only read them."""
        self._compute_due()
        return dict(self._state)

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
                tape, cotangent = self._tape_of(i), self._adjoint.cotangent
                returned: object = self.adjoint_step(cotangent, tape, i)
                if returned is not None:
                    self._refuse(self.adjoint_step, returned)
            except Exception as error:
                error.add_note(f"(adjoint of step {i})")
                raise
            self._tapes.spend(i)
            self._adjoint_at = i
            if i == 0:
                self._in_place(self.adjoint_start, self._adjoint.cotangent)
            if self.on_step is not None:
                self.on_step(i)

    def dump(self, key: Key, /) -> Buffers:
        match key.kind:
            case Kind.ADJOINT:
                self._checkpoints.layout(key)
                if not self._turned:
                    self._check_seeded(key.step)
                return self._views.of(self._adjoint.arrays())
            case Kind.RESTART:
                names, register = self._checkpoints.names(key), self._state
                self.make_start()
                self._compute_due()
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
                f"{key} does not fit this model: the checkpoint has {_listed(layout)}, but the"
                f" model has {_listed(self.layout(key))}; make the model with the options with"
                " which the checkpoint was written"
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
                    if key.name:
                        self._compute_due()
                    self._leave_state()
                    self._step, self._due = None if key.name else key.step, False
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
        return self._tapes.give(key.step, slot)

    def take(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        self._check_layout(key, layout)
        if isinstance(data, Views):
            self._tapes.take(key.step, data.arrays)
            return
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
        """Return the bytes of arrays of a checkpoint.

        Views of tapes are not remembered, because their memory may belong to a level.
        """
        if key.kind is Kind.TAPE:
            return [as_bytes(array) for array in arrays]
        return self._views.of(arrays)

    def _home(self, name: str, register: Arrays) -> Arrays:
        """Return the register that has an array: the state, for one that no step overwrites."""
        if name in register:
            return register
        self.make_start()
        return self._state

    def _tape_of(self, i: int) -> Arrays:
        """Return all arrays that the adjoint of step i reads.

        If the tape was read as single arrays, those that were not read are taken from the state.
        This is right because a run can be shorter than the model's flow: an array that changes only
        after the end of the run is on no tape.
        """
        if not self._tapes.may_hold(i) and self._checkpoints.reads_tape(i):
            raise RunFailed(
                f"the model has no tape of step {i}; record the step or read its tape before it is"
                " reversed"
            )
        tape = self._tapes.to_spend(i)
        if len(tape) == len(self._needed) and not self._scratch:
            return tape  # it has all arrays, as it has no others
        elsewhere = [n for n in self._state if n in self._needed and n not in tape]
        self.make_start()
        every = Arrays({**{n: self._state[n] for n in elsewhere}, **tape, **self._scratch})
        for name in self._scratch:
            self._in_place(self.derive, name, every)
        return Arrays({n: self._copied(n) if n in elsewhere else every[n] for n in self._taped})

    def _copied(self, name: str) -> Array:
        """Return a copy of an array of the state, which an adjoint step may overwrite."""
        array = self._copies.get(name)
        if array is None:
            array = self._copies[name] = copy(self._state[name])
        else:
            np.copyto(array, self._state[name])
        return array

    def _forward(self, begin: int, end: int, tapes: Tapes | None = None) -> int:
        if self._started and not self._stale and begin == self._step:
            self._compute_due()
        else:
            self._depart(begin)
        for i in range(begin, end):
            ends: object = self.finished(self._state, i)
            if ends is not False and self._is_true(ends, i):
                return i
            if self._has_flows:
                self._checkpoints.check_known(i)
            if tapes is not None:
                tapes.keep(i, self._state)
            if tapes is not None and i == end - 1 and self.records_late:
                self._step, self._due = end, True
            else:
                self._compute(i)
            if self.on_step is not None:
                self.on_step(i + 1)
        return end

    def _compute(self, i: int) -> None:
        try:
            returned: object = self.step(self._state, i)
            if returned is not None:
                self._refuse(self.step, returned)
        except Exception as error:
            error.add_note(f"(step {i})")
            raise
        self._step, self._due = i + 1, False

    def _compute_due(self) -> None:
        """Compute the last recorded step, if its state is asked for.

        If the step is reversed next, which needs its tape only, it is never computed.
        """
        if self._due and self._step is not None:
            self._compute(self._step - 1)

    def _is_true(self, ends: object, i: int) -> bool:
        try:
            return bool(ends)
        except Exception:  # each array library raises an error of its own
            raise RunFailed(
                f"{type(self).__name__}.finished returned {describe(ends)}; it must return True or"
                f" False: whether the model ends at step {i}"
            ) from None

    def _depart(self, begin: int) -> None:
        """Prepare the state for a forward run from x_begin.

        If arrays are stored one by one, the arrays that were read make the state x_begin; possibly
        none had to be read.
        """
        self.make_start()
        self._compute_due()
        if begin != self._step:
            if self.variables is None:
                raise RunFailed(_used("state", self._step, begin))
            self._leave_state()
            self._step = begin
        self._renew()

    def _leave_state(self) -> None:
        """Prepare for another state: save J and the adjoint's start, because this may be x_n."""
        if self._started:
            self._keep_seed()
        elif self.variables is None:
            self._started = True  # the checkpoint has the whole state, so `start` is not needed
        else:
            self.make_start()

    def _renew(self) -> None:
        """Compute the arrays again that are in no checkpoint."""
        if self._stale:
            for name in self._derived.names:
                self._in_place(self.derive, name, self._state)
            self._stale = False

    def _in_place(self, change: Callable[..., object], *arguments: object) -> None:
        """Call a method of the user, and raise RunFailed if it returns anything.

        Arrays that a method returns, instead of changing its arguments in place, would be lost.
        """
        if (returned := change(*arguments)) is not None:
            self._refuse(change, returned)

    def _refuse(self, change: Callable[..., object], returned: object) -> NoReturn:
        raise RunFailed(
            f"{type(self).__name__}.{change.__name__} returned {describe(returned)}; it must"
            " change its arrays in place and return nothing"
        )

    def make_start(self) -> None:
        """Compute x_0 by `start`, unless the state has values already."""
        if not self._started:
            self._in_place(self.start, self._state)
            self._started, self._step = True, 0

    def _keep_seed(self) -> None:
        """Save J and dJ/dx_i at the present x_i, if the forward has never been farther."""
        if self._turned:
            return
        self.make_start()
        i = self._step
        if i is None or i <= self._seeded_at:
            return
        self._compute_due()
        self._renew()
        for array in self._adjoint.arrays():
            array[...] = 0
        self._adjoint.functional[...] = functional_at(
            self.adjoint_seed, self._state, self._adjoint.cotangent, i
        )
        self._seeded_at = i

    def _check_seeded(self, n: int) -> None:
        self._keep_seed()
        if self._seeded_at != n:
            raise RunFailed(
                f"the adjoint cannot start at step {n}: the forward has reached step"
                f" {self._seeded_at}, and the adjoint starts where the forward ends; run the"
                f" forward to step {n}"
            )


class _WithoutJ(Arrays):
    """x_n as `adjoint_seed` reads it: a method that adds "J" itself would count it twice."""

    def __missing__(self, name: str) -> NoReturn:
        if name == "J":
            raise RunFailed(
                'adjoint_seed reads state["J"], which ckio adds itself: J is adjoint["J"] *'
                ' state["J"] plus what adjoint_seed returns; return only the other terms of J, and'
                ' set adjoint["J"] if the weight of state["J"] is not 1'
            )
        super().__missing__(name)


def functional_at(
    adjoint_seed: Callable[[Arrays, Arrays, int], object],
    state: Arrays,
    adjoint: Arrays,
    n: int,
    /,
) -> float:
    """Return J at x_n, and set `adjoint` to dJ/dx_n, by the method `adjoint_seed` of a model.

    Raises RunFailed if the method does not return a number.
    """
    for name, array in adjoint.items():
        array[...] = name == "J"
    others = _WithoutJ({name: array for name, array in state.items() if name != "J"})
    value: object = adjoint_seed(others, adjoint, n)
    try:
        rest = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise RunFailed(
            f"adjoint_seed returned {describe(value)}; it must return a number: the part of J that"
            " is a function of x_n"
        ) from None
    return float(adjoint["J"]) * float(state["J"]) + rest if "J" in state else rest


def _used(what: str, at: int | None, wanted: int) -> str:
    return (
        f"the {what} of this model is at step {at}, not {wanted}; make a fresh model for each run,"
        " also if an earlier run did only some of its steps"
    )


def _listed(layout: Layout) -> str:
    return ", ".join(f"{f.name} {f.dtype}{list(f.shape)}" for f in layout) or "nothing"
