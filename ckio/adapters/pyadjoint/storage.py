"""The checkpoints of a tape on the levels of a platform, and the conversion of values to arrays."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from pyadjoint import AdjFloat
from pyadjoint.tape import TapePackageData

from ckio.actions import Key
from ckio.adapters.pyadjoint.transfers import Stored, Transfers
from ckio.adapters.scratch import Scratch
from ckio.errors import BadInput, MissingCheckpoint
from ckio.schedule.policy import SYNCHRONOUS, Overlap

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion of the values of a type to arrays and back.

    If `guessed` is false, no block reads such a value as an initial guess of its own output.
    """

    to_arrays: Callable[[Any], Arrays]
    from_arrays: Callable[[Any, Arrays], Any]
    guessed: bool = True


_CONVERSIONS: Final[dict[type, Conversion | None]] = {AdjFloat: None}
"""Conversions by type. None means that values stay in memory. Numbers do, because pyadjoint's own
objects for a number take more bytes."""


def register(
    kind: type,
    to_arrays: Callable[[Any], Arrays],
    from_arrays: Callable[[Any, Arrays], Any],
    /,
) -> None:
    """Register how values of an overloaded type, and of its subclasses, are stored.

    Parameters
    ----------
    kind
        A subclass of pyadjoint's OverloadedType.
    to_arrays
        `to_arrays(value)` returns the named arrays of a value. They consist of plain numbers, have
        any shape, and may be views.
    from_arrays
        `from_arrays(like, arrays)` returns a new value from the arrays. `like` is the object of the
        variable, with arbitrary numbers. Use it for properties that all values share. The new value
        may keep the arrays.
    """
    _CONVERSIONS[kind] = Conversion(to_arrays, from_arrays)


def keep_in_memory(kind: type, /) -> None:
    """Register that the values of an overloaded type, and of its subclasses, stay in memory.

    Use it for values that are small or never change, for example meshes and boundary conditions.
    `kind` is a subclass of pyadjoint's OverloadedType.
    """
    _CONVERSIONS[kind] = None


def conversion_of(variable: Any, /) -> Conversion | None:
    """Return the conversion of a block variable, or None if it stays in memory.

    Raises BadInput for a type that is not registered.
    """
    for kind in type(variable.output).__mro__:
        if kind in _CONVERSIONS:
            return _CONVERSIONS[kind]
        if (name := f"{kind.__module__}.{kind.__qualname__}") in _FRAMEWORKS:
            return _FRAMEWORKS[name]
    raise BadInput(
        f"a tape variable is a {type(variable.output).__qualname__}, a type that ckio does not"
        " know; call ckio.adapters.pyadjoint.register(type, to_arrays, from_arrays) to store its"
        " values, or keep_in_memory(type) if they are small or never change"
    )


def leaves_memory(variable: Any, /) -> bool:
    """Return whether a value may be removed from memory.

    It must consist of arrays, and be computed after step 0. A value that no block computes cannot
    be computed again. All steps often use the values of step 0 and of the program before the loop,
    so one copy in memory takes less than a copy in every checkpoint.
    """
    return variable.creation_timestep > 0 and conversion_of(variable) is not None


def arrays_of(variable: Any, /) -> dict[str, NDArray[Any]]:
    """Return the arrays of a variable's current value; raises MissingCheckpoint."""
    if (conversion := conversion_of(variable)) is None:
        return {}
    if variable.checkpoint is None:  # pyadjoint would use the object, of whatever step it is
        raise MissingCheckpoint(
            "the value of a tape variable was removed from memory before it was stored; do not"
            " change the checkpoints of a tape that ckio manages"
        )
    return {
        name: np.asarray(it) for name, it in conversion.to_arrays(variable.saved_output).items()
    }


def give(variable: Any, arrays: Arrays, /) -> None:
    """Set the value of a variable from arrays."""
    if (conversion := conversion_of(variable)) is not None:
        variable.checkpoint = conversion.from_arrays(variable.output, arrays)


def give_guess(variable: Any, inputs: Iterable[Any], /) -> None:
    """Set an output that its block is about to compute.

    Solvers read this value as their initial guess. It is a copy of the newest input of the block
    with arrays of the same shapes, which usually is the state before the step. It depends on the
    inputs alone, so that a step gives the same bits each time. Without such an input the last
    value stays, or is zero if it has left memory.
    """
    if (conversion := conversion_of(variable)) is None or not conversion.guessed:
        return
    own = _shapes(conversion.to_arrays(variable.output))
    for candidate in sorted(inputs, key=lambda it: -it.creation_timestep):
        if type(candidate.output) is type(variable.output):
            arrays = arrays_of(candidate)
            if _shapes(arrays) == own:
                give(variable, {name: array.copy() for name, array in arrays.items()})
                return
    if variable.checkpoint in (None, AWAY):
        give(variable, {name: np.zeros(shape, dtype) for name, (shape, dtype) in own.items()})


