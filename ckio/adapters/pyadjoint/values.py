"""How the values of tape variables become arrays and are made again, and where they are not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray
from pyadjoint import AdjFloat

from ckio.errors import BadInput, MissingCheckpoint

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Way:
    """A type's way to the levels and back."""

    to_arrays: Callable[[Any], Arrays]
    from_arrays: Callable[[Any, Arrays], Any]


_WAYS: Final[dict[type, Way | None]] = {AdjFloat: None}
"""By type; None is for what stays in memory: a float is smaller than what pyadjoint keeps of it."""


def register(
    kind: type,
    to_arrays: Callable[[Any], Arrays],
    from_arrays: Callable[[Any, Arrays], Any],
    /,
) -> None:
    """Say how values of an overloaded type, and of its subclasses, are stored.

    Parameters
    ----------
    kind
        A subclass of pyadjoint's OverloadedType.
    to_arrays
        The named arrays that a value is made of; plain numbers of any shape. They may be its own.
    from_arrays
        A new value. It is called with one that is like it (the variable's, whatever it holds now),
        for what is the same in all of them, and with the arrays, which it may keep.
    """
    _WAYS[kind] = Way(to_arrays, from_arrays)


def way_of(variable: Any, /) -> Way | None:
    """How a block variable's values are stored, None if they stay in memory; raises BadInput."""
    for kind in type(variable.output).__mro__:
        if kind in _WAYS:
            return _WAYS[kind]
        if (framework := _FRAMEWORKS.get(f"{kind.__module__}.{kind.__qualname__}")) is not None:
            return framework
    raise BadInput(
        f"a tape variable is a {type(variable.output).__qualname__}, of which ckio does not know"
        " how it is stored: call ckio.adapters.pyadjoint.register(type, to_arrays, from_arrays)"
    )


def leaves_memory(variable: Any, /) -> bool:
    """Whether a variable's value goes and comes again: it is made of arrays, by a later step.

    What no block makes cannot be had again. What step 0 makes, and whoever comes before the loop,
    is often used by all steps: one of it in memory is less than one in every checkpoint.
    """
    return variable.creation_timestep > 0 and way_of(variable) is not None


def arrays_of(variable: Any, /) -> dict[str, NDArray[Any]]:
    """The arrays of a variable's value, which it has now; raises MissingCheckpoint."""
    if (way := way_of(variable)) is None:
        return {}
    if variable.checkpoint is None:  # pyadjoint would take the object's, of whatever step it is
        raise MissingCheckpoint("the value of a tape variable has left memory before it was stored")
    return {name: np.asarray(it) for name, it in way.to_arrays(variable.saved_output).items()}


def give(variable: Any, arrays: Arrays, /) -> None:
    """Let a variable have the value that these arrays make."""
    if (way := way_of(variable)) is not None:
        variable.checkpoint = way.from_arrays(variable.output, arrays)


class NotInMemory:
    """The value of a tape variable whose turn it is not: whatever asks it for anything is told so.

    Without it pyadjoint would take the object that the program holds, which may by now be of
    another step or another control.
    """

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # what Python and its tools ask of anything
            raise AttributeError(name)
        raise MissingCheckpoint(
            f"a block asks for {name!r} of a value that is on a level, or to be computed again."
            " With ckio, a tape gives functionals and first derivatives; for tangents and Hessians"
            " record it without enable(...)"
        )

    def __array__(self, *_: object, **__: object) -> NoReturn:
        self.__getattr__("array")


AWAY: Final = NotInMemory()


def _firedrake_arrays(value: Any) -> Arrays:
    return {str(number): part.dat.data_ro for number, part in enumerate(value.subfunctions)}


def _firedrake_function(like: Any, arrays: Arrays) -> Any:
    value = like.copy(deepcopy=True)
    for number, part in enumerate(value.subfunctions):
        part.dat.data[...] = arrays[str(number)]
    return value


def _dolfinx_function(like: Any, arrays: Arrays) -> Any:
    value = like.copy()
    value.x.array[:] = arrays["x"]
    return value


_FRAMEWORKS: Final = {
    "firedrake.function.Function": Way(_firedrake_arrays, _firedrake_function),
    "firedrake.cofunction.Cofunction": Way(_firedrake_arrays, _firedrake_function),
    "dolfinx.fem.function.Function": Way(lambda u: {"x": u.x.array}, _dolfinx_function),
}
"""Types of frameworks that are not imported here: who has a value of theirs has them."""
