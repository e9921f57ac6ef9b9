"""The protocol of a program, and functions that apply to every program.

    primops(p, *x)             return y and the number of ticks
    checkpoint(p, x, ticks)    return the state after the given number of ticks
    resume(p, state)           return y, computed from that state
    vjp(p, x, ybar)            return y and the cotangent of x, with one tape of all ticks

This is the interface of Siskind & Pearlmutter ("Binomial checkpointing for arbitrary programs with
no user annotation", 2016, Figs. 3 and 4). `x` is a tuple of inputs, or a single input that is not a
tuple. Its cotangent has the same structure. `metered` measures the size of the tapes that programs
make, and how many ticks they run.
"""

import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio.actions.checks import is_whole
from ckio.errors import BadInput, RunFailed
from ckio.model.arrays import check_unmasked
from ckio.programs.heap import Json, leaves, rebuild, span

S = TypeVar("S")

Cotangent: TypeAlias = Mapping[str, NDArray[Any]]
"""The cotangent of each leaf, by its name. A leaf that is missing has the cotangent zero."""


Packed: TypeAlias = tuple[dict[str, NDArray[Any]], Json]
"""A state as plain data."""

Digests: TypeAlias = dict[str, str]
"""Hashes of the arrays and the other variables of a state, by name."""


class Program(Protocol[S]):
    """A computation y = f(x) that can be interrupted after any of its ticks, and resumed.

    A tick is a piece of straight-line code. The number of ticks is not known in advance. Each
    iteration of a loop takes at least one tick, so that `advance` with a limit always returns.
    Ticks are deterministic: m ticks followed by n ticks give the same bits as m + n ticks.

    The leaves of a state, its arrays and numbers, can be differentiated. In a finished state their
    names are `y`, or `y.0` and `y.name` along the path into the result. In a state that has just
    started they are `x.0` or `x.1.name`: the number of the input, and the path into it. In any
    other state the program chooses the names, which may differ from state to state.

    Attributes
    ----------
    fingerprint : str
        A hash of the code and its constants. Only states with the same fingerprint are compatible.
    """

    @property
    def fingerprint(self) -> str: ...

    def start(self, *x: Any) -> S:
        """Return the state before the first tick. Each input is copied."""

    def advance(self, state: S, limit: float = inf, /) -> tuple[S, int, bool]:
        """Run at most `limit` ticks.

        Return the new state, the number of ticks, and whether the program has finished.

        The given state is not changed, and it shares no memory with the new state.
        """

    def result(self, state: S, /) -> Any:
        """Return y from a finished state. Raise BadInput for any other state."""

    def pullback(self, state: S, ticks: int, cotangent: Cotangent, /) -> dict[str, NDArray[Any]]:
        """Run `ticks` ticks with a tape, and propagate a cotangent backwards along it.

        The argument is the cotangent of the state after these ticks, and the result is the
        cotangent of `state`. The program may finish before all ticks are run. Each array has the
        shape and dtype of its leaf; the shape of a number is ().
        """

    def pack(self, state: S, /) -> tuple[dict[str, NDArray[Any]], Json]:
        """Return a state as plain data. Raise BadInput if another process could not read it."""

    def unpack(self, arrays: Mapping[str, NDArray[Any]], meta: Json, /) -> S:
        """Return the state that `pack` returned as plain data, in newly allocated memory.

        Raises BadInput if the state has another fingerprint or is incomplete.
        """


Stats = MutableMapping[str, int]
"""Counts that `vjp` and `checkpoint_vjp` write into a mapping.

    ticks            length of the program
    base             number of ticks that are taped at a time
    live_peak        the most checkpoints that were stored at a time
    tape_peak        number of operations on the largest tape
    tape_bytes       bytes that these operations store
    forward_ticks    total number of ticks that were run forward, with or without a tape, except
                     those that `checkpoint_vjp` runs at first to estimate costs
"""

_METHODS: Final = "start", "advance", "result", "pullback", "pack", "unpack"
"""The methods of a program."""


