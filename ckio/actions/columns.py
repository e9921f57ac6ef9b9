"""Actions in columns: a schedule of ten million actions takes a few hundred megabytes.

`Actions` behaves like a sequence of action objects, but consists of six numpy arrays. An object is
made when it is accessed. Functions that must be fast (makespan, validation, counts) use the
columns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, assert_never, overload

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.errors import BadInput

ADVANCE, RECORD, REVERSE, WRITE, READ, DISCARD = range(6)
"""The codes in column `op`."""

SPANS: Final = (Advance, Record, Reverse)
ACCESSES: Final = (Write, Read, Discard)
VERBS: Final = tuple(action.__name__.lower() for action in (*SPANS, *ACCESSES))
"""The names of the codes in column `op`."""

KINDS: Final = tuple(Kind)
KIND_CODE: Final = {kind: code for code, kind in enumerate(KINDS)}

_RESTART: Final = KIND_CODE[Kind.RESTART]

_CHUNK = 4096

_Number = TypeVar("_Number", bound=np.integer)
Row = tuple[int, int, int, int, int, int]
_ROW: Final = np.dtype(
    [
        ("op", np.uint8),
        ("kind", np.uint8),
        ("level", np.int16),
        ("begin", np.int64),
        ("end", np.int64),
        ("name", np.int32),
    ]
)
_UNNAMED: Final[Mapping[str, int]] = {"": 0}


class Actions(Sequence[Action]):
    """An immutable sequence of actions, stored in columns.

    Attributes
    ----------
    op : uint8 array
        The action: ADVANCE, RECORD, REVERSE, WRITE, READ or DISCARD.
    kind : uint8 array
        The kind of the key, as an index into KINDS; 0 without a key.
    level : int16 array
        The level of the key; 0 without a key.
    begin, end : int64 arrays
        The span. For an action with a key, `begin` is the step of the key, and `end` is 0.
    name : int32 array
        The variable of the key, as an index into `names`; `names[0]` is "".
    """

    __slots__ = ("begin", "end", "kind", "level", "name", "names", "op")

    def __init__(
        self,
        *,
        op: NDArray[np.uint8],
        begin: NDArray[np.int64],
        end: NDArray[np.int64],
        kind: NDArray[np.uint8] | None = None,
        level: NDArray[np.int16] | None = None,
        name: NDArray[np.int32] | None = None,
        names: tuple[str, ...] = ("",),
    ) -> None:
        size = len(op)
        self.op = _column(op, np.uint8)
        self.begin = _column(begin, np.int64)
        self.end = _column(end, np.int64)
        self.kind = _zeros(size, np.uint8) if kind is None else _column(kind, np.uint8)
        self.level = _zeros(size, np.int16) if level is None else _column(level, np.int16)
        self.name = _zeros(size, np.int32) if name is None else _column(name, np.int32)
        self.names = names
        for column in self._columns():
            if column.shape != (size,):
                raise BadInput(f"Actions: a column has {len(column)} rows, but `op` has {size}")
            column.flags.writeable = False
        if names[:1] != ("",) or len(set(names)) != len(names):
            raise BadInput(
                f"Actions: names = {names[:6]}; they must differ, and the first must be empty"
            )
        self._check()

    def _columns(self) -> tuple[NDArray[np.generic], ...]:
        return self.op, self.kind, self.level, self.begin, self.end, self.name

    def _check(self) -> None:
        """Raise BadInput for a row that is not a valid action."""
        access = self.op >= WRITE
        valid = (self.op <= DISCARD) & (self.begin >= 0)
        valid &= np.where(access, self.end == 0, self.end > self.begin)
        valid &= (self.level >= 0) & (self.kind < len(KINDS))
        valid &= (self.name >= 0) & (self.name < len(self.names))
        valid &= access | ((self.level == 0) & (self.kind == 0) & (self.name == 0))
        if not valid.all():
            number = int(np.argmin(valid))
            row = tuple(int(column[number]) for column in self._columns())
            raise BadInput(
                f"Actions: row {number}, (op, kind, level, begin, end, name) = {row}, is not a"
                " valid action"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # Unpickling calls the constructor, which makes the columns read-only and checks them.
        columns = {name: getattr(self, name) for name in Actions.__slots__}
        return partial(Actions, **columns), ()

    @classmethod
    def of(cls, actions: Iterable[Action], /) -> "Actions":
        """Return the actions of any iterable in columns."""
        if isinstance(actions, Actions):
            return actions
        names = {"": 0}
        return cls.of_rows((row_of(action, names) for action in actions), names)

    @classmethod
    def of_rows(cls, rows: Iterable[Row], names: Mapping[str, int] = _UNNAMED, /) -> "Actions":
        """Return rows, as `rows()` yields them, in columns.

        `names` maps variables to numbers, "" first. The iterator `rows` may still add to `names`.
        """
        try:
            table = np.fromiter(rows, _ROW)
        except OverflowError:
            raise BadInput(
                "Actions: a number is too large; steps must be below 2**63 and levels below 2**15"
            ) from None
        return cls(**{column: table[column] for column in _ROW.names or ()}, names=tuple(names))

    def __len__(self) -> int:
        return len(self.op)

    @overload
    def __getitem__(self, index: int, /) -> Action: ...
    @overload
    def __getitem__(self, index: slice, /) -> "Actions": ...
    def __getitem__(self, index: int | slice, /) -> "Action | Actions":
        if isinstance(index, slice):
            return self.take(index)
        return self._action(tuple(int(column[index]) for column in self._columns()))  # type: ignore[arg-type]

    def take(self, index: slice | NDArray[np.intp] | NDArray[np.bool_], /) -> "Actions":
        """Return the actions at `index`, which is any numpy index of one dimension."""
        return Actions(
            op=self.op[index],
            kind=self.kind[index],
            level=self.level[index],
            begin=self.begin[index],
            end=self.end[index],
            name=self.name[index],
            names=self.names,
        )

    def __add__(self, other: "Actions", /) -> "Actions":
        """Return these actions, then `other`."""
        names = {name: code for code, name in enumerate(dict.fromkeys(self.names + other.names))}
        recode = np.array([names[name] for name in other.names], np.int32)
        return Actions(
            op=np.concatenate((self.op, other.op)),
            kind=np.concatenate((self.kind, other.kind)),
            level=np.concatenate((self.level, other.level)),
            begin=np.concatenate((self.begin, other.begin)),
            end=np.concatenate((self.end, other.end)),
            name=np.concatenate((self.name, recode[other.name])),
            names=tuple(names),
        )

    def by_key(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the order of accesses by level and key, and the positions where each key begins.

        In that order, accesses to one key on one level remain in the order of the schedule.
        """
        columns = (self.begin, self.name, self.kind, self.level)
        order = np.lexsort(columns)
        return order, changes(*(column[order] for column in columns))

    def __iter__(self) -> Iterator[Action]:
        return map(self._action, self.rows())

    def rows(self) -> Iterator[Row]:
        """Yield (op, kind, level, begin, end, name) of each action as int numbers."""
        for start in range(0, len(self), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            yield from zip(*(column[chunk].tolist() for column in self._columns()), strict=True)

    def _action(self, row: Row, /) -> Action:
        op, _, level, begin, end, _ = row
        if op < WRITE:
            return SPANS[op](begin, end)
        return ACCESSES[op - WRITE](self.key(row), level)

    def key(self, row: Row, /) -> Key:
        """Return the key of a row of an access."""
        _, kind, _, step, _, name = row
        return Key(KINDS[kind], step, self.names[name])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Actions):
            return NotImplemented
        if len(self) != len(other):
            return False
        if self.names != other.names:
            return all(a == b for a, b in zip(self, other, strict=True))
        return all(
            np.array_equal(mine, theirs)
            for mine, theirs in zip(self._columns(), other._columns(), strict=True)
        )

    def __hash__(self) -> int:
        return hash((self.op.tobytes(), self.begin.tobytes(), self.level.tobytes()))

    def __repr__(self) -> str:
        head = ", ".join(str(action) for action in self[:4])
        return f"<{len(self)} actions: {head}{', ...' if len(self) > 4 else ''}>"


