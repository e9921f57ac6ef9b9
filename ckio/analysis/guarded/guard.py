"""What a model's own methods are given and do, held against what is declared of them."""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.actions.variables import NOTHING, Names, Variables
from ckio.analysis.guarded.held import Held
from ckio.analysis.guarded.trials import NO_FUNCTION, Broken, Trials
from ckio.analysis.recorded.methods import Methods
from ckio.analysis.recorded.poison import NAN, Watched, digest, listed, poison
from ckio.errors import BadInput
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Arrays, copies


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
        self._entered, self._recorded = True, False
        self._aside: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
        self._unseeded: tuple[int, str] | None = None
        self._its = Methods(model)
        # What these return is nothing, or a mistake that the model finds.
        self._step: Callable[[Arrays, int], object] = model.step
        self._trials = Trials(self._step, held)
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

    def came_back(self, key: Key, layout: Layout, contents: Buffers) -> None:
        """A checkpoint was read: raises RunFailed where it is not what was computed."""
        if key.kind is Kind.ADJOINT:
            self._unseeded = None
            return
        found = {field.name: (field, data) for field, data in zip(layout, contents, strict=True)}
        for name in self._held.surely(key, found):
            field, data = found[name]
            if np.dtype(field.dtype).kind == "V":  # it does not say what these bytes are
                continue
            array: NDArray[Any] = np.ndarray(field.shape, field.dtype, buffer=data)
            self._compare(name, self._held.of(name, key.step), array, "read back")

    def _compare(self, name: str, step: int, content: NDArray[Any], how: str) -> None:
        """The content of an array in a version is always the same."""
        if self._digests is None:
            return
        found = digest(content)
        if self._digests.setdefault((name, step), found) != found:
            raise Broken(
                f"{how}, {name} in x_{step} differs from what it was the first time:"
                f" {NO_FUNCTION}, or something else changes it between"
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
        lost = self._known - right
        due = self._trials.are_due(does, i, self._known - use)
        if due or lost:
            self._trials.keep(state)
        kept = {name: digest(state[name]) for name in self._known - flow.out}

        asked: set[str] = set()
        returned = self._do(state, asked.add, i, lost)
        for name in sorted(kept):
            if digest(state[name]) != kept[name]:
                raise Broken(f"step {i} overwrites {name}, which is not declared (out)")
        if due:
            self._trials.check(state, i, self._known - use, does, flow, recorded=self._recorded)
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

    # --- steps as they are done

    def _enter(self, state: Arrays, i: int) -> None:
        """All that is not as in x_i gets other content, for as long as these steps go on."""
        if missing := self._known - state.keys():
            raise BadInput(
                f"{listed(missing)} is declared; the state has only {listed(state.keys())}"
            )
        for name in self._known - self._held.right(i):
            if self._held.is_value(name):  # of another x_i: it may be needed later
                self._aside[name] = state[name], state[name].copy()
            poison(state[name], self._trials.fill)

    def _do(self, state: Arrays, asked: Callable[[str], object], i: int, lost: Names) -> object:
        """The step itself; where it fails for NaN in what is lost, with other content."""
        watched = Watched(state, asked)
        if not lost:
            return self._step(watched, i)
        try:
            with np.errstate(all="ignore"):
                return self._step(watched, i)
        except Exception as error:
            if self._trials.fill != NAN:
                raise Broken(
                    f"step {i} fails ({type(error).__name__}: {error}), perhaps for what is not"
                    f" there and it is declared not to need: {listed(lost)}"
                ) from error
        self._trials.restore(state, lost)  # what it does not use it may yet check
        return self._do(state, asked, i, lost)