def primops(p: Program[S], /, *x: Any) -> tuple[Any, int]:
    """Run the program. Return y and the number of ticks."""
    state, ticks, _ = p.advance(begin(p, x))
    return p.result(state), ticks


def checkpoint(p: Program[S], x: Any, ticks: int) -> S:
    """Return the state after `ticks` ticks, or the finished state if the program ends before.

    Raises BadInput if `ticks` is not a whole number >= 0.
    """
    if not is_whole(ticks) or ticks < 0:
        raise BadInput(f"checkpoint: ticks = {ticks!r}; it must be a whole number of at least 0")
    return p.advance(begin(p, x), int(ticks))[0]


def resume(p: Program[S], state: S) -> Any:
    """Run the program from a state to its end. Return y."""
    return p.result(p.advance(state)[0])


def vjp(p: Program[S], x: Any, ybar: Any, *, stats: Stats | None = None) -> tuple[Any, Any]:
    """Return y, and the cotangent of x for the cotangent `ybar` of y, by plain reverse mode.

    The cotangent g of a complex input is the direction of steepest ascent of J = Re(sum(conj(ybar)
    * y)), as in PyTorch: J changes by Re(sum(conj(g) * dx)). JAX defines the conjugate.

    The tape grows with the number of ticks. `checkpoint_vjp` returns the same with a tape of
    bounded size. `stats` is a mapping that receives the counts of `Stats`. Raises BadInput if
    `ybar` does not have the structure of y, or if x or y consist only of integers or text, which
    have no derivative. Raises RunFailed if y has another value when it is computed once more, on
    the tape.
    """
    start = begin(p, x)
    check_inputs(x)
    end, ticks, _ = p.advance(start)
    y = p.result(end)
    with metered() as meter:
        meter.compare = digests(p.pack(end))
        xbar = p.pullback(start, ticks, seed(y, ybar))
    if stats is not None:
        stats.update(ticks=ticks, base=ticks, live_peak=0, forward_ticks=2 * ticks)
        stats.update(tape_peak=meter.nodes, tape_bytes=meter.nbytes)
    return y, gradient(x, xbar)


def begin(p: Program[S], x: Any, /) -> S:
    """Return the state before the first tick. Raise BadInput if p is not a program."""
    if lacking := [name for name in _METHODS if not hasattr(p, name)]:
        raise BadInput(
            f"{p!r} is no program, because it has no method {lacking[0]!r}; put @program before a"
            " function of NumPy arrays, or call jax_program for a function of JAX"
        )
    try:
        return p.start(*inputs(x))
    except (TypeError, BadInput) as error:
        if not isinstance(x, tuple):
            error.add_note(
                f"x is of type {type(x).__name__}, and so it is one input; give several inputs as a"
                " tuple"
            )
        raise


def inputs(x: Any, /) -> tuple[Any, ...]:
    """Return the inputs of a program as a tuple; x itself is the only input if it is not a tuple.

    An array is copied if its elements share memory, as after `np.broadcast_to`, because each
    element has its own cotangent. Raises BadInput for a masked array.
    """
    given = x if isinstance(x, tuple) else (x,)
    return tuple(rebuild(value, f"x.{number}", _apart) for number, value in enumerate(given))


def check_inputs(x: Any, /) -> None:
    """Raise BadInput if none of the inputs has a derivative."""
    if not any(map(has_derivative, leaves(x, "x").values())):
        raise BadInput(
            "no input has a derivative: x must contain float or complex numbers; write 3.0 in"
            " place of 3, and give arrays as x.astype(float)"
        )


def has_derivative(value: object, /) -> bool:
    """Return whether a leaf has floating-point numbers, also of another library."""
    dtype = np.asarray(value).dtype
    return dtype.kind in "fc" or (dtype.kind == "V" and np.can_cast(dtype, np.complex128))


