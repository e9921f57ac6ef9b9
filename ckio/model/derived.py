"""State arrays that are left out of checkpoints, and computed again from those that lie in them.

An array that can be computed from others, in every x_i and to the last bit, need not be stored. For
the analysis it is not there at all: what uses it uses its arguments, as if every step computed it
for itself.
"""

from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from ckio.actions.flows import Flow, Names, Step
from ckio.actions.variables import Variables
from ckio.errors import BadInput


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
        """Which arrays have to be computed, and in which order, before these can be read."""
        needed = set(names)
        for name in reversed(self.names):
            if name in needed:
                needed.update(self._arguments[name])
        return tuple(name for name in self.names if name in needed)

    def stored(self, names: Iterable[str], /) -> Names:
        """These, but what is computed again replaced by what is stored to compute it from."""
        needed = set(names)
        for name in reversed(self.names):
            if name in needed:
                needed.update(self._arguments[name])
        return frozenset(needed.difference(self.names))

    def without(self, variables: Variables, /) -> Variables:
        """The variables that are left, and what steps do to them."""
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
        gone = self.names
        return Flow(self.stored(flow.use), flow.out.difference(gone), flow.kill.difference(gone))
