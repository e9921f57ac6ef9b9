"""The computation: how many steps, what each costs, how large its checkpoints are."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.checks import check_cost, check_size, is_whole
from ckio.actions.columns import KIND_CODE, KINDS, SPANS, WRITE, Actions
from ckio.actions.variables import Variables
from ckio.errors import BadInput
from ckio.platform.readable import Printed, Sheet, bytes_text, counted, seconds_text

_SHOWN = 3
"""How many numbers at either end a representation shows."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PerStep:
    """Numbers by step: compared, hashed and walked like a tuple of plain ones, kept in columns.

    It has no arithmetic on purpose: what takes it for the one number of a chain whose steps are all
    alike fails at once, and cannot go on with something else.

    Attributes
    ----------
    values : float64 or int64 array
        One for each step; read only.
    before : array of the same type, one longer
        Their sums from the left: of none, of the first, of the first two; read only.
    """

    values: NDArray[Any]
    before: NDArray[Any] = field(init=False)

    def __post_init__(self) -> None:
        values = self.values + self.values.dtype.type(0)  # a copy, and -0.0 is 0.0 there
        before = np.zeros(len(values) + 1, values.dtype)
        with np.errstate(over="ignore"):
            np.cumsum(values, out=before[1:])
        for name, column in (("values", values), ("before", before)):
            column.flags.writeable = False
            object.__setattr__(self, name, column)

    def __reduce__(self) -> tuple[type["PerStep"], tuple[NDArray[Any]]]:
        return PerStep, (self.values,)  # made anew: a column that was pickled may be written to

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
"""One number for each step."""


def one_or_each(
    what: str,
    given: Any,
    steps: int | None,
    check: Callable[[str, object], Any],
    /,
    *,
    of_states: bool,
) -> Any:
    """A cost as one number, or as a PerStep where there are several; raises BadInput.

    `of_states`, there may be one more than there are steps.
    """
    if not _is_sequence(given):
        return check(what, given)
    if steps is None:
        raise BadInput(f"{what} has a value for each step, and the number of steps is not known")
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
    """The numbers, each of which passes its `check`, as float64 or int64."""
    dtype = np.float64 if check is check_cost else np.int64
    if isinstance(given, PerStep):
        given = given.values
    if set(map(type, given)) == {float if dtype is np.float64 else int}:
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
"""The names of everything that describes one step, in the order in which files list them."""

_OF_STATES: Final = ("restart", "adjoint")
"""Of these there is one more than there are steps: those of x_n and a_n."""

_COUNTABLE: Final = 2**63
"""Columns hold steps, and sums of bytes, in 64 bits."""


