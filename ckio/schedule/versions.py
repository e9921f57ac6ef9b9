"""The state and tape registers of the machine where checkpoints are single variables.

The state holds each variable in some version, or no value of the forward. It is x_i once every
variable that is live in x_i has the version that it has there. A step needs no more than the
variables that it uses: so what is dead, or not read until it is overwritten, need not be loaded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Final

import numpy as np

from ckio.actions import Key, Kind
from ckio.actions.flows import NOTHING, Flow, Names, Step
from ckio.actions.variables import Bools, Ints, Variables

_FORWARD: Final[Callable[[Step], Flow]] = attrgetter("forward")
_RECORD: Final[Callable[[Step], Flow]] = attrgetter("record")

WHOLE: Final = "this chain's restart data is stored variable by variable"


@dataclass(frozen=True, slots=True)
class Wrong:
    """A variable that is not as it has to be; `has` is None where it is no value of the forward."""

    name: str
    needs: int
    has: int | None

    def __str__(self) -> str:
        has = (
            "it holds no value of the forward" if self.has is None else f"it is as in x_{self.has}"
        )
        return f"needs {self.name} as in x_{self.needs}; {has}"


class Versions:
    """What the state holds of each variable, from x_0 on.

    Attributes
    ----------
    held : dict
        The version of each variable, or None.
    taped : dict
        The versions of the variables of a tape that were read one by one.
    stands : int or None
        Where the forward came to, if nothing has changed since.
    """

    def __init__(self, variables: Variables, length: int) -> None:
        self._variables, self._steps = variables, variables.over(length)
        self._versions = {name: self._steps.versions(name) for name in variables.nbytes}
        self.held: dict[str, int | None] = dict.fromkeys(variables.nbytes, 0)
        self.taped: dict[str, int] = {}
        self.stands: int | None = 0

    def __copy__(self) -> "Versions":
        """Registers of their own, with what these hold."""
        copied = object.__new__(Versions)
        vars(copied).update(vars(self), held=dict(self.held), taped=dict(self.taped))
        return copied

    def of(self, name: str, step: int, /) -> int:
        """The version that a variable has in x_step."""
        return self._versions[name].item(step)

    def wrong(self, names: Iterable[str], step: int, /) -> Wrong | None:
        """The first of these variables that is not as in x_step, if one is not."""
        return self._wrong(self.held, names, step)

    def at(self) -> int | None:
        """I where the state is x_i; None where it is none.

        Several may be the same, or may need no more than is there. Where the forward came to is one
        of them, if all was right there; or else that of which most is there, the first of these.
        """
        if self.stands is not None and self.complete(self.stands):
            return self.stands
        names, version, live = self._columns
        held = [-1 if (has := self.held[name]) is None else has for name in names]
        right = version == np.array(held, np.int64).reshape(-1, 1)
        most = np.where((right | ~live).all(axis=0), right.sum(axis=0), -1)
        step = int(most.argmax())
        return step if most[step] >= 0 else None

    def complete(self, step: int, /) -> bool:
        """Whether the state is x_step."""
        names, version, live = self._columns
        rows = zip(names, version[:, step].tolist(), live[:, step].tolist(), strict=True)
        return all(not needed or self.held[name] == needs for name, needs, needed in rows)

    def advance(self, begin: int, end: int, /, seed: Names = NOTHING) -> Wrong | None:
        """The steps [begin, end) forward; or, and nothing has changed, what keeps them from it.

        What is in `seed` is read of the state that they come to.
        """

        def after(step: Step, right: Names) -> Names:
            return right | step.forward.kill

        return self._forward(begin, end, _FORWARD, after, seed)

    def record(self, begin: int, end: int, /, seed: Names = NOTHING) -> Wrong | None:
        """The same with their tape.

        Where a step has all that its tape needs, but not all that the forward uses, the state that
        it leaves is no x_i.
        """

        def after(step: Step, right: Names) -> Names:
            kept = right - step.record.out
            if not step.forward.use <= right:
                return kept
            return kept | (step.forward.out & (right | step.record.kill))

        wrong = self._forward(begin, end, _RECORD, after, seed)
        if wrong is None:
            self.taped = {}
        return wrong

    def reverse(self, begin: int, end: int, /) -> Wrong | None:
        """The adjoint of the steps [begin, end), the last first; see `advance`."""
        held = dict(self.held)
        for first, last in reversed(list(self._steps.runs(begin, end))):
            does = self._steps[first]
            # The second of equal steps finds what all those before them find.
            for step in reversed(range(max(first, last - 2), last)):
                if wrong := self._wrong(held, does.reverse.use, step + 1):
                    return wrong
                held.update(dict.fromkeys(does.reverse.out))
                held.update(self._as_in(does.restored, step))
            held.update(self._as_in(does.restored, first))
        if held != self.held:
            self.held, self.stands = held, None
        return None

    def read(self, key: Key, /) -> None:
        """A variable of the state, or of a tape, becomes as it is in x_i."""
        if key.kind is Kind.TAPE:
            self.taped[key.name] = key.step
        elif self.held[key.name] != key.step:
            self.held[key.name], self.stands = key.step, None

    def tapes(self, step: int, /) -> bool:
        """Whether all that the tape of a step is made of was read, in the versions of that step."""
        if not self._variables.taped:
            return False
        needed = self._variables.taped & self._steps[step].record.use
        return all(self.taped.get(name) == self.of(name, step) for name in needed)

    def lacks(self, key: Key, tape: tuple[int, int] | None, /) -> str | None:
        """Why a variable cannot be written now, or None; `tape` is the span that is recorded."""
        name, at = key.name, key.step
        if name not in self.held:
            known = ", ".join(self.held) or "none"
            return f"there is no variable {name}; this chain has {known}" if name else WHOLE
        if at <= self._steps.length and (version := self.of(name, at)) != at:
            named = Key(key.kind, version, name)
            return f"{name} in x_{at} is still as in x_{version}: name it {named}"
        if key.kind is Kind.RESTART:
            has = self.held[name]
        elif tape is None or tape[1] - tape[0] > 1:
            has = self.taped.get(name)
        elif name in self._variables.tape & self._steps[tape[0]].record.use:
            has = self.of(name, tape[0])
        else:
            return f"the tape of step {tape[0]} is not made of {name}"
        return None if has == at else str(Wrong(name, at, has))

    def _forward(
        self,
        begin: int,
        end: int,
        flow: Callable[[Step], Flow],
        after: Callable[[Step, Names], Names],
        seed: Names,
    ) -> Wrong | None:
        """Forward by one flow of each step; `after` says what is right after it of what was."""
        right = frozenset(name for name, has in self.held.items() if has == self.of(name, begin))
        out = NOTHING

        def wrong(names: Names, step: int) -> Wrong:
            name = min(names - right)
            return Wrong(name, self.of(name, step), None if name in out else self.held[name])

        for first, last in self._steps.runs(begin, end):
            does = self._steps[first]
            use = flow(does).use
            for step in range(first, last):
                if not use <= right:
                    return wrong(use, step)
                before, right = right, after(does, right)
                out |= flow(does).out
                if right == before:  # and so it stays, as all the others do the same
                    break
        if not seed <= right:
            return wrong(seed, end)
        self.held.update(dict.fromkeys(out))
        self.held.update(self._as_in(out & right, end))
        self.stands = end
        return None

    def _wrong(
        self, held: Mapping[str, int | None], names: Iterable[str], step: int
    ) -> Wrong | None:
        wrong = [name for name in names if held[name] != self.of(name, step)]
        if not wrong:
            return None
        name = min(wrong)
        return Wrong(name, self.of(name, step), held[name])

    def _as_in(self, names: Names, step: int) -> Iterator[tuple[str, int]]:
        return ((name, self.of(name, step)) for name in names)

    @cached_property
    def _columns(self) -> tuple[tuple[str, ...], Ints, Bools]:
        """Of what checkpoints hold: the names, the version in each x_i, and whether it is live."""
        names = tuple(sorted(self._variables.stored))
        size = len(names), self._steps.length + 1
        live = [self._steps.live(name, seed=name in self._variables.seed) for name in names]
        return (
            names,
            np.array([self._versions[name] for name in names], np.int64).reshape(size),
            np.array(live, np.bool_).reshape(size),
        )
