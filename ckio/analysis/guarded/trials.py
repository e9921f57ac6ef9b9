"""Steps that are done once more on copies, with other content wherever it should not matter."""

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from random import Random
from typing import Final, NoReturn

import numpy as np

from ckio.actions.variables import NOTHING, Flow, Names
from ckio.analysis.guarded.held import Held
from ckio.analysis.recorded.poison import FILLS, NAN, OTHER, listed, poison, quiet, same
from ckio.analysis.recorded.seldom import seldom
from ckio.errors import RunFailed
from ckio.model.arrays import Arrays, copies

_FAILS: Final = ""
"""In place of the name of what comes out different."""


class Broken(RunFailed):
    """What is declared does not hold."""


NO_FUNCTION: Final = (
    "steps have to be a function of the state before and the controls; perhaps the model keeps"
    " something between steps that is not in its state, or draws random numbers"
)


class Trials:
    """Finds out whether a step depends on what it should not depend on.

    Of what a step is declared not to use, all that it overwrites in part is of no worth after it if
    it was of none before. So where all is lost at once, nobody sees what these arrays do to each
    other: some have to be lost while others are not.

    A step that is done for the first time is done again twice: with other content in everything
    that it should not need, and in all but those that are overwritten in part, save one or none of
    them. Which one, and of which kind the content is, differs from step to step. Of steps that are
    declared alike, some (`seldom`) are also done again as they were, and with every kind of content
    in everything, in all but those overwritten in part, and in each of these alone. A step that was
    done before is not tried again, unless there is less that it may use.

    Attributes
    ----------
    fill : int
        What real content is replaced by: `NAN`, until a step fails for it; `OTHER` from then on.
    """

    def __init__(self, step: Callable[[Arrays, int], object], held: Held) -> None:
        self._step, self._held = step, held
        self._turns: dict[tuple[object, Names], _Turns] = {}
        self._before = self._trial = Arrays()
        self._random = Random(0)
        self.fill = NAN

    def are_due(self, does: object, i: int, lost: Names, /) -> bool:
        """Whether step i was never tried without these arrays."""
        return i not in self._turns.setdefault((does, lost), _Turns()).done

    def keep(self, state: Arrays, /) -> None:
        """Hold what a step begins with."""
        if not self._before:
            self._before, self._trial = copies("state", state), copies("state", state)
        _copy(state, self._before)

    def restore(self, state: Arrays, lost: Iterable[str], /) -> None:
        """Begin a step again, with content that could be real in what is lost."""
        self.fill = OTHER
        for name in lost:
            poison(self._before[name], OTHER)
        _copy(self._before, state)

    def check(
        self, after: Arrays, i: int, lost: Names, does: object, flow: Flow, *, recorded: bool
    ) -> None:
        """Try a step that is done, from what is held to `after`; raises RunFailed."""
        carried = [frozenset({name}) for name in sorted(lost & (flow.out - flow.kill))]
        every = self._turns[does, lost].is_due(i)
        for some, fill in self._kinds(lost, carried, every=every):
            right = self._held.after(i, some, recorded=recorded)
            if odd := self._changes(after, i, some, fill, right):
                self._blame(after, i, some, odd, recorded=recorded)

    def _kinds(
        self, lost: Names, carried: list[Names], *, every: bool
    ) -> Iterator[tuple[Names, int]]:
        """What is lost in each trial, and what is there instead."""
        rest = lost.difference(*carried)
        if every:
            yield NOTHING, OTHER
            yield from product(dict.fromkeys(filter(None, (lost, rest, *carried))), FILLS)
        else:
            one = self._random.choice([NOTHING, *carried])
            for some in dict.fromkeys(filter(None, (lost, rest | one))):
                yield some, self._random.choice(FILLS)

    def _blame(self, after: Arrays, i: int, lost: Names, odd: Names, *, recorded: bool) -> NoReturn:
        """Find the array that makes the difference: raises RunFailed, which names it."""
        every = self._held.after(i, NOTHING, recorded=recorded)
        if twice := self._changes(after, i, NOTHING, OTHER, every):
            raise Broken(
                f"step {i}, done again on copies of the same arrays: {_comes_out(twice)};"
                f" {NO_FUNCTION}"
            )
        for name in sorted(lost):
            one = frozenset({name})
            right = self._held.after(i, one, recorded=recorded)
            for fill in FILLS:
                found = self._changes(after, i, one, fill, right)
                if found - one:
                    raise Broken(
                        f"step {i} uses {name}, which is not declared (use): with other content in"
                        f" it, {_comes_out(found - one)}"
                    )
                if found:
                    raise Broken(
                        f"step {i} is declared to overwrite all of {name} (kill); it keeps some of"
                        " what that held"
                    )
        raise Broken(
            f"step {i} uses some of {listed(lost)}, which is not declared (use): with other content"
            f" in all of them, {_comes_out(odd)}"
        )

    def _changes(self, after: Arrays, i: int, lost: Names, fill: int, right: Names) -> Names:
        """What of this comes out different with other content in some arrays."""
        trial = self._trial
        _copy(self._before, trial)
        for name in lost:
            poison(trial[name], fill)
        try:
            with quiet():
                self._step(trial, i)
        except Exception:  # whatever the step raises for content that it cannot do with
            if fill == OTHER:
                return frozenset({_FAILS})
            self.fill = OTHER  # what it does not use it may yet check
            return NOTHING
        return frozenset(name for name in right if not same(trial[name], after[name]))


class _Turns:
    """Which steps of a kind were tried, and which one is next of those that are tried closely."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        self._closely = seldom()
        self._next = next(self._closely)

    def is_due(self, step: int) -> bool:
        """Account for a step; returns whether it is to be tried closely."""
        closely = len(self.done) == self._next
        if closely:
            self._next = next(self._closely)
        self.done.add(step)
        return closely


def _copy(source: Arrays, target: Arrays) -> None:
    for name, array in target.items():
        np.copyto(array, source[name])


def _comes_out(odd: Names) -> str:
    if _FAILS in odd:
        return "it fails"
    return f"{listed(odd)} {'comes' if len(odd) == 1 else 'come'} out different"
