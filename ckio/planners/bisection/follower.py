"""What a run does that does not know its end, at one step after the other."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Final

from ckio.actions import Key, Kind
from ckio.actions.columns import Actions
from ckio.errors import BadInput
from ckio.planners.base import Room
from ckio.planners.bisection.halves import places, shared_out
from ckio.planners.draft import Draft

_BITS: Final = 5
"""How many leading bits of a step decide whether it is stored."""

_ENDLESS: Final = 2**62
"""More steps than any chain has."""

_NOTHING: Final = Actions.of(())


@dataclass(frozen=True, slots=True)
class Far:
    """A level other than the cheapest."""

    room: Room


@dataclass(frozen=True, slots=True)
class Levels:
    """The level that is cheapest to write and read, and the others after it."""

    near: Room
    far: tuple[Far, ...]


class Follower:
    """What the rule says at one step after the other.

    It takes for granted that the run does what it says, and changes nothing else. Of what is
    `stored` when it begins, at x_step, restart data of later steps and second copies are discarded
    at once, and what is no prefix as soon as the next state is stored. Other kinds play no part.
    """

    def __init__(
        self, levels: Levels, step: int = 0, stored: Sequence[Iterable[Key]] = (), /
    ) -> None:
        self._rooms = (levels.near, *(far.room for far in levels.far))
        slots = places(self._rooms)
        self._bits = min(_BITS, len(slots) - 1)
        # While the chain grows to twice its length, depth p is written C(bits - 1, p - 1) times.
        busy = [0, *(comb(self._bits - 1, depth) for depth in range(self._bits))]
        self._level = shared_out(busy, slots)
        self._kept, self._superfluous = found(stored, restart_only=False)
        later = sorted(other for other in self._kept if other > step)
        self._superfluous += [(other, self._kept.pop(other)) for other in later]
        self._step = step

    def at(self, step: int, /) -> Actions:
        """What to do when x_step has been reached; it is in the register before and after.

        Raises BadInput for a step before the last one it was asked about.
        """
        if step < self._step:
            raise BadInput(f"a run is followed forward: step {step} comes before {self._step}")
        self._step = step
        due = step % self._grid(step) == 0 and step not in self._kept
        if not due and not self._superfluous:
            return _NOTHING
        draft = Draft()
        for other, level in self._superfluous:
            draft.discard(other, level=level)
        self._superfluous = []
        if due:
            self._store(step, draft)
        return draft.actions()

    def until(self, step: int, /) -> int:
        """The first step after this one at which `at` may say anything, if nothing else changes."""
        if self._bits == 0:
            return _ENDLESS
        grid = self._grid(step)
        return (step // grid + 1) * grid

    def _store(self, step: int, draft: Draft) -> None:
        """Write x_step, after what does not lead to it has been discarded."""
        for other in sorted(self._kept):
            if not _is_prefix(other, step):
                draft.discard(other, level=self._kept.pop(other))
        self._kept[step] = self._free(step.bit_count())
        draft.write(step, level=self._kept[step])

    def _grid(self, step: int) -> int:
        """g(k)."""
        return 1 << max(0, step.bit_length() - self._bits)

    def _free(self, depth: int) -> int:
        """The level for what lies so deep, or another where something else has taken its place."""
        used = Counter(self._kept.values())
        free = [room.number for room in self._rooms if used[room.number] < room.slots]
        return self._level[depth] if self._level[depth] in free else free[0]


def found(
    stored: Sequence[Iterable[Key]], *, restart_only: bool = True
) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """The level of each restart checkpoint by its step, and second copies as (step, level)."""
    first: dict[int, int] = {}
    copies: list[tuple[int, int]] = []
    for level, keys in enumerate(stored):
        for key in sorted(keys, key=lambda key: key.step):
            if key.kind is not Kind.RESTART:
                if restart_only:
                    raise BadInput(f"stored: {key}; bisection goes on from restart data alone")
            elif first.setdefault(key.step, level) != level:
                copies.append((key.step, level))
    return first, copies


def _is_prefix(step: int, of: int) -> bool:
    """Whether a number is another with some of its lowest bits cleared; 0 is, of any."""
    return of & -(step & -step) == step
