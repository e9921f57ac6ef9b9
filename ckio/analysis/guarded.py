"""A model that checks its own declaration, and reports the step and the array of an error.

The rules of a schedule (`ckio.schedule.machine`) guarantee that each step has the arrays that it is
declared to use. Therefore a gradient is right if every step does what is declared. This is tested
for each step alone, whatever the schedule is.
"""

from collections.abc import Callable, Iterable
from typing import Final, NoReturn

import numpy as np

from ckio.actions.variables import NOTHING, Flow, Names, Step, Variables
from ckio.analysis.recorded import (
    FILLS,
    OTHER,
    OwnMethods,
    WatchedArrays,
    digest,
    equal,
    join,
    poison,
    quiet,
)
from ckio.errors import BadInput, RunFailed
from ckio.model import ForwardingModel
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Array, Arrays, copies

CLOSELY: Final = 3
"""The first steps are tried with all kinds of values, later ones with one kind each, in turn."""

_FAILS: Final = ""
"""Used instead of the name of an array that differs, if the step fails."""

_NO_FUNCTION: Final = (
    "steps have to be a function of the state before and the controls; perhaps the model stores"
    " data between steps that are not in its state, or draws random numbers"
)


class BrokenDeclaration(RunFailed):
    """A step contradicts its declaration."""


