"""A ValueGraph in numbers: what the three methods work on."""

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.analysis.dag.choice import Price, seconds_for
from ckio.analysis.dag.graph import Name, ValueGraph

Ints: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]


class Numbered(NamedTuple):
    """What precedes the required values, the paper's G*_R, with values and locations numbered.

    Attributes
    ----------
    values, locations : list of names
        What the numbers stand for; values in the order in which they are computed.
    arguments : int32 array (2, pairs)
        An argument, and the value that is computed from it.
    overwrites : int32 array (2, pairs)
        E_b: a minimal value, and a location that overwrites it.
    required : int32 array
        R, of all DAGs together.
    minimal : bool array (values)
        The values without arguments.
    weight : float64 array (values)
        What it takes to store each: bytes, or seconds where there is a price; infinite for what
        cannot be stored.
    saving : float64 array (locations)
        The same of what is overwritten at each location.
    again : float64 array (values)
        Seconds to compute each again; without a price 0, or infinite for what cannot be.
    """

    values: list[Name]
    locations: list[Name]
    arguments: Ints
    overwrites: Ints
    required: Ints
    minimal: Bools
    weight: Floats
    saving: Floats
    again: Floats


class Answer(NamedTuple):
    """What to store, by number.

    Attributes
    ----------
    saved : bool array (locations)
        S.
    stored : bool array (values)
        U.
    """

    saved: Bools
    stored: Bools


def numbered(graph: ValueGraph, price: Price | None, /) -> Numbered:
    """The part of a graph that precedes its required values, weighed by bytes or by a price."""
    needed = graph.needed()
    values = [name for name in graph.arguments if name in needed]
    number = {name: i for i, name in enumerate(values)}
    held = [(name, place) for name in values for place in graph.overwrites.get(name, ())]
    place_of = {place: i for i, place in enumerate(dict.fromkeys(place for _, place in held))}
    again = np.array([graph.recompute.get(name, 0.0) for name in values], np.float64)
    if price is None:
        again[np.isfinite(again)] = 0.0
    return Numbered(
        values=values,
        locations=list(place_of),
        arguments=_pairs(
            [(number[a], i) for i, v in enumerate(values) for a in graph.arguments[v]]
        ),
        overwrites=_pairs([(number[name], place_of[place]) for name, place in held]),
        required=np.array([number[name] for name in graph.required], np.int32),
        minimal=np.array([not graph.arguments[name] for name in values], np.bool_),
        weight=_weights([graph.nbytes.get(v, 1) for v in values], price, values, graph.unstorable),
        saving=_weights([graph.locations[o] for o in place_of], price, place_of, graph.unsavable),
        again=again,
    )


def _pairs(pairs: list[tuple[int, int]]) -> Ints:
    return np.array(pairs, np.int32).reshape(-1, 2).T


def _weights(
    sizes: Iterable[int], price: Price | None, names: Iterable[Name], refused: Collection[Name]
) -> Floats:
    """What each takes to store; infinite for those that are refused."""
    weights = np.array([seconds_for(price, size) if price else size for size in sizes], np.float64)
    never = frozenset(refused)
    weights[np.array([name in never for name in names], np.bool_)] = np.inf
    return weights
