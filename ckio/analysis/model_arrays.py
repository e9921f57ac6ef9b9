"""The arrays of a model's state that belong in a checkpoint, with reasons, for `ckio analyze`.

For example, this model of decay computes its flux again in each step:

    >>> class Decay(ArrayModel):
    ...     def step(self, state, i):
    ...         state["flux"][...] = state["rate"] * state["x"]
    ...         state["x"] -= state["flux"]
    ...
    ...     def adjoint_step(self, adjoint, tape, i):
    ...         adjoint["x"] *= 1 - tape["rate"]
    ...
    >>> def make():
    ...     x = np.linspace(1.0, 2.0, 50)
    ...     return Decay({"x": x, "rate": x / 9, "flux": x, "J": 0.0}, control={"x": x})
    ...
    >>> arrays = analyze(make)                       # runs the first steps and observes them
    >>> arrays.whole["restart"], arrays.needed["restart"]
    (1208, 400)
    >>> [use.name for use in uses(arrays, None) if use.stored == "never"]
    ['rate', 'flux', 'J']
    >>> print(declaration(arrays).splitlines()[-1])  # of the arguments of ArrayModel
    tape={"rate"},
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from textwrap import fill
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind, nbytes_of
from ckio.actions.variables import NOTHING, ChainFlows, Flow, Names, Step, Variables
from ckio.analysis.recorded import contradictions, observe, unneeded
from ckio.errors import BadInput
from ckio.model import optional, sizes_of
from ckio.model.arraymodel import ArrayModel
from ckio.model.checkpoints import Derived
from ckio.platform.readable import option

WATCHED: Final = 3
"""The number of steps that are observed by default, because the first ones are often special."""

_WIDTH: Final = 92
"""The width of a line of code."""

WHY: Final = {
    "always": "steps overwrite it, and its values are read later",
    "versions": "only some steps overwrite it: all checkpoints between two of them share it",
    "dead": "overwritten before it is read: its values between two steps are not needed",
    "unread": "its values are never read",
    "in place": "no step overwrites it: it is the same in every x_i",
    "computed": "computed again from arrays that are stored",
}
"""The reasons for which an array is stored or not."""


@dataclass(frozen=True)
class ModelArrays:
    """The arrays of a model's state, as the model declares them and as its steps use them.

    Attributes
    ----------
    declared : Variables or None
        The declaration of the model.
    observed : Variables or None
        The arrays that its first steps use and overwrite; None if they cannot be observed.
    watched : int
        The number of steps that were observed.
    derived : mapping of str to tuple of str
        Arrays that can be computed again, and the arrays that they are computed from.
    recomputed : tuple of str
        The arrays that the model computes again, so that no checkpoint contains them.
    taped : frozenset of str
        The arrays on the tapes of the model, and those that are computed again from them.
    tape : int
        Bytes of a tape, for a model whose arrays have no names.
    """

    declared: Variables | None
    observed: Variables | None
    watched: int
    derived: Mapping[str, tuple[str, ...]]
    recomputed: tuple[str, ...]
    taped: Names
    tape: int

    @cached_property
    def variables(self) -> Variables:
        """The variables that are not computed again, as declared or else as observed."""
        if self.declared is not None:
            return self.declared
        assert self.observed is not None, "one of them is known"
        return Derived(self.observed.nbytes, self.derived, self.recomputed).without(self.observed)

    @property
    def nbytes(self) -> Mapping[str, int]:
        """Bytes of each array, in the order of the state."""
        return (self.observed or self.variables).nbytes

    @property
    def whole(self) -> dict[str, int]:
        """Bytes of a checkpoint and of a step's tape with all arrays."""
        tape = sum(self.nbytes[name] for name in self.taped) if self.taped else self.tape
        return {"restart": sum(self.nbytes.values()), "tape": tape}

    @property
    def needed(self) -> dict[str, int]:
        """Bytes of a checkpoint and of a step's tape with the arrays that are needed."""
        variables = self.variables
        if not variables.tape:
            return {"restart": variables.restart, "tape": self.tape}
        tape = sum(variables.nbytes[name] for name in variables.taped)
        return {"restart": variables.restart, "tape": tape}

    @property
    def unchanged(self) -> bool:
        """Whether the observed steps change no array."""
        if self.observed is None:
            return False
        return not any(step.forward.out for step in self.observed.different)

    def contradictions(self) -> tuple[str, ...]:
        """Return a sentence for each way in which the first steps contradict the declaration."""
        return self._compared(contradictions)

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each declaration that the first steps do not need."""
        return self._compared(unneeded)

    def _compared(
        self, compare: Callable[[Variables, Variables], tuple[str, ...]]
    ) -> tuple[str, ...]:
        """Compare the declaration of the observed steps with the observation.

        Arrays that are computed again are left out.
        """
        if self.declared is None or self.observed is None:
            return ()
        observed = Derived(self.observed.nbytes, self.derived, self.recomputed)
        return compare(self.declared.cut(self.watched), observed.without(self.observed))


@dataclass(frozen=True, slots=True)
class ArrayUse:
    """The use of one array of the state by the steps, and the checkpoints that contain it.

    Attributes
    ----------
    name, nbytes : str, int
        The name of the array, and its bytes.
    forward, functional : bool
        Whether a step reads it, and whether the functional does.
    adjoint : str or None
        The place from which the adjoint of a step reads it, "tape" or "in place"; None if it does
        not read it.
    overwritten : list of [int, int] or None
        The steps that overwrite it, in half-open spans; None for all steps.
    in_whole : bool
        Whether these steps overwrite all of its elements.
    stored : str
        "always" (in every checkpoint), "versions" (each version once), or "never".
    versions : int or None
        The number of stored versions, if it is not in every checkpoint.
    why : str
        The reason for `stored`: one of WHY.
    """

    name: str
    nbytes: int
    forward: bool
    adjoint: str | None
    functional: bool
    overwritten: list[list[int]] | None
    in_whole: bool
    stored: str
    versions: int | None
    why: str


def analyze(
    make: Callable[[], Any],
    /,
    *,
    steps: int | None = None,
    watched: int = WATCHED,
    what: str = "the model",
) -> ModelArrays:
    """Find the arrays that the steps of a model use and overwrite, by running the first steps.

    Each of the first `watched` steps is also run on altered copies. `steps` is the length of the
    chain, which is needed if the model declares every step separately. `what` is the name of the
    model in errors. Raises BadInput if the model declares fewer steps, or if it neither is an
    `ArrayModel` nor has an attribute `variables`.
    """
    model = make()
    declared = _declared(what, model, steps)
    if not isinstance(model, ArrayModel):
        assert declared is not None, "of other models nothing else is known"
        return ModelArrays(declared, None, 0, {}, (), declared.tape, sizes_of(model)["tape"])
    watched = max(1, make().advance(0, min(watched, steps or watched)))
    observed = observe(make, steps=watched)
    names = declared.nbytes if declared else [it.name for it in model.layout(Key(Kind.RESTART, 0))]
    recomputed = tuple(name for name in model.derived if name not in names)
    tape = model.layout(Key(Kind.TAPE, 0))
    named = {field.name for field in tape} | (declared.tape if declared else NOTHING)
    taped = frozenset(named | observed.tape.intersection(recomputed))
    derived, nbytes = model.derived, nbytes_of(tape)
    return ModelArrays(declared, observed, watched, derived, recomputed, taped, nbytes)


def _declared(what: str, model: Any, steps: int | None, /) -> Variables | None:
    """Return the declaration of a model for this number of steps, or for all if it is None.

    Returns None if the model declares nothing.
    """
    declared = optional(model).variables
    if not isinstance(declared, Variables):
        if isinstance(model, ArrayModel):
            return None
        raise BadInput(
            f"{what}: its steps cannot be observed, because it is not an ArrayModel; declare the"
            " sets in an attribute `variables` (ckio.model.Variables)"
        )
    if steps is None or isinstance(declared.steps, Step):
        return declared
    if steps > len(declared.steps):
        raise BadInput(
            f"{what} declares {len(declared.steps)} steps, each separately:"
            f" {option('steps', steps)} is too many; give fewer steps, or declare more"
        )
    return declared.cut(steps)


def uses(arrays: ModelArrays, steps: int | None, /) -> list[ArrayUse]:
    """Return how `steps` steps use each array of the state."""
    stored, every = arrays.variables, list[ArrayUse]()
    length = len(stored.steps) if not isinstance(stored.steps, Step) else steps or 1
    for name in arrays.nbytes:
        if name in stored.nbytes:
            every.append(_use(name, stored, stored.over(length)))
        else:
            assert arrays.observed is not None, "only where steps are watched arrays are derived"
            use = _use(name, arrays.observed, arrays.observed.over(1))
            every.append(replace(use, stored="never", versions=None, why="computed"))
    return every


def _use(name: str, variables: Variables, over: ChainFlows) -> ArrayUse:
    flows = ("forward", "record", "reverse")
    out = np.logical_or.reduce([over.has(name, flow, "out") for flow in flows])
    live = over.live(name, seed=name in variables.seed)
    count = len(np.unique(over.versions(name)[live]))
    if name in variables.stored:
        alike = isinstance(variables.steps, Step)
        why = "always" if alike or count == over.length + 1 else "versions"
    elif name not in variables.changed:
        why = "in place"
    else:
        why = "dead" if over.has(name, "forward", "kill").any() else "unread"
    return ArrayUse(
        name=name,
        nbytes=variables.nbytes[name],
        forward=bool(over.has(name, "forward", "use").any()),
        adjoint=_adjoint(name, variables, over),
        functional=name in variables.seed,
        overwritten=None if out.all() else _spans(out),
        in_whole=bool(over.has(name, "forward", "kill")[out].all()),
        stored=why if why in ("always", "versions") else "never",
        versions=count if why == "versions" else None,
        why=why,
    )


def _adjoint(name: str, variables: Variables, over: ChainFlows) -> str | None:
    """Return how the adjoint step reads an array: from its "tape", or "in place" from the state."""
    if over.has(name, "reverse", "use").any():
        return "in place"
    taped = variables.tape or frozenset().union(*(it.record.use for it in variables.different))
    if name not in taped:
        return None
    return "tape" if name in variables.changed else "in place"


def _spans(column: NDArray[np.bool_]) -> list[list[int]]:
    """Return the steps for which `column` is true, as half-open spans."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], column.astype(np.int8), [0]))))
    return edges.reshape(-1, 2).tolist()