class Guarded(ForwardingModel):
    """A model that raises RunFailed at the first step that contradicts its declaration.

    If the declaration is right, every schedule runs as with the model itself, with the same
    gradient to the last bit. If it is wrong, one of these errors is found:

    * A step changes an array that it is not declared to overwrite. This is checked in every step.
    * A step depends on an array that it is not declared to use, or it preserves elements of an
      array that it is declared to overwrite in whole. A step that is run for the first time is also
      run on copies with other values in the arrays that it should not need. Those of them that are
      overwritten in part are changed one at a time, so that their effects on each other are seen.
    * A step is not a function of the state, because the model stores data elsewhere, keeps
      references to arrays of the state, or draws random numbers. The runs on copies show this, too.
      In addition, the arrays that a step uses must have the same values whenever it is run.
    * The adjoint depends on data that its tape is not declared to contain, or starts from data that
      are not declared as its seed. This is checked when the adjoint reads them.

    An effect that appears only for some values (a threshold) may not be found. An adjoint step is
    not run again unchanged. Reading an array on whose values nothing depends does not contradict a
    declaration. Arrays that `variables` does not contain are not checked.

    Forward steps are run two or three times when they are run for the first time, and the first few
    steps more often. `on_step` is called once for each. Two more states are in memory.

    Parameters
    ----------
    model : ArrayModel
        A new model. Do not use it otherwise afterwards, because its methods are replaced.
    variables : Variables
        The declaration of each array.

    Raises
    ------
    BadInput
        If `model` is not an ArrayModel.
    """

    def __init__(self, model: ArrayModel, variables: Variables, /) -> None:
        if not isinstance(model, ArrayModel):
            raise BadInput(f"Guarded takes an ArrayModel; {type(model).__name__} is not one")
        super().__init__(model)
        self.variables = variables
        self._known = frozenset(variables.nbytes)
        self._digests: dict[tuple[str, int], bytes] = {}
        self._recorded = False
        self._tried: set[int] = set()
        self._before = self._trial = Arrays()
        # The model's own methods. A step that returns a value is an error, which the model reports.
        self._own = OwnMethods(model)
        self._own_step: Callable[[Arrays, int], object] = model.step
        self._own_adjoint_step: Callable[[Arrays, Arrays, int], object] = model.adjoint_step
        vars(model).update(
            step=self._step,
            finished=self._finished,
            adjoint_step=self._adjoint_step,
            adjoint_seed=self._adjoint_seed,
        )

    def advance(self, begin: int, end: int, /) -> int:
        self._recorded = False
        return self._model.advance(begin, end)

    def record(self, begin: int, end: int, /) -> int:
        self._recorded = True
        return self._model.record(begin, end)

    def _does(self, i: int) -> Step:
        steps = self.variables.steps
        if isinstance(steps, Step):
            return steps
        if i >= len(steps):
            raise RunFailed(f"step {i} is not among the {len(steps)} declared steps; declare it")
        return steps[i]

    # --- methods that replace those of the model

    def _finished(self, state: Arrays, i: int, /) -> bool:
        asked = set[str]()
        ended = self._own.finished(WatchedArrays(state, asked.add), i)
        if not asked:
            return ended
        does = self._does(i)
        flow = does.record if self._recorded else does.forward
        if used := self._undeclared(asked, flow.use, lambda: self._own.ends_by(state, i)):
            raise BrokenDeclaration(
                f"it depends on {join(used)} whether there is a step {i}, which is not declared"
                f" (use{', if it is recorded' if self._recorded else ''})"
            )
        return ended

    def _step(self, state: Arrays, i: int, /) -> object:
        if missing := self._known - state.keys():
            raise BadInput(f"{join(missing)} is declared; the state has only {join(state.keys())}")
        does = self._does(i)
        flow = does.record if self._recorded else does.forward
        for name in sorted(flow.use & self._known):
            self._compare(name, i, state[name])
        is_new = i not in self._tried
        if is_new:
            self._keep(state)
        stay = {name: digest(state[name]) for name in self._known - flow.out}

        returned = self._own_step(state, i)
        for name in sorted(stay):
            if digest(state[name]) != stay[name]:
                raise BrokenDeclaration(f"step {i} overwrites {name}, which is not declared (out)")
        if is_new:
            self._try(state, i, does.forward.use, flow)
            self._tried.add(i)
        return returned  # the model refuses a step that returns a value

    def _adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> object:
        does, asked = self._does(i), set[str]()
        declared, taped = does.record.use | does.reverse.use, self._known & tape.keys()
        before = copies("tape", tape) if taped - declared else tape
        stay = {name: digest(tape[name]) for name in taped - self.variables.changed}

        returned = self._own_adjoint_step(adjoint, WatchedArrays(tape, asked.add), i)
        if used := self._undeclared(asked, declared, lambda: self._own.reads(adjoint, before, i)):
            raise BrokenDeclaration(
                f"the adjoint of step {i} reads {join(used)} of its tape, which is not declared"
                " (use, if it is recorded)"
            )
        for name in sorted(stay):
            if digest(tape[name]) != stay[name]:
                raise BrokenDeclaration(
                    f"the adjoint of step {i} changes {name}, which no step overwrites"
                )
        return returned

    def _adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        asked, seed = set[str](), self.variables.seed
        value = self._own.adjoint_seed(WatchedArrays(state, asked.add), adjoint, n)
        used = self._undeclared(asked, seed, lambda: self._own.seeds(state, adjoint, n))
        if used := used | (({"J"} & self._known) - seed):  # ckio itself adds J
            raise BrokenDeclaration(
                f"adjoint_seed reads {join(used)}, which is not declared (seed)"
            )
        return value

    def _undeclared(
        self, asked: Iterable[str], declared: Names, exact: Callable[[], Names]
    ) -> Names:
        """Return the arrays that are used and not declared, exactly if the model reads one."""
        if not self._known.intersection(asked) - declared:
            return NOTHING
        return (self._known & exact()) - declared

    def _compare(self, name: str, step: int, content: Array) -> None:
        """Check that an array that a step uses has the same values whenever the step is run."""
        now = digest(content)
        if self._digests.setdefault((name, step), now) != now:
            raise BrokenDeclaration(
                f"computed again or read back, {name} in x_{step} differs from its first value:"
                f" {_NO_FUNCTION}, or other code changes it in between"
            )

    # --- running a step on copies

    def _keep(self, state: Arrays) -> None:
        """Store a copy of the state before a step."""
        if not self._before:
            self._before, self._trial = copies("state", state), copies("state", state)
        _copy(state, self._before)

    def _try(self, after: Arrays, i: int, use: Names, flow: Flow) -> None:
        """Run a step that led to `after` again, with other values in what it should not need.

        An array that a step is declared not to use, and overwrites in part, has no valid value
        after the step if it had none before. If all such arrays were changed at once, their effects
        on each other would not be visible.
        """
        lost = self._known - use
        in_part = [frozenset({name}) for name in sorted(lost & (flow.out - flow.kill))]
        fills = FILLS if len(self._tried) < CLOSELY else (FILLS[i % len(FILLS)],)
        for some in dict.fromkeys((lost.difference(*in_part), *in_part)):
            for fill in fills if some else (OTHER,):
                if self._changes(after, i, some, fill) - (some - flow.kill):
                    self._blame(after, i, lost, flow.kill)

    def _changes(self, after: Arrays, i: int, lost: Names, fill: int) -> Names:
        """Return the arrays that differ from `after`, with other content in `lost`."""
        _copy(self._before, self._trial)
        for name in lost:
            poison(self._trial[name], fill)
        try:
            with quiet():
                self._own_step(self._trial, i)
        except Exception:  # the step may raise any error for content that it cannot use
            if fill == OTHER:
                return frozenset({_FAILS})
            return self._changes(after, i, lost, OTHER)  # it may check arrays that it does not use
        return frozenset(name for name in self._known if not equal(self._trial[name], after[name]))

    def _blame(self, after: Arrays, i: int, lost: Names, kill: Names) -> NoReturn:
        """Find the array that causes a difference, and raise BrokenDeclaration with its name."""
        if odd := self._changes(after, i, NOTHING, OTHER):
            raise BrokenDeclaration(
                f"step {i}, run again on copies of the same arrays: {_describe(odd)};"
                f" {_NO_FUNCTION}"
            )
        for name in sorted(lost):
            for fill in FILLS:
                odd = self._changes(after, i, frozenset({name}), fill)
                if odd - {name}:
                    raise BrokenDeclaration(
                        f"step {i} uses {name}, which is not declared (use): with other content in"
                        f" it, {_describe(odd - {name})}"
                    )
                if odd & kill:
                    raise BrokenDeclaration(
                        f"step {i} is declared to overwrite all of {name} (kill); some of its old"
                        " content remains"
                    )
        raise BrokenDeclaration(
            f"step {i} uses some of {join(lost)}, which is not declared (use): with other content"
            " in all of them, it does something else"
        )


def _copy(source: Arrays, target: Arrays) -> None:
    for name, array in target.items():
        np.copyto(array, source[name])


def _describe(odd: Names) -> str:
    if _FAILS in odd:
        return "it fails"
    return f"{join(odd)} {'is' if len(odd) == 1 else 'are'} different"
