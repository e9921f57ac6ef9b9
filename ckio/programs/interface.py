"""Programs, and all that may be asked of any of them: the interface of Siskind and Pearlmutter.

    primops(p, *x)             y and the number of ticks that it takes
    checkpoint(p, x, ticks)    the state after so many ticks
    resume(p, state)           y, from there
    vjp(p, x, ybar)            y, and the cotangent of x, by one tape of all ticks

("Binomial checkpointing for arbitrary programs with no user annotation", 2016, Figs. 3 and 4.) `x`
is a tuple of inputs, or one input that is none; its cotangent has the same structure. `metered`
measures how large the tapes become that programs make meanwhile, and how much is run.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.actions.checks import is_whole
from ckio.errors import BadInput
from ckio.programs.heap import Json, leaves, rebuild, same, span

S = TypeVar("S")

Cotangent: TypeAlias = Mapping[str, NDArray[Any]]
"""Arrays by the names of the leaves that they are the cotangents of; one that lacks is zero."""


class Program(Protocol[S]):
    """A computation y = f(x) that can be interrupted after any of its ticks, and resumed.

    A tick is a piece of straight-line code. How many there are is not known before; every loop
    passes at least one each time around, so that `advance` with a limit always returns. Ticks are
    deterministic: m of them and then n are m + n of them, to the last bit.

    What can be differentiated in a state are its leaves: arrays and numbers. Those of a finished
    state are called `y`, or `y.0`, `y.name` along the path into the result; those of a state that
    has just started `x.0`, `x.1.name`: the number of the input, and the path into it. Of any other
    state the program names them as it likes, and they may differ from state to state.

    Attributes
    ----------
    fingerprint : str
        Of the code and the constants that it is made of: states of one fingerprint mean the same.
    """

    @property
    def fingerprint(self) -> str: ...

    def start(self, *x: Any) -> S:
        """The state before the first tick; inputs are copied, each into memory of its own."""

    def advance(self, state: S, limit: float = inf, /) -> tuple[S, int, bool]:
        """Run at most `limit` ticks; the state reached, the ticks passed, and whether it finished.

        The state that is given stays as it is, and shares no memory with the one that is returned.
        """

    def result(self, state: S, /) -> Any:
        """The y of a finished state; raises BadInput for any other."""

    def pullback(self, state: S, ticks: int, cotangent: Cotangent, /) -> dict[str, NDArray[Any]]:
        """Run `ticks` ticks keeping a tape, and take a cotangent back along it.

        The cotangent is that of the state reached, where the program may have finished before, and
        what is returned is that of `state`. Arrays have the shape and dtype of their leaf, () for
        a number.
        """

    def pack(self, state: S, /) -> tuple[dict[str, NDArray[Any]], Json]:
        """A state as plain data; raises BadInput for what cannot outlive the process."""

    def unpack(self, arrays: Mapping[str, NDArray[Any]], meta: Json, /) -> S:
        """The state that was packed, in memory of its own.

        Raises BadInput for one of another fingerprint, or of which something lacks.
        """


Stats = MutableMapping[str, int]
"""Counts that `vjp` and `checkpoint_vjp` fill in, if they are given a mapping.

    ticks            of the program
    base             ticks that are taped at a time
    live_peak        checkpoints stored at a time
    tape_peak        operations on the largest tape, and `tape_bytes` what they keep
    forward_ticks    that were run forward in all, with a tape or without; those by which a program
                     is judged beforehand do not count