@dataclass(frozen=True, kw_only=True)
class Chain(Printed):
    """A chain of steps, all alike or each with seconds and bytes of its own.

    Everything but `steps` is one number, or a sequence with one number for each step: advance[i],
    record[i] and reverse[i] of step i, and restart[i], tape[i] and adjoint[i] of x_i, t_i and a_i.
    As there are n steps and n + 1 states, restart and adjoint may have one number more, of x_n and
    a_n; without it those two are as large as x_(n-1) and a_(n-1). A sequence of equal numbers is
    the same as one number. Others are kept as a `PerStep`, also where the types say float or int:
    what is written for steps that are all alike asks `varies` first.

    Attributes
    ----------
    steps : int or None
        How many; None while a program of unknown length still runs, or for a model's costs alone:
        then all steps are alike.
    advance, record, reverse : float
        Seconds for one step: forward; forward keeping its tape; back, spending its tape.
    restart, tape, adjoint : int
        Bytes of one checkpoint: x_i; the tape of one step; the adjoint sweep at one step. One of
        each for every step are less than 2**63 in all, so that no sum of them overflows.
    variables : Variables or None
        What states are made of, where restart data is stored variable by variable: see
        `ckio.analysis.lower`. None where checkpoints are whole.
    handed : frozenset of Kind
        The kinds of checkpoints that the model hands over in memory without a copy; those of single
        variables are always copied. See `Handing`.
    """

    steps: int | None
    advance: float
    record: float
    reverse: float
    restart: int
    tape: int
    adjoint: int
    variables: Variables | None = None
    handed: frozenset[Kind] = frozenset()

    if TYPE_CHECKING:

        def __init__(  # what may be given is more than what is usually read
            self,
            *,
            steps: int | None,
            advance: float | Each,
            record: float | Each,
            reverse: float | Each,
            restart: int | Each,
            tape: int | Each,
            adjoint: int | Each,
            variables: Variables | None = None,
            handed: Collection[Kind] = frozenset(),
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.steps is not None and (not is_whole(self.steps) or self.steps < 1):
            raise BadInput(
                f"Chain: steps = {self.steps!r}; it must be a whole number of at least 1"
            )
        object.__setattr__(self, "steps", None if self.steps is None else int(self.steps))
        for name in COSTS:
            check = check_cost if name in SECONDS else check_size
            given, of_states = getattr(self, name), name in _OF_STATES
            what = f"Chain: {name}"
            cost = one_or_each(what, given, self.steps, check, of_states=of_states)
            object.__setattr__(self, name, cost)
        self._check_sums()
        object.__setattr__(self, "handed", frozenset(self.handed))
        if not all(isinstance(kind, Kind) for kind in self.handed):
            raise BadInput(f"Chain: handed = {set(self.handed)}; it must be kinds of checkpoints")
        if self.variables is not None and self.steps is not None:
            self.variables.over(self.steps)

    def _sheet(self) -> Sheet:
        rows = [[name, _range_text(getattr(self, name), name)] for name in COSTS]
        notes = []
        if self.variables is not None:
            notes.append(f"stored variable by variable: {', '.join(self.variables.nbytes)}")
        if self.handed:
            kinds = sorted(kind.name.lower() for kind in self.handed)
            notes.append(f"handed over without a copy: {', '.join(kinds)}")
        steps = "a number of steps that is not known"
        title = f"chain of {steps if self.steps is None else counted(self.steps, 'step')}"
        return Sheet(title, ["of a step", "cost"], rows, notes)

    def _check_sums(self) -> None:
        """No sum over the steps is beyond what columns hold."""
        for name in SECONDS:
            if isinstance(given := getattr(self, name), PerStep):
                check_cost(f"Chain: {name} of all steps", given.before[-1])
        states = 1 + (self.steps or 0)
        sizes = [getattr(self, name) for name in SIZES]
        alike = states * sum(size for size in sizes if not isinstance(size, PerStep))
        other = sum(sum(size) for size in sizes if isinstance(size, PerStep))
        if max(states, alike + other) >= _COUNTABLE:
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
        """The number of steps; raises BadInput where it is not known."""
        if self.steps is None:
            raise BadInput("Chain: the number of steps is not known; give `steps`")
        return self.steps

    @cached_property
    def varies(self) -> bool:
        """Whether steps differ in what they cost or in the bytes of their checkpoints."""
        return any(isinstance(getattr(self, name), PerStep) for name in COSTS)

    def with_steps(self, steps: int, /) -> "Chain":
        """Return this chain with `steps` steps; where its steps differ, the first of them.

        Raises BadInput for more steps than there are costs of.
        """
        if not self.varies:
            variables = self.variables and self.variables.cut(steps)
            return replace(self, steps=steps, variables=variables)
        if not is_whole(steps) or not 1 <= steps <= self.length:
            raise BadInput(
                f"Chain: steps = {steps!r}; this chain knows the costs of {self.length} steps, each"
                " its own"
            )
        costs = {name: self.each(name)[: steps + (name in _OF_STATES)] for name in COSTS}
        variables = self.variables and self.variables.cut(steps)
        return Chain(steps=steps, variables=variables, handed=self.handed, **costs)

    def each(self, cost: str, /) -> NDArray[Any]:
        """One of the costs and sizes, by its name, for every step; n + 1 of restart and adjoint."""
        given, count = getattr(self, cost), self.length + (cost in _OF_STATES)
        return given.values if isinstance(given, PerStep) else np.full(count, given)

    def largest(self, size: str, /) -> int:
        """The bytes of the largest checkpoint: of its restart, tape or adjoint, by name."""
        given = getattr(self, size)
        return int(given.values.max()) if isinstance(given, PerStep) else int(given)

    def nbytes(self, key: Key, /) -> int:
        """Bytes of a checkpoint.

        Raises BadInput where steps differ and the key is beyond the end of the chain, and for a
        variable that it does not know.
        """
        if key.name:
            return self._bytes_of_variable(key)
        match key.kind:
            case Kind.RESTART:
                size = self.restart
            case Kind.TAPE:
                size = self.tape
            case Kind.ADJOINT:
                size = self.adjoint
        if isinstance(size, PerStep):
            if key.step >= len(size):
                raise self._beyond(key)
            return size[key.step]
        return size

    def parts(self, key: Key, /) -> tuple[Key, ...]:
        """Return the keys that a checkpoint is stored under: its own, or one for each variable."""
        return (key,) if self.variables is None else self.variables.parts(key, self.length)

    def seconds(self, action: Action, /) -> float:
        """Seconds of computing; storage actions take none here, a level prices them.

        Where steps differ, those of a span are the difference of two sums from the left, and one
        that goes beyond the end of the chain raises BadInput.
        """
        match action:
            case Advance(begin, end):
                price = self.advance
            case Record(begin, end):
                price = self.record
            case Reverse(begin, end):
                price = self.reverse
            case Write() | Read() | Discard():
                return 0.0
            case _:
                assert_never(action)
        if isinstance(price, PerStep):
            if end > len(price):
                raise self._beyond(action)
            return (price.before[end] - price.before[begin]).item()
        return (end - begin) * price

    def tape_bytes(self, begin: int, end: int, /) -> int:
        """Bytes of the tape of the steps [begin, end) together."""
        if isinstance(self.tape, PerStep):
            return (self.tape.before[end] - self.tape.before[begin]).item()
        return (end - begin) * self.tape

    def tape_bytes_of(
        self, begin: NDArray[np.int64], end: NDArray[np.int64], /
    ) -> NDArray[np.int64]:
        """`tape_bytes` of many spans, none of them beyond the end."""
        if isinstance(self.tape, PerStep):
            return self.tape.before[end] - self.tape.before[begin]
        return (end - begin) * self.tape

    def nbytes_of(self, actions: Actions, /) -> NDArray[np.int64]:
        """`nbytes` of each action's key, a column at a time; 0 where an action has no key."""
        if self.varies:
            nbytes = self._nbytes_of(actions)
        else:
            sizes = np.array([self.nbytes(Key(kind, 0)) for kind in KINDS], np.int64)
            nbytes = np.where(actions.op >= WRITE, sizes[actions.kind], 0)
        for name in range(1, len(actions.names)):
            rows = actions.name == name
            for kind in np.unique(actions.kind[rows]).tolist():
                key = Key(KINDS[kind], 0, actions.names[name])
                nbytes[rows & (actions.kind == kind)] = self._bytes_of_variable(key)
        return nbytes

    def copied(self, key: Key, /) -> int:
        """Bytes that are copied between the model and memory; none of what is handed over."""
        return 0 if key.kind in self.handed and not key.name else self.nbytes(key)

    def copied_of(self, actions: Actions, /) -> NDArray[np.int64]:
        """`copied` of each action's key, a column at a time; 0 where an action has no key."""
        nbytes = self.nbytes_of(actions)
        for kind in self.handed:
            nbytes[(actions.kind == KIND_CODE[kind]) & (actions.name == 0)] = 0
        return nbytes

    def seconds_of(self, actions: Actions, /) -> NDArray[np.float64]:
        """`seconds` of each action, a column at a time and equal to the last bit."""
        if self.varies:
            return self._seconds_of(actions)
        unit = np.array([self.advance, self.record, self.reverse, 0.0, 0.0, 0.0])
        seconds: NDArray[np.float64] = (actions.end - actions.begin) * unit[actions.op]
        return seconds

    def within(self, actions: Actions, /) -> NDArray[np.bool_]:
        """Whether each action is on steps that this chain has, and on keys that it may have."""
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

    def _nbytes_of(self, actions: Actions) -> NDArray[np.int64]:
        nbytes = np.zeros(len(actions), np.int64)
        for code, kind in enumerate(KINDS):
            size = getattr(self, kind.name.lower())
            rows = (actions.op >= WRITE) & (actions.kind == code)
            if isinstance(size, PerStep):
                self._check_within(actions, rows)
                nbytes[rows] = size.values[actions.begin[rows]]
            else:
                nbytes[rows] = size
        return nbytes

    def _seconds_of(self, actions: Actions) -> NDArray[np.float64]:
        seconds = np.zeros(len(actions))
        for op, span in enumerate(SPANS):
            price, rows = getattr(self, span.__name__.lower()), actions.op == op
            begin, end = actions.begin[rows], actions.end[rows]
            if isinstance(price, PerStep):
                self._check_within(actions, rows)
                seconds[rows] = price.before[end] - price.before[begin]
            else:
                seconds[rows] = (end - begin) * price
        return seconds

    def _check_within(self, actions: Actions, which: NDArray[np.bool_]) -> None:
        beyond = which & ~self.within(actions)
        if beyond.any():
            raise self._beyond(actions[int(beyond.argmax())])

    def _beyond(self, what: Action | Key) -> BadInput:
        return BadInput(f"Chain: {what} is beyond the end; the chain has {self.steps} steps")


def _range_text(cost: float | PerStep, name: str) -> str:
    """A cost in words, or the least and the largest of those that differ."""
    text: Callable[[Any], str] = seconds_text if name in SECONDS else bytes_text
    if not isinstance(cost, PerStep):
        return text(cost)
    least, most = (text(value.item()) for value in (cost.values.min(), cost.values.max()))
    return f"{least} to {most}"


def _known(variables: Mapping[str, int]) -> str:
    if not variables:
        return "this chain knows whole checkpoints only"
    return f"this chain knows {', '.join(variables)}"