def recorded_only(actions: Actions, /) -> NDArray[np.bool_]:
    """Return which actions are Records after which nothing needs the state that they reach.

    The next action that uses or replaces the state is a Read of restart data, or there is none. A
    model that computes a recorded step only when its state is needed never computes the last step
    of such a Record; Griewank and Walther (2000) call it, with its Reverse, a youturn.

    >>> x_0 = Key(Kind.RESTART, 0)
    >>> done = [Write(x_0, 0), Record(0, 1), Record(1, 2), Reverse(1, 2), Read(x_0, 0)]
    >>> recorded_only(Actions.of([*done, Record(0, 1), Reverse(0, 1)])).tolist()
    [False, False, True, False, False, True, False]
    """
    states = (actions.op >= WRITE) & (actions.op <= READ) & (actions.kind == _RESTART)
    rows = np.flatnonzero((actions.op <= RECORD) | states)
    following = np.append(actions.op[rows[1:]], READ)
    only = np.zeros(len(actions), np.bool_)
    only[rows] = (actions.op[rows] == RECORD) & (following[: len(rows)] == READ)
    return only


def changes(*columns: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return which rows differ in any column from the row before; the first row always does.

    >>> changes(np.array([4, 4, 5, 5]), np.array([0, 1, 1, 1])).tolist()
    [True, True, True, False]
    """
    changed = np.ones(len(columns[0]), np.bool_)
    changed[1:] = False
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def _zeros(size: int, dtype: type[_Number], /) -> NDArray[_Number]:
    """Return a column of zeros that takes no memory: it is a view of a single zero."""
    return np.broadcast_to(dtype(0), (size,))


def _column(values: NDArray[np.generic], dtype: type[_Number], /) -> NDArray[_Number]:
    """Return the values in the type of their column; raise BadInput if a value would change."""
    with np.errstate(invalid="ignore"):  # the comparison below finds values that do not fit
        column = np.ascontiguousarray(values, dtype)
    if values.dtype != dtype and not np.array_equal(column, values):
        raise BadInput(
            f"Actions: a column of {values.dtype} has a value that is not a valid {column.dtype}"
        )
    return column


def row_of(action: Action, names: dict[str, int], /) -> Row:
    """Return the row of an action. A new name is added to `names`."""
    match action:
        case Advance(begin, end):
            return ADVANCE, 0, 0, begin, end, 0
        case Record(begin, end):
            return RECORD, 0, 0, begin, end, 0
        case Reverse(begin, end):
            return REVERSE, 0, 0, begin, end, 0
        case Write(key, level):
            return _access(WRITE, key, level, names)
        case Read(key, level):
            return _access(READ, key, level, names)
        case Discard(key, level):
            return _access(DISCARD, key, level, names)
        case _:
            assert_never(action)


def _access(op: int, key: Key, level: int, names: dict[str, int]) -> Row:
    return op, KIND_CODE[key.kind], level, key.step, 0, names.setdefault(key.name, len(names))