def _shapes(arrays: Arrays, /) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    return {name: (np.shape(it), np.asarray(it).dtype) for name, it in arrays.items()}


class NotInMemory:
    """The substitute for a value that is not in memory. It raises an error when it is used.

    Without it pyadjoint would use the object of the program, which may already belong to another
    step or another control.
    """

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python and its tools look up such names in any object
            raise AttributeError(name)
        raise MissingCheckpoint(
            f"a block reads {name!r} of a value that is on a level, or must be computed again."
            " A tape with ckio has functionals and first derivatives only; for tangents and"
            " Hessians record it without enable(...)"
        )

    def __array__(self, *_: object, **__: object) -> NoReturn:
        self.__getattr__("array")


AWAY: Final = NotInMemory()


def _firedrake_arrays(value: Any) -> Arrays:
    return {str(number): part.data_ro for number, part in enumerate(value.dat)}


def _firedrake_function(like: Any, arrays: Arrays) -> Any:
    value = type(like)(like.function_space(), dtype=like.dat.dtype)
    for number, part in enumerate(value.dat):
        part.data_wo[...] = arrays[str(number)]
    return value


def _dolfinx_function(like: Any, arrays: Arrays) -> Any:
    value = like.copy()
    value.x.array[:] = arrays["x"]
    return value


_FIREDRAKE: Final = Conversion(_firedrake_arrays, _firedrake_function, guessed=False)

_FRAMEWORKS: Final[dict[str, Conversion | None]] = {
    "firedrake.function.Function": _FIREDRAKE,
    "firedrake.cofunction.Cofunction": _FIREDRAKE,
    "firedrake.constant.Constant": None,
    "firedrake.bcs.DirichletBC": None,
    "firedrake.mesh.MeshGeometry": None,
    "dolfinx.fem.function.Function": Conversion(lambda u: {"x": u.x.array}, _dolfinx_function),
    "dolfinx.fem.bcs.DirichletBC": None,
}
"""Conversions of types by name, so that their frameworks need not be imported here."""


@dataclass
class _TapeCheckpoint:
    """The variables of a checkpoint, and the keys of their arrays on a level."""

    variables: dict[Any, None] = field(default_factory=dict)  # in the order of their addition
    parts: list[tuple[Stored, list[Any]]] = field(default_factory=list)
    copies: list[Any] = field(default_factory=list)  # with the value of another variable


