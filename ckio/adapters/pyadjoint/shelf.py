"""The checkpoints of a tape, on the levels of a platform."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from pyadjoint.tape import TapePackageData

from ckio.actions import Key
from ckio.adapters.pyadjoint.values import arrays_of, give
from ckio.adapters.scratch import Scratch
from ckio.errors import BadInput


@dataclass
class _Checkpoint:
    """What is in a checkpoint: its variables, and the keys under which a level has their arrays."""

    variables: dict[Any, None] = field(default_factory=dict)  # in the order in which they came
    parts: list[tuple[Key, tuple[Any, ...]]] = field(default_factory=list)


class Shelf(TapePackageData):  # type: ignore[misc]
    """What of a tape is stored where; pyadjoint clears it with the tape.

    Attributes
    ----------
    scratch : Scratch
        The levels themselves.
    """

    def __init__(self, scratch: Scratch, /) -> None:
        self.scratch = scratch
        self._cleared = False
        self._stored: list[dict[Key, _Checkpoint]] = [{} for _ in scratch.backends]

    @property
    def stored(self) -> list[set[Key]]:
        """The checkpoints on each level, as a schedule names them."""
        return [set(level) for level in self._stored]

    def check_open(self) -> None:
        """Raise BadInput where the levels are closed."""
        if self._cleared:
            raise BadInput("the levels of this tape were closed, and what they kept is gone")

    def write(self, key: Key, level: int, variables: Iterable[Any], /) -> None:
        """Store variables, which have their values now, under a key; raises StorageErrors."""
        checkpoint = _Checkpoint()
        self._add(checkpoint, level, tuple(variables))
        self._stored[level][key] = checkpoint

    def complete(self, key: Key, variables: Iterable[Any], /) -> None:
        """Add those of these variables that a checkpoint lacks, wherever it is stored."""
        wanted = tuple(variables)
        for level, checkpoints in enumerate(self._stored):
            if (checkpoint := checkpoints.get(key)) is not None:
                missing = tuple(it for it in wanted if it not in checkpoint.variables)
                self._add(checkpoint, level, missing)

    def read(self, key: Key, level: int, /) -> list[Any]:
        """Give the variables of a checkpoint the values that are stored; returns them."""
        checkpoint = self._stored[level][key]
        for part, variables in checkpoint.parts:
            arrays = self.scratch.get(level, part)
            for number, variable in enumerate(variables):
                mine = f"{number}."
                own = {
                    name.removeprefix(mine): array
                    for name, array in arrays.items()
                    if name.startswith(mine)
                }
                give(variable, own)
        return list(checkpoint.variables)

    def copy_to(self, key: Key, source: int, target: int, /) -> None:
        """Store on one level what is stored on another."""
        checkpoint = self._stored[source][key]
        copied = _Checkpoint(dict(checkpoint.variables))
        for part, variables in checkpoint.parts:
            arrays = self.scratch.get(source, part)
            copied.parts.append((self.scratch.put(target, arrays), variables))
        self._stored[target][key] = copied

    def discard(self, key: Key, level: int, /) -> None:
        """Let go of a checkpoint."""
        for part, _ in self._stored[level].pop(key).parts:
            self.scratch.drop(level, part)

    def _add(self, checkpoint: _Checkpoint, level: int, variables: tuple[Any, ...]) -> None:
        arrays = {
            f"{number}.{name}": array
            for number, variable in enumerate(variables)
            for name, array in arrays_of(variable).items()
        }
        if arrays:
            checkpoint.parts.append((self.scratch.put(level, arrays), variables))
        checkpoint.variables.update(dict.fromkeys(variables))

    def empty(self) -> None:
        """Discard everything that is stored."""
        for level, checkpoints in enumerate(self._stored):
            for key in list(checkpoints):
                self.discard(key, level)

    def reset(self) -> None:
        """Nothing: a new evaluation begins, and the manager empties the levels for it."""

    def clear(self) -> None:
        """Discard everything, and close the levels: the tape is cleared, and may be used again."""
        self._cleared = True
        self._stored = [{} for _ in self.scratch.backends]
        self.scratch.close()

    def checkpoint(self) -> None:
        if not self._cleared:
            raise BadInput(
                "what a tape holds cannot be put by while its values lie on ckio's levels;"
                " evaluate the functional again instead"
            )

    def restore_from_checkpoint(self, state: object, /) -> None:
        self.checkpoint()

    def copy(self) -> Self:
        if not self._cleared:
            raise BadInput("a tape whose values lie on ckio's levels cannot be copied")
        return self

    def continue_checkpointing(self) -> None:
        """Nothing: this is for managers that know no levels."""

    def pause_checkpointing(self) -> None:
        """Nothing, as above."""
