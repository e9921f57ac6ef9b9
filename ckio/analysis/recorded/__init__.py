"""Where the sets come from when nobody declares them: models are observed.

`observe` does a few steps of a model, forward and back, and does each again on copies (`poison`).
What it says holds for these steps. It can be declared, or compared with what was (`differences`).
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile

from ckio.actions.variables import NOTHING, Flow, Names, Step, Variables
from ckio.analysis.recorded.methods import Methods
from ckio.analysis.recorded.poison import flow_of
from ckio.analysis.recorded.recorder import Recorder, either
from ckio.analysis.recorded.seldom import seldom
from ckio.errors import BadInput, RunFailed
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Arrays

__all__ = ["Recorder", "contradictions", "differences", "flow_of", "observe"]


def observe(make: Callable[[], ArrayModel], /, steps: int = 3) -> Variables:
    """What the first so many steps of a model use and overwrite, and what is read of its tapes.

    Each observed step is done once forward and back, on a model of its own, and for every array
    that is asked for a few times more on copies. It is observed with its tape, from x_0 on, with J
    taken right after it. Of more than three steps, the later ones are observed at ever larger
    distances (`seldom`), and the last.

    A model that computes arrays again after loads (`recompute`) is observed as one that does not.

    Parameters
    ----------
    make : callable
        Makes fresh models, all alike.
    steps : int
        How many there are to observe, at least 1. A model that is finished before has less.

    Returns
    -------
    Variables
        Of all arrays of the state: used is what some step uses, killed what each of them kills.
        `record` uses what is really read of the tapes, and what `finished` looks at. `tape` and
        `seed` are what is really read, too.

    Raises
    ------
    BadInput
        Where there are no steps.
    RunFailed
        Where the model has finished at x_0, or what it computes is no function of the state.
    """
    if steps < 1:
        raise BadInput(f"observe: steps = {steps}; it must be at least 1")
    found = _Found()
    for step in _some(steps):
        model = make()
        if step and model.advance(0, step) < step:
            break
        _Spy(model, found)
        if model.record(step, step + 1) == step:
            break
        model.reverse(step, step + 1)
    if found.forward is None:
        raise RunFailed("observe: the model has finished at x_0; there is no step to observe")
    record = Flow(found.tape | found.ends, found.forward.out, found.forward.kill)
    return Variables(found.nbytes, Step(found.forward, record), seed=found.seed, tape=found.tape)


def _some(steps: int) -> Iterator[int]:
    """The first ones, some of those behind them, and the last."""
    yield from takewhile(lambda step: step < steps - 1, seldom())
    yield steps - 1


class _Found:
    """What was found so far."""

    def __init__(self) -> None:
        self.nbytes: dict[str, int] = {}
        self.forward: Flow | None = None
        self.ends: Names = NOTHING
        self.tape: Names = NOTHING
        self.seed: Names = NOTHING


class _Spy:
    """Takes the places of a model's own methods, finds out what they do, and calls them."""

    def __init__(self, model: ArrayModel, found: _Found) -> None:
        self._its, self._found = Methods(model), found
        vars(model).update(
            step=self.step, adjoint_step=self.adjoint_step, adjoint_seed=self.adjoint_seed
        )

    def step(self, state: Arrays, i: int, /) -> None:
        found = self._found
        found.nbytes = {name: array.nbytes for name, array in state.items()}
        found.ends |= self._its.ends_by(state, i)
        found.forward = either(found.forward, self._its.forward(state, i))
        return self._its.step(state, i)  # with what it returns, which the model refuses

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        self._found.tape |= self._its.reads(adjoint, tape, i)
        return self._its.adjoint_step(adjoint, tape, i)

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        self._found.seed |= self._its.seeds(state, adjoint, n)
        return self._its.adjoint_seed(state, adjoint, n)


def contradictions(declared: Variables, observed: Variables, /) -> tuple[str, ...]:
    """What was observed although it is declared otherwise: a sentence for each array and set.

    Where steps were declared one by one, it is against what any of them is declared to do.
    """
    says, does = _Sets(declared), _Sets(observed)
    # What is used is right before the step, and so is after it, killed or not.
    killed = says.kill - says.use - does.kill
    unknown = observed.nbytes.keys() - declared.nbytes.keys()
    sizes = {
        name
        for name, nbytes in observed.nbytes.items()
        if declared.nbytes.get(name, nbytes) != nbytes
    }
    return (
        *_say(unknown, "the state has {}, which is not declared"),
        *_say(sizes, "{} is declared to have other bytes than it has"),
        *_say(does.use - says.use, "step uses {}, which is not declared"),
        *_say(does.out - says.out, "step overwrites {}, which is not declared"),
        *_say(killed, "step is declared to overwrite all of {}; it keeps some of what that held"),
        *_say(does.record - says.record, "a recorded step needs {}, which is not declared"),
        *_say(
            does.tape - says.tape if says.tape else (),
            "adjoint_step reads {} from the tape, of which it is not declared to be a part",
        ),
        *_say(does.seed - says.seed, "adjoint_seed reads {}, which is not declared"),
    )


def differences(declared: Variables, observed: Variables, /) -> tuple[str, ...]:
    """The contradictions, and behind them what is declared although nothing shows it.

    That does no harm, but checkpoints and tapes may be larger than they need be. It may also be
    what other steps do, or other content: nobody but the author of the model knows. Nothing is said
    where it makes no difference: of an array that its own new value alone depends on, it does not
    matter whether it is declared as used, nor of one that is used whether it is killed.
    """
    says, does = _Sets(declared), _Sets(observed)
    carried = does.out - does.kill
    return (
        *contradictions(declared, observed),
        *_say(says.use - does.use - carried, "step is declared to use {}; nothing depends on it"),
        *_say(says.out - does.out, "step is declared to overwrite {}; it stays as it is"),
        *_say(
            does.kill - says.kill - says.use,
            "step overwrites all of {}; it is declared to keep some of what that held",
        ),
        *_say(says.record - does.record, "a recorded step is declared to need {}; it does not"),
        *_say(says.tape - does.tape, "{} is on the tape; adjoint_step does not need it"),
        *_say(says.seed - does.seed, "adjoint_seed is declared to read {}; it does not need it"),
    )


class _Sets:
    """What all steps together are said to do."""

    def __init__(self, variables: Variables) -> None:
        steps = variables.different
        self.use = NOTHING.union(*(step.forward.use for step in steps))
        self.out = NOTHING.union(*(step.forward.out for step in steps))
        self.kill = frozenset(variables.nbytes).intersection(*(it.forward.kill for it in steps))
        self.record = NOTHING.union(*(step.record.use | step.reverse.use for step in steps))
        self.tape, self.seed = variables.tape, variables.seed


def _say(names: Iterable[str], sentence: str) -> Iterator[str]:
    return map(sentence.format, sorted(names))
