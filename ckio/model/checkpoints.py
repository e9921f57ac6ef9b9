"""The arrays of a model that each of its checkpoints contains, and those that are recomputed.

An array need not be stored if it can be computed from other arrays, for every x_i and to the last
bit. The analysis of the flow replaces such an array by its arguments: a step that uses it counts as
a step that uses its arguments, as if every step computed the array itself. For example, if `e` is
computed from `a` and `b`, a step that uses `e` and `c` counts as one that uses `a`, `b` and `c`.
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
    """The state arrays that are recomputed, in an order in which each follows its arguments.

    Parameters
    ----------
    state : collection of str
        All state arrays.
    derived : mapping of str to tuple of str
        For each state array that can be computed: the state arrays that it is computed from.
    recompute : iterable of str
        The keys of `derived` that are recomputed; all other arrays are stored.

    Raises
    ------
    BadInput
        If a name is unknown, or if arrays of `recompute` are computed from each other in a circle.
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
                f"recompute: {', '.join(unknown)} cannot be computed from other arrays; recompute"
                f" only arrays that the model's derived names: {', '.join(derived) or 'none'}"
            )
        named = {name for each in derived for name in (each, *derived[each])}
        if unknown := sorted(named - set(state)):
            raise BadInput(
                f"derived names {unknown}; it must name arrays of the state: {list(state)}"
            )
        self._arguments = {name: derived[name] for name in wanted}
        try:
            order = list(TopologicalSorter(self._arguments).static_order())
        except CycleError as error:
            raise BadInput(
                f"recompute: {' and '.join(dict.fromkeys(error.args[1]))} cannot all be computed"
                " again, because each is computed from another of them; leave one out"
            ) from None
        self.names = tuple(name for name in order if name in wanted)

    def of(self, names: Iterable[str], /) -> tuple[str, ...]:
        """Return the arrays to be recomputed, in this order, before `names` can be read."""
        needed = set(names)
        for name in reversed(self.names):
            if name in needed:
                needed.update(self._arguments[name])
        return tuple(name for name in self.names if name in needed)

    def stored(self, names: Iterable[str], /) -> Names:
        """Return `names`, with each recomputed array replaced by the stored arrays it needs."""
        needed = set(names)
        for name in reversed(self.names):
            if name in needed:
                needed.update(self._arguments[name])
        return frozenset(needed.difference(self.names))

    def without(self, variables: Variables, /) -> Variables:
        """Return the variables without the recomputed arrays, with the flows of the steps."""
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
    """The arrays that each checkpoint contains.

    Attributes
    ----------
    fields : mapping of str to Field
        Name, dtype, shape and unit of each state array.
    restart, tape : tuple of str
        The state arrays in a whole checkpoint of restart data, and in that of a tape.
    adjoint : Layout
        The layout of the adjoint register.
    variables : Variables or None
        The arrays that can be stored one by one; None if the model has no flow.
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
                f"{key}: this name is not one of the single arrays that are stored; they are"
                f" {listed or 'none'}"
            )
        return names

    def layout(self, key: Key, /) -> Layout:
        """Return the layout of a checkpoint; raises UnsupportedKind."""
        return self._of(self.names(key)) if key.name else self._whole[key.kind]

    @cached_property
    def _whole(self) -> Mapping[Kind, Layout]:
        """Return the layouts of whole checkpoints.

        They are the same objects in each call, because levels recognise a known layout by identity.
        """
        restart, tape = self._of(self.restart), self._of(self.tape)
        return {Kind.RESTART: restart, Kind.TAPE: tape, Kind.ADJOINT: self.adjoint}

    def _of(self, names: Iterable[str]) -> Layout:
        return tuple(self.fields[name] for name in names)

    def check_known(self, step: int, /) -> None:
        """Raise RunFailed if each step has a flow of its own, and this step has none."""
        steps = None if self.variables is None else self.variables.steps
        if isinstance(steps, tuple) and step >= len(steps):
            raise RunFailed(
                f"the model has reached step {step}, but its flow describes only {len(steps)}"
                " steps, from step 0; make the model with a flow for each step, or finish it before"
            )

    def reads_tape(self, step: int, /) -> bool:
        """Return whether the adjoint of a step reads any array from the tape."""
        if self.variables is None:
            return bool(self.tape)
        steps = self.variables.steps
        does = steps if isinstance(steps, Step) else steps[step]
        return not does.record.use.isdisjoint(self.tape)

    def _known(self, key: Key) -> Names:
        if self.variables is None:
            raise UnsupportedKind(
                f"{key}: this model stores whole checkpoints only; to store single arrays, make it"
                " with a flow, which names the arrays that its steps use"
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
    """Return the checkpoints of a model with these state arrays, tape, flow and units."""
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
    """Raise BadInput if the arguments do not make a model; `in_j`: J is summed in state["J"]."""
    if unknown := [name for name in taped if name not in state]:
        raise BadInput(
            f"ArrayModel: tape names {unknown}; it must name arrays of the state: {list(state)}"
        )
    if fixed := [name for name, x in control.items() if not is_differentiable(x)]:
        raise BadInput(
            f"ArrayModel: controls {fixed} have no derivative, because they are not real or complex"
            " numbers; make them float64"
        )
    for name in state.keys() & control.keys():
        if name in recompute:
            raise BadInput(
                f"recompute: {name} is a control, which cannot be computed from other arrays in"
                " x_0; leave it out"
            )
        start, controlled = state[name], control[name]
        if start.shape != controlled.shape:
            raise BadInput(
                f"ArrayModel: control {name!r} has shape {controlled.shape}, the array"
                f" in the state {start.shape}; they must be the same"
            )
        if not is_differentiable(start):
            raise BadInput(
                f"ArrayModel: {name!r} is a control, and {start.dtype} in the state, which has"
                " no derivative; make it float64 in the state, too"
            )
    if in_j and "J" not in state:
        raise BadInput(
            "ArrayModel: the state needs one real number 'J', to which step adds the functional;"
            " add it to the state, or define adjoint_seed, which computes J from x_n"
        )
    if "J" in state and not _is_number(state["J"]):
        raise BadInput(
            "ArrayModel: 'J' in the state must be one real number, because it is the sum to which"
            " step adds the functional; give another array another name"
        )


def _is_number(array: Array) -> bool:
    return array.size == 1 and np.issubdtype(array.dtype, np.floating)
