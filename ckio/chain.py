"""The computation: how many steps, what each costs, how large its checkpoints are."""

import math
from dataclasses import dataclass, replace
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.columns import KINDS, WRITE, Actions
from ckio.errors import BadInput

SECONDS: Final = ("advance", "record", "reverse")
SIZES: Final = ("restart", "tape", "adjoint")
COSTS: Final = SECONDS + SIZES
"""The names of everything that describes one step, in the order in which files list them."""

_COUNTABLE: Final = 2**63
"""Columns hold steps, and sums of bytes, in 64 bits."""


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A chain of steps, all alike.

    Attributes
    ----------
    steps : int or None
        How many; None while a program of unknown length still runs, or for a model's costs alone.
    advance, record, reverse : float
        Seconds for one step: forward; forward keeping its tape; back, spending its tape.
    restart, tape, adjoint : int
        Bytes of one checkpoint: x_i; the tape of one step; the adjoint sweep at one step. One of
        each for every step are less than 2**63 in all, so that no sum of them overflows.
    """

    steps: int | None
    advance: float
    record: float
    reverse: float
    restart: int
    tape: int
    adjoint: int

    def __post_init__(self) -> None:
        if self.steps is not None and (not is_whole(self.steps) or self.steps < 1):
            raise BadInput(
                f"Chain: steps = {self.steps!r}; it must be a whole number of at least 1"
            )
        object.__setattr__(self, "steps", None if self.steps is None else int(self.steps))
        for name in SECONDS:
            seconds = check_cost(f"Chain: {name}", getattr(self, name))
            object.__setattr__(self, name, seconds)
        for name in SIZES:
            nbytes = getattr(self, name)
            if not is_whole(nbytes) or nbytes < 0:
                raise BadInput(
                    f"Chain: {name} = {nbytes!r}; it must be a whole number of bytes >= 0"
                )
            object.__setattr__(self, name, int(nbytes))
        states = 1 + (self.steps or 0)
        if states * max(1, self.restart + self.tape + self.adjoint) >= _COUNTABLE:
            raise BadInput(
                f"Chain: steps = {self.steps}, restart = {self.restart}, tape = {self.tape},"
                f" adjoint = {self.adjoint}; all checkpoints together must be below 2**63 bytes"
            )

    @property
    def length(self) -> int:
        """The number of steps; raises BadInput where it is not known."""
        if self.steps is None:
            raise BadInput("Chain: the number of steps is not known; give `steps`")
        return self.steps

    def with_steps(self, steps: int, /) -> "Chain":
        """The same costs and sizes over `steps` steps."""
        return replace(self, steps=steps)

    def nbytes(self, key: Key, /) -> int:
        """Bytes of a checkpoint."""
        if key.name:
            raise BadInput(f"Chain: {key} is one variable; this chain knows whole checkpoints only")
        match key.kind:
            case Kind.RESTART:
                return self.restart
            case Kind.TAPE:
                return self.tape
            case Kind.ADJOINT:
                return self.adjoint

    def seconds(self, action: Action, /) -> float:
        """Seconds of computing; storage actions take none here, a level prices them."""
        match action:
            case Advance(begin, end):
                return (end - begin) * self.advance
            case Record(begin, end):
                return (end - begin) * self.record
            case Reverse(begin, end):
                return (end - begin) * self.reverse
            case Write() | Read() | Discard():
                return 0.0
            case _:
                assert_never(action)

    def nbytes_of(self, actions: Actions, /) -> NDArray[np.int64]:
        """`nbytes` of each action's key, a column at a time; 0 where an action has no key."""
        if len(actions.names) > 1 and actions.name.any():
            raise BadInput(
                "Chain: actions on single variables; this chain knows whole checkpoints only"
            )
        sizes = np.array([self.nbytes(Key(kind, 0)) for kind in KINDS], np.int64)
        return np.where(actions.op >= WRITE, sizes[actions.kind], 0)

    def seconds_of(self, actions: Actions, /) -> NDArray[np.float64]:
        """`seconds` of each action, a column at a time and equal to the last bit."""
        unit = np.array([self.advance, self.record, self.reverse, 0.0, 0.0, 0.0])
        seconds: NDArray[np.float64] = (actions.end - actions.begin) * unit[actions.op]
        return seconds


def check_cost(what: str, seconds: object, /) -> float:
    """`seconds` as a float; raises BadInput unless it is a finite number >= 0."""
    number = as_float(seconds)
    if number is None:
        raise BadInput(f"{what} = {seconds!r}; it must be a number of seconds")
    if not math.isfinite(number) or number < 0:
        raise BadInput(f"{what} = {number}; it must be finite and >= 0")
    return number


def as_float(value: object, /) -> float | None:
    """A number, and not a truth value, as a float, infinite where it is too large; else None."""
    if not isinstance(value, int | float | np.floating | np.integer) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def is_whole(value: object, /) -> bool:
    """Whether `value` is a whole number, and not a truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