"""

_ASKED: Final = "start", "advance", "result", "pullback", "pack", "unpack"
"""The methods of a program."""


def primops(p: Program[S], /, *x: Any) -> tuple[Any, int]:
    """Run to the end: y, and how many ticks it took."""
    state, ticks, _ = p.advance(begin(p, x))
    return p.result(state), ticks


def checkpoint(p: Program[S], x: Any, ticks: int) -> S:
    """The state after `ticks` ticks, or the finished one where there are no more.

    Raises BadInput where that is no whole number from 0.
    """
    if not is_whole(ticks) or ticks < 0:
        raise BadInput(f"checkpoint: ticks = {ticks!r}; it must be a whole number of at least 0")
    return p.advance(begin(p, x), int(ticks))[0]


def resume(p: Program[S], state: S) -> Any:
    """Run on from a state to the end: y."""
    return p.result(p.advance(state)[0])


def vjp(p: Program[S], x: Any, ybar: Any, *, stats: Stats | None = None) -> tuple[Any, Any]:
    """Plain reverse mode: y, and the cotangent of x for the cotangent `ybar` of y.

    The tape grows with the number of ticks; `checkpoint_vjp` is the same with one that does not.
    Raises BadInput where `ybar` has not the structure of y, or x or y have no derivative: those of
    integers and of text are 0, and where there is nothing else that is hardly what is wanted.
    """
    start = begin(p, x)
    check_inputs(x)
    end, ticks, _ = p.advance(start)
    y = p.result(end)
    with metered() as meter:
        xbar = p.pullback(start, ticks, seed(y, ybar))
    if stats is not None:
        stats.update(ticks=ticks, base=ticks, live_peak=0, forward_ticks=2 * ticks)
        stats.update(tape_peak=meter.nodes, tape_bytes=meter.nbytes)
    return y, gradient(x, xbar)


def begin(p: Program[S], x: Any, /) -> S:
    """The state before the first tick; raises BadInput for what is no program."""
    if lacking := [name for name in _ASKED if not hasattr(p, name)]:
        raise BadInput(
            f"{p!r} is no program, as it has no {lacking[0]!r}: put @program before a function of"
            " NumPy arrays, or make one of a function of JAX by jax_program"
        )
    try:
        return p.start(*inputs(x))
    except (TypeError, BadInput) as error:
        if not isinstance(x, tuple):
            error.add_note(
                f"x is of type {type(x).__name__}, and so it is one input; several are a tuple"
            )
        raise


def inputs(x: Any, /) -> tuple[Any, ...]:
    """All inputs of a program: x itself, where it is not a tuple of them.

    Where the elements of an array are the same memory, as those of `np.broadcast_to` are, it is
    copied: each has a cotangent of its own.
    """
    given = x if isinstance(x, tuple) else (x,)
    return tuple(rebuild(value, "", _apart) for value in given)


def check_inputs(x: Any, /) -> None:
    """Raise BadInput where none of the inputs has a derivative."""
    if not any(map(has_derivative, leaves(x, "x").values())):
        raise BadInput(
            "no input has a derivative: x holds no number that is float or complex; write 3.0 in"
            " place of 3, and give arrays as x.astype(float)"
        )


def has_derivative(value: object, /) -> bool:
    """Whether a leaf is of floating point numbers, which may be those of another library."""
    dtype = np.asarray(value).dtype
    return dtype.kind in "fc" or (dtype.kind == "V" and np.can_cast(dtype, np.complex128))


def seed(y: Any, ybar: Any, /) -> dict[str, NDArray[Any]]:
    """The cotangent of a finished state; raises BadInput where ybar is none of y."""
    if not any(map(has_derivative, leaves(y, "y").values())):
        raise BadInput(
            f"y = {y!r} has no derivative: the program must return numbers that are float or"
            " complex, or arrays of them"
        )
    if not same(y, ybar):
        raise BadInput(f"ybar = {ybar!r} has not the structure of y, which is {y!r}")
    given = leaves(ybar, "y")
    cotangent = {}
    for name, value in leaves(y, "y").items():
        leaf = np.asarray(value)
        if not has_derivative(leaf):
            continue
        try:
            of_leaf = np.broadcast_to(np.asarray(given[name]), leaf.shape)
            cotangent[name] = of_leaf.astype(leaf.dtype, casting="same_kind")
        except (TypeError, ValueError) as error:
            raise BadInput(
                f"the cotangent of {name}, {given[name]!r}, must be numbers of {leaf.dtype} in the"
                f" shape {leaf.shape}"
            ) from error
    return cotangent


def gradient(x: Any, cotangent: Cotangent, /) -> Any:
    """The cotangent of a state that has just started, in the structure of x.

    It is 0 for what has no derivative, or none that matters. Arrays stay arrays, and numbers
    numbers.
    """

    def leaf(name: str, value: Any) -> Any:
        bar = cotangent.get(name)
        if bar is None:
            bar = np.zeros(np.shape(value))
        return np.asarray(bar) if np.ndim(value) or isinstance(value, np.ndarray) else bar[()]

    bars = tuple(rebuild(value, f"x.{number}", leaf) for number, value in enumerate(inputs(x)))
    return bars if isinstance(x, tuple) else bars[0]


def _apart(_: str, value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    first, behind = span(value)
    return np.array(value) if behind - first < value.nbytes else value


@dataclass
class Meter:
    """The largest tape so far, and the way.

    Attributes
    ----------
    nodes : int
        Operations on it.
    nbytes : int
        What they keep.
    ticks : int
        Run forward in all, with a tape or without.
    """

    nodes: int = 0
    nbytes: int = 0
    ticks: int = 0


_METERS: ContextVar[tuple[Meter, ...]] = ContextVar("meters", default=())


@contextmanager
def metered() -> Iterator[Meter]:
    """Measure all that is run within."""
    meter = Meter()
    token = _METERS.set((*_METERS.get(), meter))
    try:
        yield meter
    finally:
        _METERS.reset(token)


def taped(nodes: int, nbytes: int, /) -> None:
    """Say that a tape of so many nodes and bytes is complete."""
    for meter in _METERS.get():
        meter.nodes = max(meter.nodes, nodes)
        meter.nbytes = max(meter.nbytes, nbytes)


def passed(ticks: int, /) -> None:
    """Say that so many ticks have been run."""
    for meter in _METERS.get():
        meter.ticks += ticks
