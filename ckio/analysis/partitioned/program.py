"""A step as a straight-line program: its values, their arguments, and the adjoint."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ckio.actions.checks import check_cost, check_size
from ckio.errors import BadInput

Values: TypeAlias = Mapping[str, Any]
"""The array of each value, by its name."""

Compute: TypeAlias = Callable[..., Any]
"""A function from arrays to an array, or to a sequence of arrays."""

Backward: TypeAlias = Callable[[Values, Values], Mapping[str, Any]]
"""A function from the required values and the cotangent of x_{i+1} to the cotangent of x_i."""


@dataclass(frozen=True)
class Assignment:
    """One or several values that are computed together from other values.

    Attributes
    ----------
    results : sequence of str
        The names of the values, at least one.
    arguments : sequence of str
        Values of earlier assignments, and arrays of the state.
    compute : callable
        A function from the arguments, which it must not change, to the result, or to a sequence of
        arrays if there are several results. Equal arguments give equal results.
    seconds : float or None
        The seconds of a call, if they are known.
    kind : str
        Assignments of the same kind take equally long on equal arrays, so that one of them is
        measured. Without a kind, each is measured.
    nbytes : sequence of int, or None
        Bytes of each result, if they are known; otherwise they are those of the computed arrays.

    Raises
    ------
    BadInput
        If there is no result, if a name is not text, or if seconds or bytes are not valid.
    """

    results: Sequence[str]
    arguments: Sequence[str]
    compute: Compute
    seconds: float | None = None
    kind: str = field(default="", kw_only=True)
    nbytes: Sequence[int] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for which in ("results", "arguments"):
            object.__setattr__(self, which, _names(f"Assignment: {which}", getattr(self, which)))
        if not self.results:
            raise BadInput("Assignment: results is empty; name at least one value")
        if self.seconds is not None:
            seconds = check_cost(f"Assignment of {self.results[0]!r}: seconds", self.seconds)
            object.__setattr__(self, "seconds", seconds)
        if self.nbytes is not None:
            sizes = zip(self.results, self.nbytes, strict=True)
            checked = (check_size(f"Assignment of {name!r}: nbytes", size) for name, size in sizes)
            object.__setattr__(self, "nbytes", tuple(checked))

    def __call__(self, arguments: Iterable[Any], /) -> tuple[Any, ...]:
        """Return the results as a tuple. Raise BadInput if their number is wrong."""
        computed = self.compute(*arguments)
        results = (computed,) if len(self.results) == 1 else tuple(computed)
        if len(results) != len(self.results):
            raise BadInput(
                f"Assignment: {len(results)} arrays were computed for the"
                f" {len(self.results)} results {', '.join(self.results)}"
            )
        return results


def _unchanged(compute: Compute, /) -> Compute:
    return compute


@dataclass(frozen=True, kw_only=True)
class StraightLine:
    """A step as a sequence of assignments, with its adjoint.

    Attributes
    ----------
    inputs : sequence of str
        The arrays of the state x_i.
    assignments : sequence of Assignment
        The assignments, in the order in which they are computed. Each name is assigned once, and
        the names of inputs are not assigned.
    outputs : mapping of str to str
        For each array of the state that the step overwrites, the name of its new value. An array
        that is not listed, or whose new value is itself, is not overwritten.
    required : sequence of str
        The values that the adjoint reads, possibly inputs.
    backward : callable
        The adjoint: a function from the required values, by name, and the cotangent of x_{i+1}, to
        that of x_i. It must not change its arguments.
    constants : mapping of str to array
        Arrays that every step reads and no step changes. Their names must differ from all others.
        They are not part of the state and are never stored.
    compiled : callable
        A function that compiles a function of arrays, or of mappings of arrays. By default nothing
        is compiled.

    Raises
    ------
    BadInput
        If a name is used before it is assigned, is assigned twice, or is both an input and a
        constant, or if an output is not an array of the state.
    """

    inputs: Sequence[str]
    assignments: Sequence[Assignment]
    outputs: Mapping[str, str]
    required: Sequence[str]
    backward: Backward
    constants: Values = field(default_factory=dict)
    compiled: Callable[[Compute], Compute] = _unchanged

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


def leading_to(
    wanted: Iterable[str], assignments: Iterable[Assignment], given: Collection[str] = ()
) -> tuple[tuple[Assignment, ...], set[str]]:
    """Return the assignments that compute the wanted values, and the names with which they start.

    The assignments are in order, each once. The names are those of wanted values and of arguments
    that are neither given nor assigned.

    >>> double = Assignment(["b"], ["a"], lambda a: 2 * a)
    >>> square = Assignment(["c"], ["b"], lambda b: b**2)
    >>> assignments, names = leading_to(["c"], [double, square])
    >>> [each.results for each in assignments], names
    ([('b',), ('c',)], {'a'})
    """
    known = frozenset(given)
    missing = set(wanted) - known
    leading: list[Assignment] = []
    for assignment in reversed(tuple(assignments)):
        if not missing.isdisjoint(assignment.results):
            leading.append(assignment)
            missing.difference_update(assignment.results)
            missing.update(name for name in assignment.arguments if name not in known)
    return tuple(reversed(leading)), missing


def compute_all(assignments: Iterable[Assignment], given: Values, /) -> dict[str, Any]:
    """Return the given values, and those that are computed from them."""
    values = dict(given)
    for assignment in assignments:
        results = assignment(values[name] for name in assignment.arguments)
        for name, result in zip(assignment.results, results, strict=True):
            values.setdefault(name, result)
    return values


def _names(what: str, given: Iterable[object]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise BadInput(f"{what} = {given!r}; it must be a list of names, even for a single name")
    names: list[str] = []
    for name in given:
        if not isinstance(name, str) or not name:
            raise BadInput(f"{what} has {name!r}; the name of a value is text, and not empty")
        names.append(name)
    return tuple(names)
