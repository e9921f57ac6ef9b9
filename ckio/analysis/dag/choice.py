"""What is stored and what is computed again: one answer to a ValueGraph, and what it takes."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from ckio.actions.checks import check_cost
from ckio.analysis.dag.graph import Name, ValueGraph
from ckio.errors import BadInput
from ckio.platform import Level

Price: TypeAlias = Callable[[int], float]
"""Seconds to store so many bytes and to have them back."""


def seconds_for(price: Price, nbytes: int, /) -> float:
    """What so many bytes take; raises BadInput where a price is no number of seconds."""
    return check_cost(f"price of {nbytes} bytes (seconds)", price(nbytes))


def price_on(level: Level, /) -> Price:
    """What a level takes to write, read and discard, in the seconds that were measured."""
    return lambda nbytes: level.write(nbytes) + level.read(nbytes) + level.discard(nbytes)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a program stores for its adjoint, and what the adjoint sweep computes again.

    Attributes
    ----------
    saved : tuple of names
        S: the locations at which what is about to be overwritten is saved.
    stored : tuple of names
        U: the values that are stored as soon as they are computed; minimal ones, before they are
        overwritten.
    begins : tuple of names
        The minimal values that are read again from their variables, for which `saved` has all that
        overwrote them.
    recomputed : tuple of names
        The values that are computed again, each once, in an order in which that can be done.
    nbytes : int
        Bytes of all that is saved and stored: the tape.
    storing : float
        Seconds to store them and have them back; 0 where no price was given.
    recomputing : float
        Seconds to compute values again: what the adjoint sweep takes in addition.
    """

    saved: tuple[Name, ...]
    stored: tuple[Name, ...]
    begins: tuple[Name, ...]
    recomputed: tuple[Name, ...]
    nbytes: int
    storing: float
    recomputing: float

    @property
    def seconds(self) -> float:
        """Storing and recomputing together."""
        return self.storing + self.recomputing


def choose(
    graph: ValueGraph,
    /,
    *,
    saved: Collection[Name],
    stored: Collection[Name],
    price: Price | None = None,
) -> Choice:
    """What follows from storing these; raises BadInput where it is not sufficient.

    It is sufficient if every required value is stored, or can be computed from values that are
    there again; a minimal value is there again if all locations that overwrite it are in S. This is
    the paper's condition (CR): some vertex cut C before the required values has, for all c in C,

        c ∈ U   or   c ∈ V_min and ((c, o) ∈ E_b  ⇒  o ∈ S).

    Reading 1: the paper prints (c, o) ∈ O; the pairs are the edges E_b.
    """
    kept, held = frozenset(saved), frozenset(stored)
    _check_storable(graph, kept, held)
    places = [name for name in graph.locations if name in kept]
    values = [name for name in graph.arguments if name in held]
    found = graph.needed(held)
    needed = [name for name in graph.arguments if name in found]
    for value in needed:
        _check_there_again(graph, value, kept)
    sizes = [graph.locations[name] for name in places]
    sizes += [graph.nbytes.get(name, 1) for name in values]
    return Choice(
        saved=tuple(places),
        stored=tuple(values),
        begins=tuple(name for name in needed if not graph.arguments[name]),
        recomputed=tuple(name for name in needed if graph.arguments[name]),
        nbytes=sum(sizes),
        storing=sum((seconds_for(price, size) for size in sizes), 0.0) if price else 0.0,
        recomputing=float(sum(graph.recompute.get(name, 0.0) for name in needed)),
    )


def check_solvable(graph: ValueGraph, /) -> None:
    """Raise BadInput where even storing all that can be stored is not sufficient."""
    choose(
        graph,
        saved=graph.locations.keys() - set(graph.unsavable),
        stored=graph.arguments.keys() - set(graph.unstorable),
    )


def _check_storable(graph: ValueGraph, saved: frozenset[Name], stored: frozenset[Name]) -> None:
    for what, names, known, refused in (
        ("location", saved, graph.locations, graph.unsavable),
        ("value", stored, graph.arguments, graph.unstorable),
    ):
        for name in sorted(names - known.keys(), key=repr):
            raise BadInput(f"choose: there is no {what} {name!r} in the graph")
        for name in refused:
            if name in names:
                raise BadInput(f"choose: {what} {name!r} is to be stored, but it cannot be")


def _check_there_again(graph: ValueGraph, value: Name, saved: frozenset[Name]) -> None:
    """A value that is needed and not stored can be had again."""
    if graph.recompute.get(value) == inf:
        raise BadInput(
            f"choose: {value!r} is needed again and not stored, and it cannot be computed a second"
            " time; store it, or what is computed from it"
        )
    for location in graph.overwrites.get(value, ()):
        if location not in saved:
            raise BadInput(
                f"choose: {value!r} is needed again and not stored, and {location!r} overwrites it;"
                f" save what is there at {location!r}, or store the value or what is computed of it"
            )
