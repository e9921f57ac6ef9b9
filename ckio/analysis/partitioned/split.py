"""A step in two halves: forward, which leaves a tape, and back, which computes the rest again."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ckio.analysis.dag import StoredValues, ValueGraph
from ckio.analysis.partitioned.program import StraightLine, Values, computed, leading_to
from ckio.analysis.partitioned.weighed import Location


@dataclass(frozen=True, eq=False)
class Partition:
    """One step, its tape, and its adjoint.

    Attributes
    ----------
    program : StraightLine
        The step.
    graph : ValueGraph
        What its adjoint reads, with the bytes and the seconds by which was chosen.
    choice : Choice
        What is stored, and what is computed again.
    """

    program: StraightLine
    graph: ValueGraph
    choice: StoredValues

    @property
    def nbytes(self) -> int:
        """Bytes of all that is saved."""
        return self.choice.nbytes

    @property
    def tape(self) -> int:
        """Bytes of the tape of a step: what a `Chain` asks for under this name."""
        return self.choice.nbytes

    @property
    def recomputing(self) -> float:
        """Seconds that the `reverse` of a `Chain` takes more, to compute values again."""
        return self.choice.recomputing

    @cached_property
    def stored(self) -> tuple[str, ...]:
        """The names of what is saved: arrays of x_i as they are there, and other values."""
        arrays = [place.array for place in self.choice.saved if isinstance(place, Location)]
        values = [name for name in self.choice.stored if isinstance(name, str)]
        return (*arrays, *values)

    @cached_property
    def begins(self) -> tuple[str, ...]:
        """The arrays that the adjoint reads in the state; the step does not overwrite them."""
        _, names = leading_to(self.program.required, self.program.assignments, self.stored)
        return tuple(name for name in self.program.inputs if name in names)

    def forward(self, state: Values, /) -> tuple[dict[str, Any], dict[str, Any]]:
        """x_{i+1} and the tape, from x_i; raises KeyError for an array that is missing.

        What is saved shares no memory with either state, so that both may be changed in place.
        """
        given = _taken("forward: the state", state, self.program.inputs)
        new, saved = self._forward(self.program.constants, given)
        after = {**state, **new}
        return after, {
            name: _apart(x, (*given.values(), *new.values())) for name, x in saved.items()
        }

    def backward(self, saved: Values, cotangent: Values, state: Values, /) -> dict[str, Any]:
        """The cotangent of x_i, from the tape and the cotangent of x_{i+1}.

        Of the state only `begins` is read, in x_i or any later one as long as no step has
        overwritten them. Raises KeyError for what is missing on the tape or in the state.
        """
        given = _taken("backward: the tape", saved, self.stored)
        given |= _taken("backward: the state", state, self.begins)
        return dict(self._backward(self.program.constants, given, dict(cotangent)))

    @cached_property
    def _forward(self) -> Callable[[Values, Values], tuple[dict[str, Any], dict[str, Any]]]:
        program, stored = self.program, self.stored
        new = {name: program.outputs[name] for name in program.overwritten}
        assignments, _ = leading_to([*new.values(), *stored], program.assignments)

        def forward(constants: Values, state: Values) -> tuple[dict[str, Any], dict[str, Any]]:
            values = computed(assignments, {**constants, **state})
            after = {name: values[value] for name, value in new.items()}
            return after, {name: values[name] for name in stored}

        return program.compiled(forward)

    @cached_property
    def _backward(self) -> Callable[[Values, Values, Values], Mapping[str, Any]]:
        program = self.program
        assignments, _ = leading_to(program.required, program.assignments, self.stored)

        def backward(constants: Values, given: Values, cotangent: Values) -> Mapping[str, Any]:
            values = computed(assignments, {**constants, **given})
            return program.backward({name: values[name] for name in program.required}, cotangent)

        return program.compiled(backward)


def _taken(where: str, given: Values, names: Iterable[str]) -> dict[str, Any]:
    wanted = tuple(names)
    for name in wanted:
        if name not in given:
            raise KeyError(f"{where} has no {name!r}; it must have {', '.join(wanted)}")
    return {name: given[name] for name in wanted}


def _apart(array: Any, others: Iterable[Any]) -> Any:
    """The array, or a copy of it where one of the others could be changed under it."""
    if isinstance(array, np.ndarray) and any(
        isinstance(other, np.ndarray) and np.may_share_memory(array, other) for other in others
    ):
        return array.copy()
    return array