def seed(y: Any, ybar: Any, /) -> dict[str, NDArray[Any]]:
    """Return the cotangent of a finished state. Raise BadInput if ybar does not fit y."""
    values, given = leaves(y, "y"), leaves(ybar, "y")
    if not any(map(has_derivative, values.values())):
        raise BadInput(
            f"y = {y!r} has no derivative; let the program return float or complex numbers, or"
            " arrays of them"
        )
    if values.keys() != given.keys():
        raise BadInput(f"ybar = {ybar!r} does not fit y = {y!r}; give it the structure of y")
    cotangent = {}
    for name, value in values.items():
        leaf = np.asarray(value)
        check_unmasked(f"ybar{name[1:]}", given[name])
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
    """Return the cotangent of a state that has just started, in the structure of x.

    It is 0 for leaves without a derivative, and for leaves on which the result does not depend. The
    cotangent of an array is an array, and that of a number a number.
    """

    def leaf(name: str, value: Any) -> Any:
        bar = cotangent.get(name)
        if bar is None:
            bar = np.zeros(
                np.shape(value), np.asarray(value).dtype if has_derivative(value) else float
            )
        return np.asarray(bar) if np.ndim(value) or isinstance(value, np.ndarray) else bar[()]

    bars = tuple(rebuild(value, f"x.{number}", leaf) for number, value in enumerate(inputs(x)))
    return bars if isinstance(x, tuple) else bars[0]


def _apart(name: str, value: Any) -> Any:
    check_unmasked(name, value)
    if not isinstance(value, np.ndarray):
        return value
    first, behind = span(value)
    return np.array(value) if behind - first < value.nbytes else value


@dataclass
class Meter:
    """The size of the largest tape, and the number of ticks that were run.

    Attributes
    ----------
    nodes : int
        Operations on the largest tape.
    nbytes : int
        Bytes that they store.
    ticks : int
        Ticks that were run forward, with or without a tape.
    compare : dict or None
        The digests of the state that the next tape must reach.
    """

    nodes: int = 0
    nbytes: int = 0
    ticks: int = 0
    compare: Digests | None = None


_METERS: ContextVar[tuple[Meter, ...]] = ContextVar("meters", default=())


@contextmanager
def metered() -> Iterator[Meter]:
    """Measure all ticks and tapes in a `with` block."""
    meter = Meter()
    token = _METERS.set((*_METERS.get(), meter))
    try:
        yield meter
    finally:
        _METERS.reset(token)


def report_tape(nodes: int, nbytes: int, reached: Callable[[], Packed] | None = None, /) -> None:
    """Report a complete tape to all meters: its operations, their bytes, and the state reached.

    Raises RunFailed if that state was another one when these ticks were run without a tape. The
    gradient would be wrong.
    """
    for meter in _METERS.get():
        meter.nodes = max(meter.nodes, nodes)
        meter.nbytes = max(meter.nbytes, nbytes)
        before, meter.compare = meter.compare, None
        if before is None or reached is None:
            continue
        now = digests(reached())
        if other := [name for name in before | now if before.get(name) != now.get(name)]:
            raise RunFailed(
                f"the program is not reproducible: {', '.join(sorted(other)[:8])} differed when"
                " the same ticks were run once more, on a tape; make the program independent"
                " of random numbers, of the time, and of objects that keep values between calls,"
                " and let a function that changes its argument not return it"
            )


def digests(packed: Packed, /) -> Digests:
    """Return a hash of each array and each other variable of a packed state."""
    arrays, meta = packed
    values = meta.get("values", meta) if isinstance(meta, dict) else {"the state": meta}
    found = {name: json.dumps(each) for name, each in values.items()}
    for name, each in arrays.items():
        about = f"{each.dtype.str} {each.shape} {xxhash.xxh3_128_hexdigest(each.tobytes())}"
        found[name] = found.get(name, "") + about
    return found


def report_ticks(ticks: int, /) -> None:
    """Report a number of ticks that have been run to all meters."""
    for meter in _METERS.get():
        meter.ticks += ticks
