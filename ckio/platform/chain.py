"""The computation: the number of time steps, their costs, and the sizes of their checkpoints."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Advance, Key, Kind, Record, Reverse
from ckio.actions.checks import check_cost, check_size, is_whole
from ckio.actions.columns import KIND_CODE, KINDS, SPANS, WRITE, Actions, recorded_only
from ckio.actions.variables import Variables
from ckio.errors import BadInput
from ckio.platform.readable import bytes_text, counted, seconds_text, sheet_text

_SHOWN = 3
"""Number of values that a representation shows at each end."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PerStep:
    """One number for each step, stored in an array.

    It can be compared, hashed, indexed and iterated like a tuple of Python numbers. It has no
    arithmetic on purpose: code that expects one number for all steps then fails with an error
    instead of computing a wrong result.

    Attributes
    ----------
    values : float64 or int64 array
        The numbers; read-only.
    before : array of the same type, one longer
        The cumulative sums: before[i] is the sum of the first i values; read-only.

    >>> PerStep(np.array([2, 3, 4])).before.tolist()
    [0, 2, 5, 9]
    """

    values: NDArray[Any]
    before: NDArray[Any] = field(init=False)

    def __post_init__(self) -> None:
        values = self.values + self.values.dtype.type(0)  # a copy, in which -0.0 is 0.0
        before = np.zeros(len(values) + 1, values.dtype)
        with np.errstate(over="ignore"):
            np.cumsum(values, out=before[1:])
        for name, column in (("values", values), ("before", before)):
            column.flags.writeable = False
            object.__setattr__(self, name, column)

    def __reduce__(self) -> tuple[type["PerStep"], tuple[NDArray[Any]]]:
        return PerStep, (self.values,)  # call the constructor, because a pickled array is writable

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, step: int, /) -> Any:
        return self.values[step].item()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PerStep):
            return NotImplemented
        return np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __repr__(self) -> str:
        shown = [repr(value) for value in self]
        if len(shown) > 2 * _SHOWN:
            shown[_SHOWN:-_SHOWN] = ["..."]
        return f"PerStep({len(self)}: {', '.join(shown)})"


Each: TypeAlias = Sequence[Any] | NDArray[Any] | PerStep
"""A sequence with one number for each step."""


def _one_or_each(
    what: str,
    given: Any,
    steps: int | None,
    check: Callable[[str, object], Any],
    *,
    of_states: bool,
) -> Any:
    """Return a checked cost: one number, or a PerStep if the steps differ.

    `what` is the name of the cost for errors, and `check` checks one number. A cost `of_states` may
    have steps + 1 numbers. Raises BadInput if a number or the length of the sequence is wrong.
    """
    if not _is_sequence(given):
        return check(what, given)
    if steps is None:
        raise BadInput(
            f"{what} has a value for each step, but the number of steps is not known; give `steps`"
        )
    if len(given) not in (steps, steps + of_states):
        raise BadInput(f"{what} has {len(given)} values; the chain has {steps} steps")
    values = _column(what, given, check)
    if len(values) < steps + of_states:
        values = np.append(values, values[-1])
    if (values == values[0]).all():
        return check(what, values[0].item())
    return PerStep(values)


def _is_sequence(given: object) -> bool:
    if isinstance(given, np.ndarray):
        return given.ndim > 0
    return isinstance(given, Sequence | PerStep) and not isinstance(given, str | bytes)


def _column(what: str, given: Each, check: Callable[[str, object], Any]) -> NDArray[Any]:
    """Return the checked numbers as an array of float64 or int64."""
    dtype = np.float64 if check is check_cost else np.int64
    if isinstance(given, PerStep):
        given = given.values
    number = float if dtype is np.float64 else int
    if not isinstance(given, np.ndarray) and set(map(type, given)) == {number}:
        with suppress(OverflowError):
            given = np.array(given, dtype)
    if isinstance(given, np.ndarray) and given.ndim == 1 and given.dtype == dtype:
        good = np.isfinite(given) & (given >= 0)
        if not good.all():
            step = int(good.argmin())
            check(f"{what}[{step}]", given[step])
        return given
    values = [check(f"{what}[{step}]", value) for step, value in enumerate(given)]
    try:
        return np.array(values, dtype)
    except OverflowError:
        raise BadInput(f"{what}: a checkpoint must be below 2**63 bytes") from None


