"""A model that checks its own declaration, and reports the step and the array of an error.

The rules of a schedule (`ckio.schedule.machine`) guarantee that each step has the arrays that it is
declared to use. Therefore a gradient is right if every step does what is declared. This is tested
for each step alone, whatever the schedule is.
"""

from collections.abc import Callable
from typing import Final

from ckio.actions.variables import Flow, Names, Step, Variables
from ckio.analysis.recorded import FILLS, HIDDEN, OTHER, OwnMethods, digest, flow_of, join
from ckio.errors import BadInput, RunFailed
from ckio.model import ForwardingModel
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Array, Arrays, copies

CLOSELY: Final = 3
"""The first steps are tried with all kinds of values, later ones with two kinds each, in turn."""


class BrokenDeclaration(RunFailed):
    """A step contradicts its declaration."""


class Guarded(ForwardingModel):
    """A model that raises RunFailed at the first step that contradicts its declaration.

    If the declaration is right, every schedule runs as with the model itself, with the same
    gradient to the last bit. If it is wrong, one of these errors is found:

    * A step changes an array that it is not declared to overwrite. This is checked in every step.
    * A step depends on an array that it is not declared to use, or it preserves elements of an
      array that it is declared to overwrite in whole. A step that is run for the first time is also
      run on copies with other values in one array at a time of those that it should not need.
    * A step is not a function of the state, because the model stores data elsewhere, keeps
      references to arrays of the state, or draws random numbers. The runs on copies show this, too.
      In addition, the arrays that a step uses must have the same values whenever it is run.
    * The adjoint depends on data that its tape is not declared to contain, or starts from data that
      are not declared as its seed. This is checked when the adjoint reads them.

    An effect that appears only for some values (a threshold) may not be found. Reading an array on
    whose values nothing depends does not contradict a declaration. Arrays that `variables` does not
    contain are not checked.

    When a step is run for the first time, it is run once more, and twice for each array that it
    should not need. `on_step` is called once. Some more states are in memory.

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
        # The model's own methods. A step that returns a value is an error, which the model reports.
        self._own = OwnMethods(model)
        self._own_step: Callable[[Arrays, int], object] = model.step
        self._own_adjoint_step: Callable[[Arrays, Arrays, int], object] = model.adjoint_step
        vars(model).update(
            step=self._step,
            finished=self._finished,
            adjoint_step=self._adjoint_step,
            adjoint_seed=self._adjoint_seed,
            records_late=False,  # each step is tried as it is run: recorded or not
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

    def _flow(self, i: int) -> Flow:
        """Return the declared flow of a step as it is run now: recorded or not."""
        does = self._does(i)
        return does.record if self._recorded else does.forward

    # --- methods that replace those of the model

    def _finished(self, state: Arrays, i: int, /) -> bool:
        if self._own.finished(state, i):
            return True  # there is no step i, so that none is declared
        if used := self._own.ends_by(state, i, self._known - self._flow(i).use):
            raise BrokenDeclaration(
                f"it depends on {join(used)} whether there is a step {i}, which is not declared"
                f" (use{', if it is recorded' if self._recorded else ''})"
            )
        return False

    def _step(self, state: Arrays, i: int, /) -> object:
        if missing := self._known - state.keys():
            raise BadInput(f"{join(missing)} is declared; the state has only {join(state.keys())}")
        flow = self._flow(i)
        for name in sorted(flow.use & self._known):
            self._compare(name, i, state[name])
        is_new = i not in self._tried
        before = copies("state", state) if is_new else state
        stay = {name: digest(state[name]) for name in self._known - flow.out}

        returned = self._own_step(state, i)
        for name in sorted(stay):
            if digest(state[name]) != stay[name]:
                raise BrokenDeclaration(f"step {i} overwrites {name}, which is not declared (out)")
        if is_new:
            self._try(before, state, i, flow.kill)
            self._tried.add(i)
        return returned  # the model refuses a step that returns a value

    def _adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> object:
        does = self._does(i)
        taped = self._known & tape.keys()
        undeclared = taped - does.record.use - does.reverse.use
        before = copies("tape", tape) if undeclared else tape
        stay = {name: digest(tape[name]) for name in taped - self.variables.changed}

        returned = self._own_adjoint_step(adjoint, tape, i)
        if undeclared and (used := self._own.reads(adjoint, before, i, undeclared)):
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
        value = self._own.adjoint_seed(state, adjoint, n)
        undeclared = self._known - self.variables.seed
        used = self._own.seeds(state, adjoint, n, undeclared)
        used |= undeclared & {"J"}  # ckio itself adds J
        if used:
            raise BrokenDeclaration(
                f"adjoint_seed reads {join(used)}, which is not declared (seed)"
            )
        return value

    def _compare(self, name: str, step: int, array: Array) -> None:
        """Check that an array that a step uses has the same values whenever the step is run."""
        now = digest(array)
        if self._digests.setdefault((name, step), now) != now:
            raise BrokenDeclaration(
                f"computed again or read back, {name} in x_{step} differs from its first value:"
                f" {HIDDEN}, or other code changes it in between"
            )

    def _try(self, before: Arrays, after: Arrays, i: int, kill: Names) -> None:
        """Run a step on copies, with other values in one array at a time that it should not need.

        An array that a step is declared not to use, and overwrites in part, has no valid value
        after the step if it had none before. Therefore only its effect on others matters.
        """

        def does(state: Arrays) -> Arrays:
            self._own_step(state, i)
            return state

        lost = self._known - self._does(i).forward.use
        close = len(self._tried) < CLOSELY
        fills = FILLS if close else {OTHER, FILLS[i % len(FILLS)]}
        try:
            found = flow_of(does, before, lost, fills=fills, results=after)
        except RunFailed as error:
            raise BrokenDeclaration(f"step {i}, {error}") from error
        if found.use:
            raise BrokenDeclaration(f"step {i} uses {join(found.use)}, which is not declared (use)")
        kept = {name for name in lost & kill - found.kill if before[name].nbytes}
        if kept:
            raise BrokenDeclaration(
                f"step {i} is declared to overwrite all of {join(kept)} (kill); some of its old"
                " values remain"
            )
