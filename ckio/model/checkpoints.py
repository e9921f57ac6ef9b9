"""Which arrays of a model lie in which of its checkpoints, and which are computed again.

An array that can be computed from others, in every x_i and to the last bit, need not be stored. For
the analysis it does not exist: a step that uses it uses its arguments, as if every step computed it
for itself.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import numpy as np

from ckio.actions import Field, Key, Kind, Layout
from ckio.actions.variables import NOTHING, TOGETHER, Flow, Names, Step, Variables
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model.arrays import AdjointRegister, Array, Arrays, field, is_differentiable


class Derived:
    """The state arrays that are computed again, each after what it is computed from.

    Parameters
    ----------
    state : collection of str
        All state arrays.
    derived : mapping of str to tuple of str
        State arrays, and those that each can be computed from.
    recompute : iterable of str
        Which of them are computed again; the others are stored like all arrays.

    Raises
    ------
    BadInput
        For names that are not among the above, and where of some arrays each needs another first.
    """

    def __init__(
        self,
        state: Collection[str],
        derived: Mapping[str, tuple[str, ...]],
        recompute: Iterable[str],
    ) -> None:
        wanted = dict.fromkeys(recompute)
        if unknown := [name for name in wanted if name not in derived]:
            raise BadInput(
                f"recompute: {', '.join(unknown)} cannot be computed from other arrays; what can is"
                f" {', '.join(derived) or 'none'}"
            )
        named = {name for each in derived for name in (each, *derived[each])}
        if unknown := sorted(named - set(state)):
            raise BadInput(f"derived names {unknown}; the state has {list(state)}")
        self._arguments = {name: derived[name] for name in wanted}
        try:
            order = list(TopologicalSorter(self._arguments).static_order())
        except CycleError as error:
            raise BadInput(
                f"recompute: {' and '.join(dict.fromkeys(error.args[1]))} cannot all be computed"
                " again: each is computed from another of them; leave one out"
            ) from None
        self.names = tuple(name for name in order if name in wanted)

    def of(self, names: Iterable[str], /) -> tuple[str, ...]:
        """Return which arrays have to be computed, and in which order, before these can be read."""
        needed = set(names)
        for name in reversed(self.names):
            if name in needed:
                needed.update(self._arguments[name])
        return tuple(name for name in self.names if name in needed)

    def stored(self, names: Iterable[str], /) -> Names:
        """Replace what is computed again by what is stored to compute it from."""
        needed = set(names)
        for name in reversed(self.names):
            if name in needed:
                needed.update(self._arguments[name])
        return frozenset(needed.difference(self.names))

    def without(self, variables: Variables, /) -> Variables:
        """Return the variables that are left, and what steps do to them."""
        if not self.names:
            return variables
        steps = variables.steps
        new = {step: self._step(step) for step in variables.different}
        return Variables(
            {n: size for n, size in variables.nbytes.items() if n not in self.names},
            new[steps] if isinstance(steps, Step) else [new[step] for step in steps],
            seed=self.stored(variables.seed),
            tape=self.stored(variables.tape),
        )

    def _step(self, step: Step) -> Step:
        return Step(
            self._flow(step.forward),
            self._flow(step.record),
            self._flow(step.reverse),
            restored=step.restored.difference(self.names),
        )

    def _flow(self, flow: Flow) -> Flow:
        names = self.names
        return Flow(self.stored(flow.use), flow.out.difference(names), flow.kill.difference(names))


@dataclass(frozen=True)
class Checkpoints:
    """Which arrays lie in which checkpoint.

    Attributes
    ----------
    fields : mapping of str to Field
        What each state array is.
    restart, tape : tuple of str
        The state arrays in a whole checkpoint.
    adjoint : Layout
        Of the adjoint register.
    variables : Variables or None
        What single arrays there are; None where they are not stored.
    """

    fields: Mapping[str, Field]
    restart: tuple[str, ...]
    tape: tuple[str, ...]
    adjoint: Layout
    variables: Variables | None

    def names(self, key: Key, /) -> tuple[str, ...]:
        """Return the state arrays in a checkpoint; raises UnsupportedKind."""
        if not key.name:
            return self.restart if key.kind is Kind.RESTART else self.tape
        known = self._known(key)
        names = (key.name,) if key.name in known else tuple(key.name.split(TOGETHER))
        if not known.issuperset(names) or len(set(names)) < len(names):
            listed = ", ".join(name for name in self.fields if name in known)
            raise UnsupportedKind(
                f"{key}: what is stored in single arrays is {listed or 'nothing'}"
            )
        return names

    def layout(self, key: Key, /) -> Layout:
        """Return the layout of a checkpoint; raises UnsupportedKind."""
        return self._of(self.names(key)) if key.name else self._whole[key.kind]

    @cached_property
    def _whole(self) -> Mapping[Kind, Layout]:
        """Return the layouts of whole checkpoints, the same objects each time: levels notice."""
        restart, tape = self._of(self.restart), self._of(self.tape)
        return {Kind.RESTART: restart, Kind.TAPE: tape, Kind.ADJOINT: self.adjoint}

    def _of(self, names: Iterable[str]) -> Layout:
        return tuple(self.fields[name] for name in names)

    def check_known(self, step: int, /) -> None:
        """Raises RunFailed where steps differ, and nobody has said what this one does."""
        steps = None if self.variables is None else self.variables.steps
        if isinstance(steps, tuple) and step >= len(steps):
            raise RunFailed(
                f"the model goes on to step {step}, and its flow is that of {len(steps)} steps"
            )

    def reads_tape(self, step: int, /) -> bool:
        """Return whether the adjoint of a step reads anything that a tape has to hold."""
        if self.variables is None:
            return bool(self.tape)
        steps = self.variables.steps
        does = steps if isinstance(steps, Step) else steps[step]
        return not does.record.use.isdisjoint(self.tape)

    def _known(self, key: Key) -> Names:
        if self.variables is None:
            raise UnsupportedKind(
                f"{key}: this model stores whole checkpoints, not single arrays: nothing was said"
                " of what its steps use (flow)"
            )
        match key.kind:
            case Kind.RESTART:
                return frozenset(self.variables.nbytes)
            case Kind.TAPE:
                return self.variables.tape
            case Kind.ADJOINT:
                return NOTHING


def checkpoints(
    state: Arrays,
    taped: Sequence[str],
    derived: Derived,
    /,
    *,
    flow: Step | Sequence[Step] | None,
    seed: Iterable[str] | None,
    adjoint: AdjointRegister,
    units: Mapping[str, str],
) -> Checkpoints:
    """Return the checkpoints of a model of these arrays, some taped, with a known `flow`."""
    restart, tape, variables = derived.stored(state), derived.stored(taped), None
    if flow is not None:
        every = Variables(
            {name: array.nbytes for name, array in state.items()},
            flow if isinstance(flow, Step) else tuple(flow),
            seed=state if seed is None else seed,
            tape=taped,
        )
        variables = derived.without(every)
        restart, tape = variables.stored, tape & variables.changed
    return Checkpoints(
        fields={name: field(name, array, units[name]) for name, array in state.items()},
        restart=tuple(name for name in state if name in restart),
        tape=tuple(name for name in dict.fromkeys((*taped, *state)) if name in tape),
        adjoint=adjoint.layout(units),
        variables=variables,
    )


def check(
    state: Arrays,
    control: Arrays,
    taped: Sequence[str],
    recompute: Collection[str],
    /,
    *,
    in_j: bool,
) -> None:
    """Raises BadInput for what cannot be a model; with `in_j`, its functional is in state["J"]."""
    if unknown := [name for name in taped if name not in state]:
        raise BadInput(f"ArrayModel: tape names {unknown}; the state has {list(state)}")
    if fixed := [name for name, x in control.items() if not is_differentiable(x)]:
        raise BadInput(f"ArrayModel: controls {fixed} have no derivative; make them float64")
    for name in state.keys() & control.keys():
        if name in recompute:
            raise BadInput(f"recompute: {name} is a control, and computed from nothing else in x_0")
        start, controlled = state[name], control[name]
        if start.shape != controlled.shape:
            raise BadInput(
                f"ArrayModel: control {name!r} has shape {controlled.shape}, the array"
                f" in the state {start.shape}; they must be the same"
            )
        if not is_differentiable(start):
            raise BadInput(
                f"ArrayModel: {name!r} is a control, and {start.dtype} in the state, which has"
                " no derivative; make it float64 there too"
            )
    if in_j and not ("J" in state and _is_number(state["J"])):
        raise BadInput(
            "ArrayModel: the state needs one real number 'J', in which step sums up the"
            " functional; or define adjoint_seed, which computes it from x_n"
        )


def _is_number(array: Array) -> bool:
    return array.size == 1 and np.issubdtype(array.dtype, np.floating)
