"""A step as a straight-line program: values, what each is computed from, and the adjoint."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ckio.actions.checks import check_cost, check_size
from ckio.errors import BadInput

Values: TypeAlias = Mapping[str, Any]
"""Arrays by the names of the values that they are."""

Compute: TypeAlias = Callable[..., Any]
"""From arrays to an array, or to a sequence of them."""

Backward: TypeAlias = Callable[[Values, Values], Mapping[str, Any]]
"""From the required values and the cotangent of x_{i+1} to the cotangent of x_i."""


def _as_is(compute: Compute, /) -> Compute:
    return compute


@dataclass(frozen=True)
class Assignment:
    """Values that are computed together from others.

    Attributes
    ----------
    results : tuple of str
        The values, at least one.
    arguments : tuple of str
        What they are computed from: values of earlier assignments, and arrays of the state.
    compute : callable
        From the arguments, which it must not change, to the result; to a sequence of arrays where
        there are several results. Called again, it gives the same.
    seconds : float or None
        What it takes, if that is known.
    kind : str
        Assignments of one kind take as long on arrays alike, so that one of them is measured;
        without a kind, each is measured.
    nbytes : tuple of int, or None
        Bytes of each result, if they are known; otherwise they are those of real arrays.

    Raises
    ------
    BadInput
        Where there is no result, a name is no text, or seconds or bytes are none.
    """

    results: tuple[str, ...]
    arguments: tuple[str, ...]
    compute: Compute
    seconds: float | None = None
    kind: str = field(default="", kw_only=True)
    nbytes: tuple[int, ...] | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:

        def __init__(
            self,
            results: Iterable[str],
            arguments: Iterable[str],
            compute: Compute,
            seconds: float | None = None,
            *,
            kind: str = "",
            nbytes: Iterable[int] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for which in ("results", "arguments"):
            object.__setattr__(self, which, _names(f"Assignment: {which}", getattr(self, which)))
        if not self.results:
            raise BadInput("Assignment: results is empty; an assignment computes something")
        if self.seconds is not None:
            seconds = check_cost(f"Assignment of {self.results[0]!r}: seconds", self.seconds)
            object.__setattr__(self, "seconds", seconds)
        if self.nbytes is not None:
            sizes = zip(self.results, self.nbytes, strict=True)
            checked = (check_size(f"Assignment of {name!r}: nbytes", size) for name, size in sizes)
            object.__setattr__(self, "nbytes", tuple(checked))

    def __call__(self, arguments: Iterable[Any], /) -> tuple[Any, ...]:
        """The results as a tuple; raises BadInput where there are more or fewer than are named."""
        found = self.compute(*arguments)
        results = (found,) if len(self.results) == 1 else tuple(found)
        if len(results) != len(self.results):
            raise BadInput(
                f"Assignment: {len(results)} arrays were computed for the"
                f" {len(self.results)} results {', '.join(self.results)}"
            )
        return results


@dataclass(frozen=True, kw_only=True)
class StraightLine:
    """What one step computes, an assignment after the other, and its adjoint.

    Attributes
    ----------
    inputs : tuple of str
        The arrays of the state x_i.
    assignments : tuple of Assignment
        In the order in which they are computed. No name is assigned twice, nor that of an input.
    outputs : mapping of str to str
        For each array of the state that the step overwrites, the value that it then holds. One
        that is not listed, or that is its own value, is not overwritten.
    required : tuple of str
        The values that the adjoint reads; inputs may be among them.
    backward : callable
        The adjoint: from the required values, by name, and the cotangent of x_{i+1}, to that of
        x_i. It must not change what it is given.
    constants : mapping of str to array
        Arrays that every step reads and none changes, by names of their own; they are no part of
        the state, and are never stored.
    compiled : callable
        Makes a function of mappings of arrays, or of arrays, fast, once; by default as it is.

    Raises
    ------
    BadInput
        Where a name is used before it is assigned or is assigned twice, is an input and a constant,
        or an output is not an array of the state.
    """

    inputs: tuple[str, ...]
    assignments: tuple[Assignment, ...]
    outputs: Mapping[str, str]
    required: tuple[str, ...]
    backward: Backward
    constants: Values = field(default_factory=dict)
    compiled: Callable[[Compute], Compute] = _as_is

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            inputs: Iterable[str],
            assignments: Iterable[Assignment],
            outputs: Mapping[str, str],
            required: Iterable[str],
            backward: Backward,
            constants: Values = ...,
            compiled: Callable[[Compute], Compute] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        for which in ("inputs", "required"):
            names = _names(f"StraightLine: {which}", getattr(self, which))
            object.__setattr__(self, which, tuple(dict.fromkeys(names)))
        object.__setattr__(self, "assignments", tuple(self.assignments))
        object.__setattr__(self, "outputs", dict(self.outputs))
        object.__setattr__(self, "constants", dict(self.constants))
        known = self._check_assignments()
        for name in (*self.outputs.values(), *self.required):
            if name not in known:
                raise BadInput(
                    f"StraightLine: {name!r} is an output or required, and it is not a value;"
                    " assign it, or give it as an input"
                )
        for name in self.outputs:
            if name not in self.inputs:
                raise BadInput(
                    f"StraightLine: {name!r} is overwritten, but it is not an array of the state;"
                    f" those are {', '.join(self.inputs) or 'none'}"
                )

    def _check_assignments(self) -> set[str]:
        known = {*self.inputs, *self.constants}
        if both := sorted(self.constants.keys() & set(self.inputs)):
            raise BadInput(
                f"StraightLine: {both[0]!r} is an input and a constant; give it one role"
            )
        for assignment in self.assignments:
            for name in assignment.arguments:
                if name not in known:
                    raise BadInput(
                        f"StraightLine: {assignment.results[0]!r} is computed from {name!r}, which"
                        " is not known there; assign it first, or give it as an input"
                    )
            for name in assignment.results:
                if name in known:
                    raise BadInput(f"StraightLine: {name!r} is assigned twice; give it two names")
                known.add(name)
        return known

    @property
    def overwritten(self) -> tuple[str, ...]:
        """The arrays of the state that the step overwrites."""
        return tuple(name for name in self.inputs if self.outputs.get(name, name) != name)

    @property
    def kept(self) -> tuple[str, ...]:
        """The arrays of the state that are in x_{i+1} as in x_i."""
        return tuple(name for name in self.inputs if self.outputs.get(name, name) == name)

    def reached(self, values: Iterable[str], /) -> frozenset[str]:
        """The arrays of the state from which these values are computed."""
        return frozenset(leading_to(values, self.assignments)[1]).difference(self.constants)


def leading_to(
    wanted: Iterable[str], assignments: Iterable[Assignment], given: Collection[str] = ()
) -> tuple[tuple[Assignment, ...], set[str]]:
    """What has to be computed to have the wanted values where some are given.

    Returns the assignments, in order and each once, and the names that must be there before: of
    what is wanted, or an argument, and is neither given nor assigned.
    """
    there = frozenset(given)
    missing = set(wanted) - there
    found: list[Assignment] = []
    for assignment in reversed(tuple(assignments)):
        if not missing.isdisjoint(assignment.results):
            found.append(assignment)
            missing.difference_update(assignment.results)
            missing.update(name for name in assignment.arguments if name not in there)
    return tuple(reversed(found)), missing


def computed(assignments: Iterable[Assignment], given: Values, /) -> dict[str, Any]:
    """The values that are given, and those that are computed from them."""
    values = dict(given)
    for assignment in assignments:
        results = assignment(values[name] for name in assignment.arguments)
        for name, result in zip(assignment.results, results, strict=True):
            values.setdefault(name, result)
    return values


def _names(what: str, given: Iterable[object]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise BadInput(f"{what} = {given!r}; it must be a list of names, also of a single one")
    names: list[str] = []
    for name in given:
        if not isinstance(name, str) or not name:
            raise BadInput(f"{what} has {name!r}; the name of a value is text, and not empty")
        names.append(name)
    return tuple(names)
