"""The values of straight-line programs: what each is computed from, and where it is lost."""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TypeAlias

from ckio.actions.checks import as_float, check_cost, check_size
from ckio.errors import BadInput

Name: TypeAlias = Hashable
"""What people call a value or a location; often a string."""


@dataclass(frozen=True, kw_only=True)
class ValueGraph:
    """Some DAGs of values, the values that their adjoints ask for, and what overwrites the others.

    A value is what one assignment computes, a partial derivative or a product of such as well. The
    values without arguments are the *minimal* ones: they lie in variables of the program, and are
    there for the adjoint sweep unless the program overwrites the variable first. The places where
    it does so are the *locations*; aliases and branches give one value several of them, and one
    location can destroy values of several DAGs. That is all that the DAGs share, so they are given
    as one graph; `joined` puts several together.

    Attributes
    ----------
    arguments : mapping of names to names
        For each value, what it is computed from; every argument comes before the value, as in the
        program. Empty for a minimal value.
    required : collection of names
        The values that the adjoint sweep reads, of all DAGs.
    overwrites : mapping of names to names
        For each minimal value, the locations of which each may overwrite it. A value that is not
        listed is never overwritten: it costs nothing to have it again.
    nbytes : mapping of names to bytes
        How large values are; 1 where nothing is given, so that values are counted.
    overwritten : mapping of names to bytes
        How much has to be saved at a location; where nothing is given, as much as the largest value
        that it overwrites.
    recompute : mapping of names to seconds
        What it takes to compute a value from its arguments, or to look up a minimal one; 0 where
        nothing is given, and infinite for what cannot be done a second time.
    unstorable, unsavable : collections of names
        Values that cannot be stored, and locations at which nothing can be saved.

    Names that do not exist, arguments that come later, and sizes or seconds that are none, raise
    BadInput.
    """

    arguments: Mapping[Name, Sequence[Name]]
    required: Collection[Name]
    overwrites: Mapping[Name, Collection[Name]] = field(default_factory=dict)
    nbytes: Mapping[Name, int] = field(default_factory=dict)
    overwritten: Mapping[Name, int] = field(default_factory=dict)
    recompute: Mapping[Name, float] = field(default_factory=dict)
    unstorable: Collection[Name] = ()
    unsavable: Collection[Name] = ()

    def __post_init__(self) -> None:
        for name in ("arguments", "overwrites"):
            lists = {key: _each(items) for key, items in getattr(self, name).items()}
            object.__setattr__(self, name, lists)
        for name in ("required", "unstorable", "unsavable"):
            object.__setattr__(self, name, _each(getattr(self, name)))
        self._check_arguments()
        self._check_names()
        for name in ("nbytes", "overwritten"):
            sizes = {
                key: check_size(f"ValueGraph: {name} of {key!r}", size)
                for key, size in getattr(self, name).items()
            }
            object.__setattr__(self, name, sizes)
        seconds = {key: _seconds(key, given) for key, given in self.recompute.items()}
        object.__setattr__(self, "recompute", seconds)

    def _check_arguments(self) -> None:
        known: set[Name] = set()
        for value, arguments in self.arguments.items():
            if late := [name for name in arguments if name not in known]:
                raise BadInput(
                    f"ValueGraph: {value!r} is computed from {late[0]!r}, which does not come"
                    " before it; list values in the order in which they are computed"
                )
            known.add(value)

    def _check_names(self) -> None:
        for what in ("required", "overwrites", "nbytes", "recompute", "unstorable"):
            for name in getattr(self, what):
                if name not in self.arguments:
                    raise BadInput(f"ValueGraph: {what} names {name!r}, which is not a value")
        for value in self.overwrites:
            if self.arguments[value]:
                raise BadInput(
                    f"ValueGraph: {value!r} is overwritten, but it is computed from"
                    f" {self.arguments[value][0]!r}; only minimal values lie in variables"
                )
        for what in ("overwritten", "unsavable"):
            for name in getattr(self, what):
                if name not in self.locations:
                    raise BadInput(f"ValueGraph: {what} names {name!r}, which overwrites nothing")

    @cached_property
    def locations(self) -> Mapping[Name, int]:
        """Every location, in the order in which they are named, and the bytes to save there."""
        sizes: dict[Name, int] = {}
        for value, locations in self.overwrites.items():
            for location in locations:
                sizes[location] = max(sizes.get(location, 0), self.nbytes.get(value, 1))
        return sizes | {name: self.overwritten[name] for name in sizes if name in self.overwritten}

    def needed(self, stored: Collection[Name] = (), /) -> set[Name]:
        """The values that have to be there again, but are not stored: those read, what they are
        computed from, and so on back to the minimal values.
        """
        found: set[Name] = set()
        left = list(self.required)
        while left:
            value = left.pop()
            if value not in found and value not in stored:
                found.add(value)
                left.extend(self.arguments[value])
        return found


def joined(graphs: Iterable[ValueGraph], /) -> ValueGraph:
    """Several graphs as one; locations of the same name are the same place of the program.

    Raises BadInput where two graphs have a value of the same name, or each gives another size for
    one location.
    """
    parts = list(graphs)
    arguments: dict[Name, Sequence[Name]] = {}
    overwritten: dict[Name, int] = {}
    for part in parts:
        for value in part.arguments:
            if value in arguments:
                raise BadInput(f"joined: two graphs have a value {value!r}; give them two names")
        arguments |= part.arguments
        for location, size in part.overwritten.items():
            if overwritten.setdefault(location, size) != size:
                raise BadInput(
                    f"joined: {location!r} is to save {overwritten[location]} bytes and {size}"
                    " bytes; give one size"
                )
    return ValueGraph(
        arguments=arguments,
        required=[name for part in parts for name in part.required],
        overwrites={name: places for part in parts for name, places in part.overwrites.items()},
        nbytes={name: size for part in parts for name, size in part.nbytes.items()},
        overwritten=overwritten,
        recompute={name: seconds for part in parts for name, seconds in part.recompute.items()},
        unstorable=[name for part in parts for name in part.unstorable],
        unsavable=[name for part in parts for name in part.unsavable],
    )


def _each(names: Iterable[Name]) -> tuple[Name, ...]:
    """Every name once, in the order given."""
    if isinstance(names, str):
        raise BadInput(f"ValueGraph: {names!r} is one name where several belong; give a list")
    return tuple(dict.fromkeys(names))


def _seconds(name: Name, seconds: object) -> float:
    """Seconds to recompute a value: infinite, or checked as any others."""
    what = f"ValueGraph: recompute of {name!r} (seconds)"
    return inf if as_float(seconds) == inf else check_cost(what, seconds)
