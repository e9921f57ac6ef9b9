"""A model that checks its own declaration, and reports the step and the array of an error.

Arrays that are not needed according to the declaration are filled with NaN. Therefore any use that
is not declared becomes visible with every schedule.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.actions.variables import NOTHING, Names, Variables
from ckio.analysis.recorded import NAN, OwnMethods, WatchedArrays, digest, listed, poison
from ckio.analysis.trials import NO_FUNCTION, BrokenDeclaration, GuardedVersions, Trials
from ckio.errors import BadInput
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Arrays, copies


class Guarded:
    """A model that raises RunFailed at the first step that contradicts its declaration.

    If the declaration is right, every schedule runs as with the model itself, with the same
    gradient to the last bit. If it is wrong, one of these errors is found:

    * A step changes an array that it is not declared to overwrite. This is checked in every step.
    * A step depends on an array that it is not declared to use, or it preserves elements of an
      array that it is declared to overwrite in whole. Before each span of steps, all arrays that
      the declaration does not require are filled with other values. A step that is run for the
      first time is also run again on copies with other values in these arrays (see `Trials`).
    * A step is not a function of the state, because the model stores data elsewhere, keeps
      references to arrays of the state, or draws random numbers. For this, the first steps and some
      later ones are run again unchanged. In addition, digests are compared in every step that is
      replayed and for every checkpoint that is read.
    * The adjoint depends on data that its tape is not declared to contain, or starts from data that
      are not declared as its seed. This is checked when the adjoint reads them.

    Some errors may be found late or not at all, if they occur only in a few steps after the first
    ones: the effect of one array that is overwritten in part on another such array, and an effect
    that appears only for some values (a threshold). The same holds for a step that sometimes is not
    a function of the state, but is one while it is replayed. An adjoint step is not run again
    unchanged. No digests are compared for structured arrays that are read from checkpoints.

    Forward steps are run two or three times when they are run for the first time, and the first few
    steps more often. `on_step` is called once for each. Two more states are in memory.

    Reading an array on whose values nothing depends does not contradict a declaration. Arrays that
    `variables` does not contain are not checked.

    Parameters
    ----------
    model : ArrayModel
        A new model. Do not use it otherwise afterwards, because its methods are replaced.
    variables : Variables
        The declaration of each array.
    digests : bool
        Whether the digest of each version of each array is stored when it is first computed, and
        compared whenever it is computed again or read from a checkpoint.

    Attributes
    ----------
    poisons : bool
        True, because states contain NaN in arrays that are not needed, and checkpoints may too.

    Raises
    ------
    BadInput
        If `model` is not an ArrayModel.
    """

    poisons = True

    def __init__(
        self, model: ArrayModel, variables: Variables, /, *, digests: bool = False
    ) -> None:
        if not isinstance(model, ArrayModel):
            raise BadInput(f"Guarded takes an ArrayModel; {type(model).__name__} is not one")
        self._model, self._variables = model, variables
        self._versions = GuardedVersions(variables)
        self._known = frozenset(variables.nbytes)
        self._digests: dict[tuple[str, int], bytes] | None = {} if digests else None
        self._entered, self._recorded = True, False
        self._aside: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
        self._unseeded: tuple[int, str] | None = None
        # The model's own methods. A step that returns a value is an error, which the model reports.
        self._own = OwnMethods(model)
        self._own_step: Callable[[Arrays, int], object] = model.step
        self._own_adjoint_step: Callable[[Arrays, Arrays, int], object] = model.adjoint_step
        self._trials = Trials(self._own_step, self._versions)
        vars(model).update(
            start=self._start,
            step=self._step,
            finished=self._finished,
            adjoint_step=self._adjoint_step,
            adjoint_seed=self._adjoint_seed,
        )

    @property
    def variables(self) -> Variables:
        return self._variables

    @property
    def control(self) -> Arrays:
        return self._model.control

    @property
    def gradient(self) -> Arrays:
        return self._model.gradient

    @property
    def functional(self) -> float:
        return self._model.functional

    @property
    def on_step(self) -> Callable[[int], None] | None:
        return self._model.on_step

    @on_step.setter
    def on_step(self, call: Callable[[int], None] | None) -> None:
        self._model.on_step = call

    def layout(self, key: Key, /) -> Layout:
        return self._model.layout(key)

    def advance(self, begin: int, end: int, /) -> int:
        with self._moving(recorded=False):
            return self._model.advance(begin, end)

    def record(self, begin: int, end: int, /) -> int:
        with self._moving(recorded=True):
            return self._model.record(begin, end)

    def reverse(self, begin: int, end: int, /) -> None:
        self._versions.reverse(begin, end)
        self._model.reverse(begin, end)

    def dump(self, key: Key, /) -> Buffers:
        views = self._model.dump(key)
        self._versions.dump(key, self._names(key))
        return views

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        return self._load(key, self._model.load(key, layout))

    @contextmanager
    def _load(self, key: Key, load: AbstractContextManager[Buffers]) -> Generator[Buffers]:
        names = self._names(key)
        with load as buffers:
            yield buffers
            self._came_back(key, self._model.layout(key), buffers)
        self._versions.load(key, names)

    def _names(self, key: Key) -> tuple[str, ...]:
        """Return the arrays of a state or tape in a checkpoint, in the order of its layout."""
        if key.kind is Kind.ADJOINT:
            return ()
        return tuple(field.name for field in self._model.layout(key))

    # --- spans of steps, and checkpoints that are read

    @contextmanager
    def _moving(self, *, recorded: bool) -> Generator[None]:
        """Return a context in which the model runs a span of steps."""
        self._entered, self._recorded = False, recorded
        if recorded:
            self._versions.tapes = {}
        try:
            yield
        finally:
            self._entered = True
            for array, content in self._aside.values():  # arrays that none of these steps overwrote
                array[...] = content
            self._aside = {}

    def _came_back(self, key: Key, layout: Layout, contents: Buffers) -> None:
        """Check a checkpoint that was read. Raise RunFailed if it has changed."""
        if key.kind is Kind.ADJOINT:
            self._unseeded = None
            return
        fields = {field.name: (field, data) for field, data in zip(layout, contents, strict=True)}
        for name in self._versions.surely(key, fields):
            field, data = fields[name]
            if np.dtype(field.dtype).kind == "V":  # the types of these bytes are not known
                continue
            array: NDArray[Any] = np.ndarray(field.shape, field.dtype, buffer=data)
            self._compare(name, self._versions.of(name, key.step), array, "read back")

    def _compare(self, name: str, step: int, content: NDArray[Any], how: str) -> None:
        """Check that a version of an array always has the same values."""
        if self._digests is None:
            return
        now = digest(content)
        if self._digests.setdefault((name, step), now) != now:
            raise BrokenDeclaration(
                f"{how}, {name} in x_{step} differs from its first value:"
                f" {NO_FUNCTION}, or other code changes it in between"
            )

    # --- methods that replace those of the model

    def _start(self, state: Arrays, /) -> None:
        self._own.start(state)
        for name in sorted(self._known & state.keys()):
            self._compare(name, 0, state[name], "made")

    def _finished(self, state: Arrays, i: int, /) -> bool:
        if not self._entered:
            self._entered = True
            self._enter(state, i)
        does, asked = self._versions.does(i), set[str]()
        ended = self._own.finished(WatchedArrays(state, asked.add), i)
        flow = does.record if self._recorded else does.forward
        if used := self._undeclared(asked, flow.use, lambda: self._own.ends_by(state, i)):
            raise BrokenDeclaration(
                f"it depends on {listed(used)} whether there is a step {i}, which is not declared"
                f" (use{', if it is recorded' if self._recorded else ''})"
            )
        return ended

    def _step(self, state: Arrays, i: int, /) -> object:
        does = self._versions.does(i)
        flow = does.record if self._recorded else does.forward
        self._versions.check(flow.use, i)
        right, use = self._versions.right(i), flow.use
        if self._recorded:
            self._versions.tapes[i] = right
            use |= does.forward.use if does.forward.use <= right else NOTHING
        lost = self._known - right
        due = self._trials.are_due(does, i, self._known - use)
        if due or lost:
            self._trials.keep(state)
        before = {name: digest(state[name]) for name in self._known - flow.out}

        asked: set[str] = set()
        returned = self._do(state, asked.add, i, lost)
        for name in sorted(before):
            if digest(state[name]) != before[name]:
                raise BrokenDeclaration(f"step {i} overwrites {name}, which is not declared (out)")
        if due:
            self._trials.check(state, i, self._known - use, does, flow, recorded=self._recorded)
        self._versions.move(i, recorded=self._recorded)
        for name in sorted(flow.out):
            self._aside.pop(name, None)
            if self._versions.has(name, i + 1):
                self._compare(name, i + 1, state[name], "computed again")
        return returned  # the model refuses a step that returns a value

    def _adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> object:
        if self._unseeded and self._unseeded[0] == i + 1:
            raise BrokenDeclaration(
                f"the adjoint starts at x_{i + 1} from {self._unseeded[1]}, which does not have its"
                f" value in x_{i + 1}"
            )
        does, asked = self._versions.does(i), set[str]()
        declared, taped = does.record.use | does.reverse.use, self._known & tape.keys()
        before = copies("tape", tape) if taped - declared else tape
        stay = {name: digest(tape[name]) for name in taped - self._variables.changed}

        returned = self._own_adjoint_step(adjoint, WatchedArrays(tape, asked.add), i)
        for name in sorted(asked & self._known & declared):
            if not self._versions.taped(name, i):
                raise BrokenDeclaration(
                    f"the adjoint of step {i} reads {name}, which its tape does not contain"
                )
        if used := self._undeclared(asked, declared, lambda: self._own.reads(adjoint, before, i)):
            raise BrokenDeclaration(
                f"the adjoint of step {i} reads {listed(used)} of its tape, which is not declared"
                " (use, if it is recorded)"
            )
        for name in sorted(stay):
            if digest(tape[name]) != stay[name]:
                raise BrokenDeclaration(
                    f"the adjoint of step {i} changes {name}, which no step overwrites"
                )
        return returned

    def _adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        asked, seed = set[str](), self._variables.seed
        value = self._own.adjoint_seed(WatchedArrays(state, asked.add), adjoint, n)
        used = self._undeclared(asked, seed, lambda: self._own.seeds(state, adjoint, n))
        if used := used | (({"J"} & self._known) - seed):  # ckio itself adds J
            raise BrokenDeclaration(
                f"adjoint_seed reads {listed(used)}, which is not declared (seed)"
            )
        read = sorted((asked | {"J"}) & seed)
        wrong = [name for name in read if not self._versions.has(name, n)]
        self._unseeded = (n, wrong[0]) if wrong else None
        return value

    def _undeclared(
        self, asked: Iterable[str], declared: Names, exact: Callable[[], Names]
    ) -> Names:
        """Return the arrays that are used and not declared, exactly if the model reads one."""
        if not self._known.intersection(asked) - declared:
            return NOTHING
        return (self._known & exact()) - declared

    # --- running steps

    def _enter(self, state: Arrays, i: int) -> None:
        """Fill all arrays that do not have their value of x_i, while these steps are run."""
        if missing := self._known - state.keys():
            raise BadInput(
                f"{listed(missing)} is declared; the state has only {listed(state.keys())}"
            )
        for name in self._known - self._versions.right(i):
            if self._versions.is_value(name):  # a value of another x_i may be needed later
                self._aside[name] = state[name], state[name].copy()
            poison(state[name], self._trials.fill)

    def _do(self, state: Arrays, asked: Callable[[str], object], i: int, lost: Names) -> object:
        """Run the step. If it fails because of NaN in unneeded arrays, use other values."""
        watched = WatchedArrays(state, asked)
        if not lost:
            return self._own_step(watched, i)
        try:
            with np.errstate(all="ignore"):
                return self._own_step(watched, i)
        except Exception as error:
            if self._trials.fill != NAN:
                raise BrokenDeclaration(
                    f"step {i} fails ({type(error).__name__}: {error}), perhaps because it needs"
                    f" {listed(lost)}, which it is declared not to need; declare it (use)"
                ) from error
        self._trials.restore(state, lost)  # the step may check arrays that it does not use
        return self._do(state, asked, i, lost)