class TapeStorage(TapePackageData):  # type: ignore[misc]
    """The checkpoints of a tape on levels. pyadjoint clears them with the tape.

    Attributes
    ----------
    scratch : Scratch
        The open levels.
    """

    def __init__(self, scratch: Scratch, overlap: Overlap = SYNCHRONOUS, /) -> None:
        self.scratch, self._transfers = scratch, Transfers(scratch, overlap)
        self._cleared = False
        self._stored: list[dict[Key, _TapeCheckpoint]] = [{} for _ in scratch.backends]
        self._references: dict[Any, Any] = {}

    @property
    def stored(self) -> list[set[Key]]:
        """The keys of the checkpoints on each level, as in a schedule."""
        return [set(level) for level in self._stored]

    def check_open(self) -> None:
        """Raise BadInput if the levels are closed."""
        if self._cleared:
            raise BadInput(
                "the levels of this tape were closed, and their checkpoints are removed; record a"
                " new tape"
            )

    def settle(self, variable: Any, /) -> None:
        """Replace a checkpoint that refers to another variable by the value that both have.

        `assign` of Firedrake stores such a reference. It would be followed to the value of another
        step when the other variable has left memory. The new value shares its numbers with that of
        the other variable, and a checkpoint of both has them once.
        """
        if hasattr(variable.checkpoint, "restore"):
            self._references[variable] = variable.checkpoint
            variable.checkpoint = variable.checkpoint.restore()

    def prepare(self, variable: Any, inputs: Iterable[Any], /) -> None:
        """Set an output that its block is about to compute: the reference, or an initial guess."""
        if variable in self._references:
            variable.checkpoint = self._references[variable]
        else:
            give_guess(variable, inputs)

    def nbytes(self, variables: Iterable[Any], /) -> int:
        """Return the size of a checkpoint of the current values of variables, in bytes."""
        originals, _ = self._split(tuple(variables))
        return sum(array.nbytes for it in originals for array in arrays_of(it).values())

    def _split(self, variables: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
        """Split variables into originals, and those with the value of another one of them.

        The latter are in the order in which they were computed.
        """
        every = set(variables)
        copies = {
            it for it in variables if getattr(self._references.get(it), "other", None) in every
        }
        originals = [it for it in variables if it not in copies]
        return originals, [it for it in self._references if it in copies]

    def write(self, key: Key, level: int, variables: Iterable[Any], /) -> None:
        """Store the current values of variables under a key; raises StorageErrors."""
        checkpoint = _TapeCheckpoint()
        self._add(checkpoint, level, tuple(variables))
        self._stored[level][key] = checkpoint

    def complete(self, key: Key, variables: Iterable[Any], /) -> None:
        """Add the variables that a checkpoint lacks, on each level that stores it."""
        wanted = tuple(variables)
        for level, checkpoints in enumerate(self._stored):
            if (checkpoint := checkpoints.get(key)) is not None:
                missing = tuple(it for it in wanted if it not in checkpoint.variables)
                self._add(checkpoint, level, missing)

    def read(self, key: Key, level: int, /) -> list[Any]:
        """Set the variables of a checkpoint to their stored values, and return them."""
        checkpoint = self._stored[level][key]
        for part, variables in checkpoint.parts:
            arrays = self._transfers.get(level, part)
            for number, variable in enumerate(variables):
                mine = f"{number}."
                own = {
                    name.removeprefix(mine): array
                    for name, array in arrays.items()
                    if name.startswith(mine)
                }
                give(variable, own)
        for variable in checkpoint.copies:
            variable.checkpoint = self._references[variable].restore()
        return list(checkpoint.variables)

    def fetch(self, key: Key, level: int, /) -> None:
        """Begin to read a checkpoint in the background, if it is on the level."""
        if (checkpoint := self._stored[level].get(key)) is not None:
            for part, _ in checkpoint.parts:
                self._transfers.fetch(level, part)

    def copy_to(self, key: Key, source: int, target: int, /) -> None:
        """Copy a checkpoint from one level to another."""
        checkpoint = self._stored[source][key]
        copied = _TapeCheckpoint(dict(checkpoint.variables), copies=list(checkpoint.copies))
        for part, variables in checkpoint.parts:
            arrays = self._transfers.get(source, part)
            copied.parts.append((self._transfers.put(target, arrays), variables))
        self._stored[target][key] = copied

    def discard(self, key: Key, level: int, /) -> None:
        """Discard a checkpoint."""
        for part, _ in self._stored[level].pop(key).parts:
            self._transfers.drop(level, part)

    def _add(self, checkpoint: _TapeCheckpoint, level: int, variables: tuple[Any, ...]) -> None:
        originals, copies = self._split(variables)
        arrays = {
            f"{number}.{name}": array
            for number, variable in enumerate(originals)
            for name, array in arrays_of(variable).items()
        }
        if arrays:
            checkpoint.parts.append((self._transfers.put(level, arrays), originals))
        checkpoint.copies += copies
        checkpoint.variables.update(dict.fromkeys(variables))

    def empty(self) -> None:
        """Discard all checkpoints."""
        for level, checkpoints in enumerate(self._stored):
            for key in list(checkpoints):
                self.discard(key, level)

    def reset(self) -> None:
        """Do nothing, because the manager empties the levels before a new evaluation."""

    def clear(self) -> None:
        """Discard all checkpoints and close the levels. The cleared tape may be used again."""
        self._cleared = True
        self._stored = [{} for _ in self.scratch.backends]
        self._transfers.close()

    def checkpoint(self) -> None:
        if not self._cleared:
            raise BadInput(
                "the values of a tape cannot be saved while they are on ckio's levels; evaluate the"
                " functional again instead"
            )

    def restore_from_checkpoint(self, state: object, /) -> None:
        self.checkpoint()

    def copy(self) -> Self:
        if not self._cleared:
            raise BadInput(
                "a tape whose values are on ckio's levels cannot be copied; record a new tape"
            )
        return self

    def continue_checkpointing(self) -> None:
        """Do nothing: this method is for managers without levels."""

    def pause_checkpointing(self) -> None:
        """Do nothing: this method is for managers without levels."""
