"""What a program is: something that runs in ticks, and can be interrupted after any of them."""

from collections.abc import Mapping
from math import inf
from typing import Any, Protocol, TypeAlias, TypeVar

from numpy.typing import NDArray

Json: TypeAlias = Any
"""What JSON has: None, bool, int, float, str, and lists and dicts (by str) of them."""

Cotangent: TypeAlias = Mapping[str, NDArray[Any]]
"""Arrays by the names of the leaves that they are the cotangents of; one that lacks is zero."""

S = TypeVar("S")


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
