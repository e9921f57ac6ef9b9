"""What a model's own methods are given and do, held against what is declared of them."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from numpy.typing import NDArray

from ckio.actions import Key, Kind
from ckio.analysis.guarded.held import Held
from ckio.analysis.recorded.methods import Methods
from ckio.analysis.recorded.poison import (
    FILLS,
    NAN,
    OTHER,
    Watched,
    digest,
    listed,
    poison,
    quietly,
    same,
)
from ckio.arraymodel import ArrayModel
from ckio.arrays import Arrays, copies
from ckio.errors import BadInput, RunFailed
from ckio.flows import NOTHING, Names
from ckio.variables import Variables

_FAILS: Final = ""
"""In place of the name of what comes out different."""


class Broken(RunFailed):
    """What is declared does not hold."""


@dataclass(frozen=True)
class _Done:
    """A step that was done: with the arrays as they were before, and as they are after it."""

    number: int
    before: Arrays
    after: Arrays


class Guard:
    """Takes the places of a model's own methods, and looks at what they are given and do.

    Parameters are those of `Guarded`; `held` is kept up to date for every step forward.
    """

    def __init__(
        self, model: ArrayModel, variables: Variables, held: Held, *, digests: bool
    ) -> None:
        self._variables, self._held = variables, held
        self._known = frozenset(variables.nbytes)
        self._digests: dict[tuple[str, int], bytes] | None = {} if digests else None
        self._fill = NAN
        self._checked: set[tuple[int, bool]] = set()
        self._entered, self._recorded = True, False
        self._aside: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
        self._unseeded: tuple[int, str] | None = None
        self._its = Methods(model)
        # What these return is nothing, or a mistake that the model finds.
        self._step: Callable[[Arrays, int], object] = model.step
        self._adjoint_step: Callable[[Arrays, Arrays, int], object] = model.adjoint_step
        vars(model).update(
            start=self.start,
            step=self.step,
            finished=self.finished,
            adjoint_step=self.adjoint_step,
            adjoint_seed=self.adjoint_seed,
        )

    # --- moves, and what comes back

    @contextmanager
    def move(self, *, recorded: bool) -> Generator[None]:
        """While it is open, the model goes over a span of steps."""
        self._entered, self._recorded = False, recorded
        if recorded:
            self._held.tapes = {}
        try:
            yield
        finally:
            self._entered = True
            for array, content in self._aside.values():  # of what no step of these has overwritten
                array[...] = content
            self._aside = {}

    def came_back(self, key: Key, contents: Mapping[str, memoryview]) -> None:
        """A checkpoint was read: raises RunFailed where it is not what was computed."""
        if key.kind is Kind.ADJOINT:
            self._unseeded = None
        for name in self._held.surely(key, contents):
            self._compare(name, self._held.of(name, key.step), contents[name], "read back")

    def _compare(self, name: str, step: int, content: NDArray[Any] | memoryview, how: str) -> None:
        """The content of an array in a version is always the same."""
        if self._digests is None:
            return
        found = digest(content)
        if self._digests.setdefault((name, step), found) != found:
            raise Broken(
                f"{how}, {name} in x_{step} differs from what it was the first time: steps are no"
                " function of the state before and the controls, or something changes it between"
            )

    # --- what takes the places of the model's own

    def start(self, state: Arrays, /) -> None:
        self._its.start(state)
        for name in sorted(self._known & state.keys()):
            self._compare(name, 0, state[name], "made")

    def finished(self, state: Arrays, i: int, /) -> bool:
        if not self._entered:
            self._entered = True
            self._enter(state, i)
        does, asked = self._held.does(i), set[str]()
        ended = self._its.finished(Watched(state, asked.add), i)
        flow = does.record if self._recorded else does.forward
        if self._undeclared(asked, flow.use) and (
            used := self._undeclared(self._its.ends_by(state, i), flow.use)
        ):
            raise Broken(
                f"it depends on {listed(used)} whether there is a step {i}, which is not declared"
                f" (use{', where it is recorded' if self._recorded else ''})"
            )
        return ended

    def step(self, state: Arrays, i: int, /) -> object:
        does = self._held.does(i)
        flow = does.record if self._recorded else does.forward
        self._held.needs(flow.use, i)
        right, use = self._held.right(i), flow.use
        if self._recorded:
            self._held.tapes[i] = right
            use |= does.forward.use if does.forward.use <= right else NOTHING
        check = (i, self._recorded) not in self._checked or right != self._known
        before = copies("state", state) if check else state
        kept = {name: digest(state[name]) for name in self._known - flow.out}

        asked: set[str] = set()
        returned = self._do(Watched(state, asked.add), i, before, self._known - right)
        for name in sorted(kept):
            if digest(state[name]) != kept[name]:
                raise Broken(f"step {i} overwrites {name}, which is not declared (out)")
        if check:
            alone = self._undeclared(asked, use) | (flow.out - flow.kill)
            self._check(_Done(i, before, state), self._known - use, alone)
        self._held.move(i, recorded=self._recorded)
        for name in sorted(flow.out):
            self._aside.pop(name, None)
            if self._held.has(name, i + 1):
                self._compare(name, i + 1, state[name], "computed again")
        return returned  # which the model refuses if it is anything

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> object:
        if self._unseeded and self._unseeded[0] == i + 1:
            raise Broken(
                f"the adjoint starts at x_{i + 1} from {self._unseeded[1]}, which is not there"
            )
        does, asked = self._held.does(i), set[str]()
        declared, there = does.record.use | does.reverse.use, self._known & tape.keys()
        before = copies("tape", tape) if there - declared else tape
        stay = {name: digest(tape[name]) for name in there - self._variables.changed}

        returned = self._adjoint_step(adjoint, Watched(tape, asked.add), i)
        for name in sorted(asked & self._known & declared):
            if not self._held.taped(name, i):
                raise Broken(f"the adjoint of step {i} reads {name}, which its tape does not hold")
        if self._undeclared(asked, declared) and (
            used := self._undeclared(self._its.reads(adjoint, before, i), declared)
        ):
            raise Broken(
                f"the adjoint of step {i} reads {listed(used)} of its tape, which is not declared"
                " (use, where it is recorded)"
            )
        for name in sorted(stay):
            if digest(tape[name]) != stay[name]:
                raise Broken(f"the adjoint of step {i} changes {name}, which no step overwrites")
        return returned

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        asked, seed = set[str](), self._variables.seed
        value = self._its.adjoint_seed(Watched(state, asked.add), adjoint, n)
        if self._undeclared(asked, seed) and (
            used := self._undeclared(self._its.seeds(state, adjoint, n), seed)
        ):
            raise Broken(f"adjoint_seed reads {listed(used)}, which is not declared (seed)")
        wrong = [name for name in sorted(asked & seed) if not self._held.has(name, n)]
        self._unseeded = (n, wrong[0]) if wrong else None
        return value

    def _undeclared(self, names: Iterable[str], declared: Names) -> Names:
        return self._known.intersection(names) - declared

    # --- steps, done once more

    def _enter(self, state: Arrays, i: int) -> None:
        """All that is not as in x_i gets other content, for as long as these steps go on."""
        if missing := self._known - state.keys():
            raise BadInput(
                f"{listed(missing)} is declared; the state has only {listed(state.keys())}"
            )
        for name in self._known - self._held.right(i):
            if self._held.is_value(name):  # of another x_i: it may be needed later
                self._aside[name] = state[name], state[name].copy()
            poison(state[name], self._fill)

    def _do(self, state: Arrays, i: int, before: Arrays, lost: Names) -> object:
        """The step itself."""
        try:
            return self._step(state, i)
        except Exception as error:
            if not lost:
                raise
            if self._fill != NAN:
                raise Broken(
                    f"step {i} fails; it is declared not to need {listed(lost)}, which is not"
                    f" there ({error})"
                ) from error
        self._fill = OTHER  # what it does not use it may yet check
        for name in lost:
            poison(before[name], OTHER)
        for name, content in before.items():
            state[name][...] = content
        return self._do(state, i, before, lost)

    def _check(self, done: _Done, lost: Names, alone: Names) -> None:
        """What should be right after a step is, whatever the arrays hold that it may not need.

        What is not overwritten in whole is right afterwards only if it was before. So where all is
        lost at once, nobody sees what it depends on: the first time, those that are overwritten in
        part, and those that were asked for, are also lost one by one, and the others together.
        """
        wanted = [lost]
        checked = done.number, self._recorded
        if checked not in self._checked:
            wanted += [lost - alone, *(frozenset({name}) for name in sorted(lost & alone))]
        for some in dict.fromkeys(filter(None, wanted)):
            right = self._held.after(done.number, some, recorded=self._recorded)
            for fill in FILLS:
                if odd := self._changes(done, some, fill, right):
                    self._blame(done, some, odd)
        self._checked.add(checked)

    def _blame(self, done: _Done, lost: Names, odd: Names) -> NoReturn:
        """Find the array that makes the difference: raises RunFailed, which names it."""
        step = f"step {done.number}"
        if twice := self._changes(done, NOTHING, OTHER, self._known):
            raise Broken(
                f"{step}, done again on copies of the same arrays: {_comes_out(twice)}; steps have"
                " to be a function of the state before and the controls"
            )
        for name in sorted(lost):
            one = frozenset({name})
            right = self._held.after(done.number, one, recorded=self._recorded)
            for fill in FILLS:
                found = self._changes(done, one, fill, right)
                if found - one:
                    raise Broken(
                        f"{step} uses {name}, which is not declared (use): with other content in"
                        f" it, {_comes_out(found - one)}"
                    )
                if found:
                    raise Broken(
                        f"{step} is declared to overwrite all of {name} (kill); it keeps some of"
                        " what that held"
                    )
        raise Broken(
            f"{step} uses some of {listed(lost)}, which is not declared (use): with other content"
            f" in all of them, {_comes_out(odd)}"
        )

    def _changes(self, done: _Done, lost: Names, fill: int, right: Names) -> Names:
        """What of this comes out different with other content in some arrays."""
        trial = copies("state", done.before)
        for name in lost:
            poison(trial[name], fill)

        def does(arrays: Arrays) -> Arrays:
            self._step(arrays, done.number)
            return arrays

        try:
            found = quietly(does, trial)
        except Exception:  # whatever the step raises for content that it cannot do with
            if fill == OTHER:
                return frozenset({_FAILS})
            self._fill = OTHER  # what it does not use it may yet check
            return NOTHING
        return frozenset(name for name in right if not same(found[name], done.after[name]))


def _comes_out(odd: Names) -> str:
    return "it fails" if _FAILS in odd else f"{listed(odd)} comes out different"