def declaration(arrays: ModelArrays, /) -> str:
    """Return the observations as arguments of `ArrayModel`, in Python code."""
    assert arrays.observed is not None, "what is not declared was observed"
    (step,) = arrays.observed.different

    def names(before: str, which: Names) -> str:
        listed = ", ".join(json.dumps(name) for name in arrays.nbytes if name in which)
        return f"{before}={{{listed}}}," if which else f"{before}=(),"

    def flow(before: str, flow: Flow) -> list[str]:
        sets = {name: getattr(flow, name) for name in ("use", "out", "kill")}
        given = [names(name, which) for name, which in sets.items() if which]
        line = f"    {before}Flow({' '.join(given).removesuffix(',')}),"
        if len(line) <= _WIDTH:
            return [line]
        return [f"    {before}Flow(", *(f"        {each}" for each in given), "    ),"]

    ends = [names("seed", arrays.observed.seed), names("tape", arrays.observed.tape)]
    lines = ["flow=Step(", *flow("", step.forward), *flow("record=", step.record), "),", *ends]
    inside = [" " * (len(line) - len(line.lstrip()) + 4) for line in lines]
    folded = [
        fill(line, _WIDTH, subsequent_indent=indent, break_on_hyphens=False)
        for line, indent in zip(lines, inside, strict=True)
    ]
    return "\n".join(folded)
