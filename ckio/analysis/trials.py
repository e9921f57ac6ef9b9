"""Run steps again on copies, with other values in arrays that should not matter."""

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from random import Random
from typing import Final, NoReturn

import numpy as np

from ckio.actions import Key, Kind
from ckio.actions.variables import NOTHING, Flow, Names, Step, Variables
from ckio.analysis.recorded import FILLS, NAN, OTHER, listed, poison, quiet, same, seldom
from ckio.errors import RunFailed
from ckio.model.arrays import Arrays, copies
from ckio.schedule.machine import Versions

_FAILS: Final = ""
"""Used instead of the name of an array that differs, if the step fails."""

_AHEAD: Final = 64
"""The least number of steps for which versions are computed, if all steps are equal."""

NO_FUNCTION: Final = (
    "steps have to be a function of the state before and the controls; perhaps the model stores"
    " data between steps that are not in its state, or draws random numbers"
)


class BrokenDeclaration(RunFailed):
    """A step contradicts its declaration."""


class GuardedVersions:
    """The versions of all arrays in the state and the tape, by the rules of the Machine."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self._uniform = isinstance(variables.steps, Step)
        self._ahead = _AHEAD if isinstance(variables.steps, Step) else len(variables.steps)
        self._versions = Versions(variables, self._ahead)
        self._dumped: dict[Key, Names] = {}
        self.tapes: dict[int, Names] = {}
        """The arrays that are right on each whole tape in memory, by step."""

    def _to(self, step: int) -> Versions:
        """Return the registers, with versions computed up to x_step."""
        if step > self._ahead:
            if not self._uniform:
                raise RunFailed(
                    f"step {step - 1} is not among the {self._ahead} declared steps; declare it"
                )
            before, self._ahead = self._versions, 2 * step
            self._versions = Versions(self._variables, self._ahead)
            self._versions.held.update(before.held)
            self._versions.taped.update(before.taped)
        return self._versions

    def does(self, step: int, /) -> Step:
        """Return the declaration of a step."""
        self._to(step + 1)
        return self._variables.over(self._ahead)[step]

    def of(self, name: str, step: int, /) -> int:
        """Return the version of an array in x_step."""
        return self._to(step).of(name, step)

    def has(self, name: str, step: int, /) -> bool:
        """Return whether an array in the state is as in x_step."""
        return self._versions.held[name] == self.of(name, step)

    def right(self, step: int, /) -> Names:
        """Return all arrays that are as in x_step."""
        return frozenset(name for name in self._variables.nbytes if self.has(name, step))

    def is_value(self, name: str, /) -> bool:
        """Return whether the array in the state has a value of the forward sweep, of any step."""
        return self._versions.held[name] is not None

    def check(self, names: Names, step: int, /) -> None:
        """Raise RunFailed if one of these arrays is not as in x_step."""
        if wrong := self._to(step).wrong(names, step):
            raise RunFailed(f"step {step} {wrong}")

    def move(self, step: int, *, recorded: bool) -> None:
        """Update the versions for a forward step; raise RunFailed if an array for it is wrong."""
        versions = self._to(step + 1)
        move = versions.record if recorded else versions.advance
        if wrong := move(step, step + 1):
            raise RunFailed(f"step {step} {wrong}")

    def after(self, step: int, lost: Names, *, recorded: bool) -> Names:
        """Return the arrays that are right after a step if those in `lost` are wrong before."""
        before, taped = dict(self._versions.held), dict(self._versions.taped)
        self._versions.held.update(dict.fromkeys(lost))
        try:
            self.move(step, recorded=recorded)
            return self.right(step + 1)
        finally:
            self._versions.held.update(before)
            self._versions.taped = taped

    def reverse(self, begin: int, end: int) -> None:
        """Update the versions for adjoint steps; raise RunFailed as `move` does."""
        if wrong := self._to(end).reverse(begin, end):
            raise RunFailed(f"the adjoint of steps [{begin}, {end}) {wrong}")

    def dump(self, key: Key, names: Iterable[str]) -> None:
        """Store which arrays of a checkpoint are right."""
        self._dumped[key] = frozenset(name for name in names if self._dumps(key, name))

    def _dumps(self, key: Key, name: str) -> bool:
        if name not in self._variables.nbytes:
            return False
        if key.kind is Kind.RESTART:
            return self.has(name, key.step)
        step = next(iter(self.tapes)) if key.name and len(self.tapes) == 1 else key.step
        return self.taped(name, step) and self.of(name, step) == self.of(name, key.step)

    def _brings(self, key: Key, names: Iterable[str]) -> Names:
        """Return the right arrays of a checkpoint: all of them, if another process wrote it."""
        return self._dumped.get(key, frozenset(names)) & self._variables.nbytes.keys()

    def surely(self, key: Key, names: Iterable[str]) -> Names:
        """Return the arrays of a checkpoint that must be right.

        If another process wrote the checkpoint, these are the arrays that the next step uses.
        """
        right = self._brings(key, names)
        if key in self._dumped or key.name:
            return right
        if not self._uniform and key.step >= self._ahead:
            return NOTHING
        does = self.does(key.step)
        return right & (does.forward.use | does.record.use)

    def load(self, key: Key, names: tuple[str, ...]) -> None:
        """Update the versions for a checkpoint that was loaded."""
        versions, right = self._to(key.step), self._brings(key, names)
        for name in self._variables.nbytes.keys() & names:
            version = self.of(name, key.step) if name in right else None
            if key.kind is Kind.RESTART:
                versions.held[name] = version
            elif key.name and version is not None:
                versions.taped[name] = version
        if key.kind is Kind.TAPE:
            self.tapes = {} if key.name else {key.step: right}

    def taped(self, name: str, step: int) -> bool:
        """Return whether an array is on the tape of a step, with its value in x_step."""
        if name not in self._variables.changed:
            return self.has(name, step)
        if step in self.tapes:
            return name in self.tapes[step]
        return self._versions.taped.get(name) == self.of(name, step)


class Trials:
    """Tests whether a step depends on arrays that it should not depend on.

    An array that a step is declared not to use, and overwrites in part, has no valid value after
    the step if it had none before. If all such arrays were replaced at once, their effects on each
    other would not be visible. Therefore some are replaced while others are not.

    A step that is run for the first time is run again twice. In the first trial all arrays that it
    should not need have other values. In the second trial those that are overwritten in part keep
    theirs, except for at most one of them. This one, and the kind of values, differ from step to
    step. Among steps with equal declarations, some (`seldom`) are also run again unchanged, and
    with every kind of values in all arrays, in all except those overwritten in part, and in each of
    these alone. A step that was run before is tested again only if it may now use fewer arrays.

    Attributes
    ----------
    fill : int
        The kind of replacement: `NAN` until a step fails because of it, and `OTHER` from then on.
    """

    def __init__(self, step: Callable[[Arrays, int], object], versions: GuardedVersions) -> None:
        self._step, self._versions = step, versions
        self._turns: dict[tuple[object, Names], _TriedSteps] = {}
        self._before = self._trial = Arrays()
        self._random = Random(0)
        self.fill = NAN

    def are_due(self, does: object, i: int, lost: Names, /) -> bool:
        """Return whether step i was never tried without these arrays."""
        return i not in self._turns.setdefault((does, lost), _TriedSteps()).done

    def keep(self, state: Arrays, /) -> None:
        """Store a copy of the state before a step."""
        if not self._before:
            self._before, self._trial = copies("state", state), copies("state", state)
        _copy(state, self._before)

    def restore(self, state: Arrays, lost: Iterable[str], /) -> None:
        """Restore the state before a step, with possible content in the arrays that are lost."""
        self.fill = OTHER
        for name in lost:
            poison(self._before[name], OTHER)
        _copy(self._before, state)

    def check(
        self, after: Arrays, i: int, lost: Names, does: object, flow: Flow, *, recorded: bool
    ) -> None:
        """Test a step that has been run, from the stored state to `after`; raise RunFailed."""
        carried = [frozenset({name}) for name in sorted(lost & (flow.out - flow.kill))]
        every = self._turns[does, lost].is_due(i)
        for some, fill in self._kinds(lost, carried, every=every):
            right = self._versions.after(i, some, recorded=recorded)
            if odd := self._changes(after, i, some, fill, right):
                self._blame(after, i, some, odd, recorded=recorded)

    def _kinds(
        self, lost: Names, carried: list[Names], *, every: bool
    ) -> Iterator[tuple[Names, int]]:
        """Yield the arrays that are lost in each trial, and the kind of their new content."""
        rest = lost.difference(*carried)
        if every:
            yield NOTHING, OTHER
            yield from product(dict.fromkeys(filter(None, (lost, rest, *carried))), FILLS)
        else:
            one = self._random.choice([NOTHING, *carried])
            for some in dict.fromkeys(filter(None, (lost, rest | one))):
                yield some, self._random.choice(FILLS)

    def _blame(self, after: Arrays, i: int, lost: Names, odd: Names, *, recorded: bool) -> NoReturn:
        """Find the array that causes a difference, and raise RunFailed with its name."""
        every = self._versions.after(i, NOTHING, recorded=recorded)
        if twice := self._changes(after, i, NOTHING, OTHER, every):
            raise BrokenDeclaration(
                f"step {i}, run again on copies of the same arrays: {_comes_out(twice)};"
                f" {NO_FUNCTION}"
            )
        for name in sorted(lost):
            one = frozenset({name})
            right = self._versions.after(i, one, recorded=recorded)
            for fill in FILLS:
                changed = self._changes(after, i, one, fill, right)
                if changed - one:
                    raise BrokenDeclaration(
                        f"step {i} uses {name}, which is not declared (use): with other content in"
                        f" it, {_comes_out(changed - one)}"
                    )
                if changed:
                    raise BrokenDeclaration(
                        f"step {i} is declared to overwrite all of {name} (kill); some of its old"
                        " content remains"
                    )
        raise BrokenDeclaration(
            f"step {i} uses some of {listed(lost)}, which is not declared (use): with other content"
            f" in all of them, {_comes_out(odd)}"
        )

    def _changes(self, after: Arrays, i: int, lost: Names, fill: int, right: Names) -> Names:
        """Return the arrays of `right` that differ after the step, with other content in `lost`."""
        trial = self._trial
        _copy(self._before, trial)
        for name in lost:
            poison(trial[name], fill)
        try:
            with quiet():
                self._step(trial, i)
        except Exception:  # the step may raise any error for content that it cannot use
            if fill == OTHER:
                return frozenset({_FAILS})
            self.fill = OTHER  # the step may check arrays that it does not use
            return NOTHING
        return frozenset(name for name in right if not same(trial[name], after[name]))


class _TriedSteps:
    """The steps with equal declarations that were tried, and the next one for a thorough test."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        self._closely = seldom()
        self._next = next(self._closely)

    def is_due(self, step: int) -> bool:
        """Count a step, and return whether it is to be tried thoroughly."""
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
    return f"{listed(odd)} {'is' if len(odd) == 1 else 'are'} different"
