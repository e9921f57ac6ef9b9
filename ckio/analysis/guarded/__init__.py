"""A model that finds out where it does other than is declared of it: which step, which array.

What a declaration says is not needed is not there: it holds NaN. So nothing that is not declared
can be used without being seen, however the schedule happens to go.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.actions.variables import Variables
from ckio.analysis.guarded.guard import Guard
from ckio.analysis.guarded.held import Held
from ckio.errors import BadInput
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Arrays


class Guarded:
    """A model of named arrays that raises RunFailed at the first step that breaks its declaration.

    It passes every schedule that the model itself passes, with the same gradient to the last bit,
    if what is declared is right. Before, it finds

    * a step that changes an array which it is not declared to overwrite: looked at in every step;
    * a step that depends on an array which it is not declared to use, or keeps some of one which it
      is declared to overwrite in whole: before each span of steps, all that is not as it has to be
      there is filled with other content; and a step that is done for the first time is done again
      on copies that hold other content wherever it should not matter (`Trials` says which);
    * a step that is no function of the state, because the model keeps something elsewhere, keeps
      arrays of the state, or draws random numbers: by doing it again as it was (the first steps,
      and some of the later ones), and by digests, in every step that is replayed and for every
      checkpoint that is read;
    * an adjoint that depends on what its tape is not declared to be made of, or starts from what is
      not declared as its seed: looked at wherever it asks for that.

    In a few steps behind the first ones only, what one array that is overwritten in part does to
    another such array, and what shows with some content but not with other (a threshold), may be
    found in a later one of them or not at all; so may a step that sometimes is no function, but not
    while it is replayed. An adjoint step is not done again as it was. Of structured arrays that
    come back from checkpoints no digest is compared.

    Forward steps are done two or three times when they are done for the first time, the first few
    more often; `on_step` is called once for each. It takes memory for two more states.

    An array that is asked for, and on whose content nothing depends, breaks no declaration. Arrays
    that `variables` does not know are let alone.

    Parameters
    ----------
    model : ArrayModel
        A fresh one. It belongs to this from now on: its methods are watched.
    variables : Variables
        What is declared, array by array.
    digests : bool
        Whether the digest of each array in each version is kept when it is first computed, and
        compared whenever it is computed again or comes back from a checkpoint.

    Attributes
    ----------
    poisons : bool
        True: states hold NaN where nothing is needed, and so may what is dumped of them.

    Raises
    ------
    BadInput
        Where `model` is no ArrayModel.
    """

    poisons = True

    def __init__(
        self, model: ArrayModel, variables: Variables, /, *, digests: bool = False
    ) -> None:
        if not isinstance(model, ArrayModel):
            raise BadInput(f"Guarded takes an ArrayModel; {type(model).__name__} is none")
        self._model = model
        self._variables = variables
        self._held = Held(variables)
        self._guard = Guard(model, variables, self._held, digests=digests)

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
        with self._guard.move(recorded=False):
            return self._model.advance(begin, end)

    def record(self, begin: int, end: int, /) -> int:
        with self._guard.move(recorded=True):
            return self._model.record(begin, end)

    def reverse(self, begin: int, end: int, /) -> None:
        self._held.reverse(begin, end)
        self._model.reverse(begin, end)

    def dump(self, key: Key, /) -> Buffers:
        views = self._model.dump(key)
        self._held.dump(key, self._names(key))
        return views

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        return self._load(key, self._model.load(key, layout))

    @contextmanager
    def _load(self, key: Key, load: AbstractContextManager[Buffers]) -> Generator[Buffers]:
        names = self._names(key)
        with load as buffers:
            yield buffers
            self._guard.came_back(key, self._model.layout(key), buffers)
        self._held.load(key, names)

    def _names(self, key: Key) -> tuple[str, ...]:
        """The arrays of a state or tape that lie in a checkpoint, in the order of its layout."""
        if key.kind is Kind.ADJOINT:
            return ()
        return tuple(field.name for field in self._model.layout(key))
