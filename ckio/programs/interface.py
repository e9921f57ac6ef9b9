"""What may be asked of any program: the interface of Siskind and Pearlmutter.

    primops(p, *x)             y and the number of ticks that it takes
    checkpoint(p, x, ticks)    the state after so many ticks
    resume(p, state)           y, from there
    vjp(p, x, ybar)            y, and the cotangent of x, by one tape of all ticks

("Binomial checkpointing for arbitrary programs with no user annotation", 2016, Figs. 3 and 4.) `x`
is a tuple of inputs, or one input that is none; its cotangent has the same structure.
"""

from collections.abc import MutableMapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.checks import is_whole
from ckio.errors import BadInput
from ckio.programs.meter import metered
from ckio.programs.protocol import Cotangent, Program
from ckio.programs.trees import leaves, rebuild, same

S = TypeVar("S")

Stats = MutableMapping[str, int]
"""What `vjp` and `checkpoint_vjp` fill in, if they are given one.

    ticks            of the program
    base             ticks that are taped at a time
    live_peak        checkpoints stored at a time
    tape_peak        operations on the largest tape, and `tape_bytes` what they keep
    forward_ticks    that were run forward in all, with a tape or without
"""


def primops(p: Program[S], /, *x: Any) -> tuple[Any, int]:
    """Run to the end: y, and how many ticks it took."""
    state, ticks, _ = p.advance(p.start(*x))
    return p.result(state), ticks


def checkpoint(p: Program[S], x: Any, ticks: int, /) -> S:
    """The state after `ticks` ticks, or the finished one where there are no more.

    Raises BadInput where that is no whole number from 0.
    """
    if not is_whole(ticks) or ticks < 0:
        raise BadInput(f"checkpoint: ticks = {ticks!r}; it must be a whole number of at least 0")
    return p.advance(p.start(*inputs(x)), int(ticks))[0]


def resume(p: Program[S], state: S, /) -> Any:
    """Run on from a state to the end: y."""
    return p.result(p.advance(state)[0])


def vjp(p: Program[S], x: Any, ybar: Any, /, *, stats: Stats | None = None) -> tuple[Any, Any]:
    """Plain reverse mode: y, and the cotangent of x for the cotangent `ybar` of y.

    The tape grows with the number of ticks; `checkpoint_vjp` is the same with one that does not.
    Raises BadInput where `ybar` has not the structure of y.
    """
    start = p.start(*inputs(x))
    end, ticks, _ = p.advance(start)
    y = p.result(end)
    with metered() as meter:
        xbar = p.pullback(start, ticks, seed(y, ybar))
    if stats is not None:
        stats.update(ticks=ticks, base=ticks, live_peak=0, forward_ticks=2 * ticks)
        stats.update(tape_peak=meter.nodes, tape_bytes=meter.nbytes)
    return y, gradient(x, xbar)


def inputs(x: Any, /) -> tuple[Any, ...]:
    """All inputs of a program: x itself, where it is not a tuple of them."""
    return x if isinstance(x, tuple) else (x,)


def seed(y: Any, ybar: Any, /) -> dict[str, NDArray[Any]]:
    """The cotangent of a finished state; raises BadInput where ybar is none of y."""
    if not same(y, ybar):
        raise BadInput(f"ybar = {ybar!r} has not the structure of y, which is {y!r}")
    given = leaves(ybar, "y")
    cotangent = {}
    for name, value in leaves(y, "y").items():
        leaf = np.asarray(value)
        if leaf.dtype.kind not in "fc":
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
        found = cotangent.get(name)
        if found is None:
            found = np.zeros(np.shape(value))
        return np.asarray(found) if np.ndim(value) or isinstance(value, np.ndarray) else found[()]

    bars = tuple(rebuild(value, f"x.{number}", leaf) for number, value in enumerate(inputs(x)))
    return bars if isinstance(x, tuple) else bars[0]