SECONDS: Final = ("advance", "record", "reverse")
SIZES: Final = ("restart", "tape", "adjoint")
COSTS: Final = SECONDS + SIZES
"""The names of the costs and sizes of a step that every chain has, in the order of files."""

_MEASURED: Final = 1.05
"""The factor by which seconds of the same step may differ, if they are measured one by one."""

ALL_COSTS: Final = (*COSTS, "record_only")
"""These, and the one that a chain may leave out."""

_NAMES: Final[dict[object, str]] = {
    **{name: name for name in ALL_COSTS},
    **{span: span.__name__.lower() for span in SPANS},
    **{kind: kind.name.lower() for kind in KINDS},
}
"""The names of the costs: of each by its name, of an action by its class, of a key by its kind."""

_OF_STATES: Final = ("restart", "adjoint")
"""Sizes with n + 1 values for n steps, because there are states x_0 to x_n and a_0 to a_n."""

_COUNTABLE: Final = 2**63
"""Numbers of steps and sums of bytes must be smaller than this, because arrays are of int64."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A chain of time steps, with the seconds and bytes of each step.

    Each cost is either one number for all steps, or a sequence with one number for each step:
    advance[i], record[i] and reverse[i] are the costs of step i; restart[i], tape[i] and adjoint[i]
    are the sizes of x_i, t_i and a_i. There are n steps and n + 1 states. Therefore restart and
    adjoint may have one more number, for x_n and a_n; without it, x_n is as large as x_(n-1), and
    a_n as large as a_(n-1).

    A sequence of equal numbers is stored as one number. Any other sequence is stored as a
    `PerStep`, although the types below are float and int. Code for uniform steps must therefore
    test `varies` first.

    Attributes
    ----------
    steps : int or None
        Number of steps. None if it is not known yet, or if the chain has only the costs of a model;
        then all steps have the same costs.
    advance, record, reverse : float
        Seconds of one step: forward without tape; forward with recording its tape; its adjoint,
        which consumes the tape.
    record_only : float or None
        Seconds to record the tape of a step if the state after it is not needed, because the step
        is reversed next (`ckio.actions.columns.recorded_only`). By default `record`, which it
        cannot exceed. For a tape that is a part of x_i, this is the time of a copy.
    tape_restarts : bool
        Whether the tape of step i also contains x_{i+1}, so that the state is x_{i+1} after it is
        read, and the forward restarts from there. For example, the adjoint of an implicit step
        reads x_{i+1}, and the stages of a Runge-Kutta step are stored with its result.
    restart, tape, adjoint : int
        Bytes of one checkpoint: of the state x_i; of the tape of one step; of the adjoint state
        a_i. All checkpoints of all steps together must have less than 2**63 bytes, so that no sum
        overflows.
    variables : Variables or None
        The variables of a state, if restart data is stored variable by variable (see
        `ckio.analysis.lower`). None if checkpoints are stored whole.
    handed : frozenset of Kind
        The kinds of checkpoints that the model passes in memory without a copy (see `Handing`).
        Checkpoints of single variables are always copied.

    For example, 100 steps of 1 s forward and 2 s for the adjoint:

    >>> chain = Chain(steps=100, advance=1, record=1, reverse=2, restart=8, tape=80, adjoint=8)
    >>> chain.seconds(Advance(0, 10)), chain.seconds(Reverse(0, 10))
    (10.0, 20.0)
    """

    steps: int | None
    advance: float
    record: float
    reverse: float
    restart: int
    tape: int
    adjoint: int
    record_only: float | None = None
    tape_restarts: bool = False
    variables: Variables | None = None
    handed: frozenset[Kind] = frozenset()

    if TYPE_CHECKING:

        def __init__(  # the constructor also accepts sequences and other collections
            self,
            *,
            steps: int | None,
            advance: float | Each,
            record: float | Each,
            reverse: float | Each,
            restart: int | Each,
            tape: int | Each,
            adjoint: int | Each,
            record_only: float | Each | None = None,
            tape_restarts: bool = False,
            variables: Variables | None = None,
            handed: Collection[Kind] = frozenset(),
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.steps is not None and (not is_whole(self.steps) or self.steps < 1):
            raise BadInput(
                f"Chain: steps = {self.steps!r}; it must be a whole number of at least 1"
            )
        object.__setattr__(self, "steps", None if self.steps is None else int(self.steps))
        for name in COSTS if self.record_only is None else ALL_COSTS:
            check = check_size if name in SIZES else check_cost
            given, of_states = getattr(self, name), name in _OF_STATES
            what = f"Chain: {name}"
            cost = _one_or_each(what, given, self.steps, check, of_states=of_states)
            object.__setattr__(self, name, cost)
        if (_values(self.saved) < 0).any():
            raise BadInput(
                f"Chain: record_only = {self.record_only}, record = {self.record}; to record a step"
                " and compute the state after it cannot take less than to record it only"
            )
        if (_values(self.saved) > _MEASURED * _values(self.advance)).any():
            raise BadInput(
                f"Chain: record = {self.record}, record_only = {self.record_only}, advance ="
                f" {self.advance}; the state after a recorded step is computed in the time of an"
                " Advance: give record = record_only + advance"
            )
        if self.tape_restarts and not (self.record_only is None and self.variables is None):
            other = "record_only" if self.variables is None else "variables"
            raise BadInput(
                f"Chain: tape_restarts = True and {other} are given; a tape that contains the state"
                " after its step is recorded with that state, and both are stored whole"
            )
        self._check_sums()
        if not isinstance(self.tape_restarts, bool):
            raise BadInput(f"Chain: tape_restarts = {self.tape_restarts!r}; it is True or False")
        object.__setattr__(self, "handed", frozenset(self.handed))
        if not all(isinstance(kind, Kind) for kind in self.handed):
            raise BadInput(f"Chain: handed = {set(self.handed)}; it must be kinds of checkpoints")
        if self.variables is not None and self.steps is not None:
            self.variables.over(self.steps)

    def __str__(self) -> str:
        rows = [[name, _range_text(cost, name)] for name, cost in self.costs.items()]
        notes = []
        if self.variables is not None:
            notes.append(f"stored variable by variable: {', '.join(self.variables.nbytes)}")
        if self.handed:
            kinds = sorted(kind.name.lower() for kind in self.handed)
            notes.append(f"passed without a copy: {', '.join(kinds)}")
        if self.tape_restarts:
            notes.append("the forward restarts from tapes")
        steps = "an unknown number of steps"
        title = f"chain of {steps if self.steps is None else counted(self.steps, 'step')}"
        return sheet_text(title, ["of a step", "cost"], rows, notes)

    def _check_sums(self) -> None:
        """Raise BadInput if a sum over all steps does not fit 64 bits."""
        for name in SECONDS:
            if isinstance(cost := self._costs[name], PerStep):
                check_cost(f"Chain: {name} of all steps", cost.before[-1])
        states = 1 + (self.steps or 0)
        sizes = [self._costs[name] for name in SIZES]
        total = sum(sum(it) if isinstance(it, PerStep) else states * it for it in sizes)
        if max(states, total) >= _COUNTABLE:
            raise BadInput(
                f"Chain: steps = {self.steps}, restart = {self.restart}, tape = {self.tape},"
                f" adjoint = {self.adjoint}; all checkpoints together must be below 2**63 bytes"
            )
        if self.variables and 2 * states * sum(self.variables.nbytes.values()) >= _COUNTABLE:
            raise BadInput(
                f"Chain: steps = {self.steps}, variables of {sum(self.variables.nbytes.values())}"
                " bytes; the variables of all states and tapes together must be below 2**63 bytes"
            )

    @property
    def length(self) -> int:
        """The number of steps; raises BadInput if it is not known."""
        if self.steps is None:
            raise BadInput("Chain: the number of steps is not known; give `steps`")
        return self.steps

    @property
    def declared(self) -> dict[str, Any]:
        """The properties of checkpoints that a model declares, as arguments of Chain.

        >>> Chain(steps=2, advance=1, record=1, reverse=1, restart=8, tape=8, adjoint=8).declared
        {'handed': frozenset(), 'tape_restarts': False}
        """
        return {"handed": self.handed, "tape_restarts": self.tape_restarts}

    @property
    def costs(self) -> dict[str, Any]:
        """The costs and sizes that this chain has, by name, in the order of files."""
        costs = {name: getattr(self, name) for name in ALL_COSTS}
        return {name: cost for name, cost in costs.items() if cost is not None}

    @cached_property
    def saved(self) -> Any:
        """`record` - `record_only`: the seconds that a step saves if it is recorded only."""
        if self.record_only is None:
            return 0.0
        if any(isinstance(self._costs[name], PerStep) for name in ("record", "record_only")):
            return PerStep(self.each("record") - self.each("record_only"))
        return self.record - self.record_only

    def saved_of_each(self) -> NDArray[np.float64]:
        """Return `saved` of every step, as an array."""
        return np.broadcast_to(_values(self.saved), self.length)

    @cached_property
    def varies(self) -> bool:
        """Whether the costs or sizes of the steps differ."""
        return any(isinstance(cost, PerStep) for cost in self.costs.values())

    @cached_property
    def _costs(self) -> dict[object, Any]:
        return {of: getattr(self, name) for of, name in _NAMES.items()}

    def with_steps(self, steps: int, /) -> "Chain":
        """Return this chain with `steps` steps.

        If its steps differ, the result has the first `steps` of them; raises BadInput if there are
        fewer.
        """
        if self.varies and not (is_whole(steps) and 1 <= steps <= self.length):
            raise BadInput(
                f"Chain: steps = {steps!r}; this chain knows the costs of {self.length} steps, each"
                " its own"
            )
        first: dict[str, Any] = {
            name: cost.values[: steps + (name in _OF_STATES)]
            for name, cost in self.costs.items()
            if isinstance(cost, PerStep)
        }
        variables = self.variables and self.variables.cut(steps)
        return replace(self, steps=steps, variables=variables, **first)

    def each(self, cost: str, /) -> NDArray[Any]:
        """Return an array with a cost or size of every step, by its name, for example "advance".

        It has n elements for n steps, and n + 1 for "restart" and "adjoint".
        """
        return np.broadcast_to(_values(self._costs[cost]), self.length + (cost in _OF_STATES))

    def largest(self, size: str, /) -> int:
        """Return the bytes of the largest checkpoint of a kind: "restart", "tape" or "adjoint"."""
        return int(_values(self._costs[size]).max())

    def nbytes(self, key: Key, /) -> int:
        """Return the bytes of the checkpoint with this key.

        Raises BadInput if the chain does not know the variable of the key, or if the steps differ
        and the key is after the end of the chain.
        """
        if key.name:
            return self._bytes_of_variable(key)
        try:
            return int(_at(self._costs[key.kind], key.step))
        except IndexError:
            raise self._beyond(key) from None

    def parts(self, key: Key, /) -> tuple[Key, ...]:
        """Return the keys under which a checkpoint is stored: `key`, or one for each variable."""
        return (key,) if self.variables is None else self.variables.parts(key, self.length)

    def seconds(self, action: Action, /) -> float:
        """Return the seconds of computation of an action.

        It is 0 for storage actions, whose costs are those of a level. If the steps differ, the
        seconds of a span of steps are the difference of two cumulative sums; a span that ends after
        the chain then raises BadInput.
        """
        if not isinstance(action, Advance | Record | Reverse):
            return 0.0
        try:
            return float(_over(self._costs[type(action)], action.begin, action.end))
        except IndexError:
            raise self._beyond(action) from None

    def tape_bytes(self, begin: int, end: int, /) -> int:
        """Return the bytes of the tape of all steps from `begin` to `end` - 1."""
        return int(_over(self.tape, begin, end))

    def tape_bytes_of(
        self, begin: NDArray[np.int64], end: NDArray[np.int64], /
    ) -> NDArray[np.int64]:
        """Return `tape_bytes` of many spans as an array; no span may end after the chain."""
        nbytes: NDArray[np.int64] = _over(self.tape, begin, end)
        return nbytes

    def nbytes_of(self, actions: Actions, /) -> NDArray[np.int64]:
        """Return `nbytes` of each action's key as an array; 0 if an action has no key."""
        nbytes = np.zeros(len(actions), np.int64)
        for code, kind in enumerate(KINDS):
            rows = (actions.op >= WRITE) & (actions.kind == code)
            self._check_within(actions, rows)
            nbytes[rows] = _at(self._costs[kind], actions.begin[rows])
        for name in range(1, len(actions.names)):
            rows = actions.name == name
            for kind in np.unique(actions.kind[rows]).tolist():
                key = Key(KINDS[kind], 0, actions.names[name])
                nbytes[rows & (actions.kind == kind)] = self._bytes_of_variable(key)
        return nbytes

    def copied(self, key: Key, /) -> int:
        """Return the bytes of a checkpoint that are copied between the model and memory.

        It is 0 if the model passes this kind of checkpoint without a copy.
        """
        return 0 if key.kind in self.handed and not key.name else self.nbytes(key)

    def copied_of(self, actions: Actions, /) -> NDArray[np.int64]:
        """Return `copied` of each action's key as an array; 0 if an action has no key."""
        nbytes = self.nbytes_of(actions)
        for kind in self.handed:
            nbytes[(actions.kind == KIND_CODE[kind]) & (actions.name == 0)] = 0
        return nbytes

    def seconds_of(self, actions: Actions, /) -> NDArray[np.float64]:
        """Return the seconds of computation of each action of a schedule, as an array.

        They are bitwise those of `seconds`, less what `saved_by` returns.
        """
        seconds = np.zeros(len(actions))
        for op, span in enumerate(SPANS):
            rows = actions.op == op
            self._check_within(actions, rows)
            seconds[rows] = _over(self._costs[span], actions.begin[rows], actions.end[rows])
        return np.maximum(seconds - self.saved_by(actions), 0.0)  # rounding may be larger

    def saved_by(self, actions: Actions, /) -> NDArray[np.float64]:
        """Return the seconds that each action of a schedule saves: `saved` of its last step, or 0.

        J and the start of the adjoint need x_n, the first time that it is reached. Variables that
        are stored one by one save nothing, because others of the state may be needed.
        """
        seconds = np.zeros(len(actions))
        if self.record_only is not None and self.variables is None:
            rows, ends = recorded_only(actions), (actions.op < WRITE) & (actions.end == self.steps)
            if ends.any():
                rows[ends.argmax()] = False
            seconds[rows] = _at(self.saved, actions.end[rows] - 1)
        return seconds

    def within(self, actions: Actions, /) -> NDArray[np.bool_]:
        """Return, for each action, whether its steps and its key are within the chain."""
        last = self.length - (actions.kind == KIND_CODE[Kind.TAPE])
        within: NDArray[np.bool_] = np.where(actions.op < WRITE, actions.end, actions.begin) <= last
        return within

    def _bytes_of_variable(self, key: Key) -> int:
        known = {} if self.variables is None else self.variables.nbytes
        if key.kind is Kind.ADJOINT or key.name not in known:
            raise BadInput(
                f"Chain: {key} is one variable;"
                f" {_known(known) if key.kind is not Kind.ADJOINT else 'adjoints are stored whole'}"
            )
        return known[key.name]

    def _check_within(self, actions: Actions, which: NDArray[np.bool_]) -> None:
        if not self.varies:
            return  # the costs of equal steps do not end with the chain
        beyond = which & ~self.within(actions)
        if beyond.any():
            raise self._beyond(actions[int(beyond.argmax())])

    def _beyond(self, what: Action | Key) -> BadInput:
        return BadInput(f"Chain: {what} is beyond the end; the chain has {self.steps} steps")


def known_with(known: Mapping[str, float], given: Collection[str], /) -> Mapping[str, float]:
    """Return known costs beside given ones: `record_only` belongs to the `record` that is known."""
    if "record" not in given:
        return known
    return {name: cost for name, cost in known.items() if name != "record_only"}


def _at(cost: Any, step: Any) -> Any:
    """Return a cost of a step, or of each step in an array; IndexError beyond the end."""
    return cost.values[step] if isinstance(cost, PerStep) else cost


def _over(cost: Any, begin: Any, end: Any) -> Any:
    """Return the sum of a cost over the steps [begin, end), or over each of many such spans."""
    if isinstance(cost, PerStep):
        return cost.before[end] - cost.before[begin]
    return (end - begin) * cost


def _values(cost: Any) -> NDArray[Any]:
    """Return a cost of each step; of equal steps, one number."""
    return cost.values if isinstance(cost, PerStep) else np.array([cost])


def _range_text(cost: Any, name: str) -> str:
    """Return a cost as text, or the smallest and the largest one if they differ."""
    text: Callable[[Any], str] = bytes_text if name in SIZES else seconds_text
    values = _values(cost)
    return " to ".join(dict.fromkeys(text(it.item()) for it in (values.min(), values.max())))


def _known(variables: Mapping[str, int]) -> str:
    if not variables:
        return "this chain knows whole checkpoints only"
    return f"this chain knows {', '.join(variables)}"
