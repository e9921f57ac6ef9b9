"""Graphs to try store-or-recompute on: the paper's figures, chains, and random ones."""

from collections.abc import Sequence
from math import inf
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.analysis.dag import Cost, Name, StoredValues, ValueGraph, choose
from ckio.errors import BadInput


def program(text: str) -> dict[Name, tuple[Name, ...]]:
    """Values by name, each with `=` and what it is computed from, with commas between."""
    parts = (part.partition("=") for part in text.split(","))
    return {name.strip(): tuple(given.split()) for name, _, given in parts}


def figure_2() -> ValueGraph:
    """o = sin a; p = cos b; q = o p, with partials and preaccumulation."""
    return ValueGraph(
        arguments=program(
            "a, b, o = a, p = b, q = o p, do/da = a, dp/db = b, dq/dp = o, dq/do = p,"
            "dq/da = dq/do do/da, dq/db = dq/dp dp/db"
        ),
        required=["dq/da", "dq/db"],
        overwrites={"a": ["oa"], "b": ["ob"]},
    )


def figure_5() -> ValueGraph:
    """G2*: t = 5 d + 4 e; p = sin c + t; r = cos t.

    Reading 12: the listing has dt/dd twice, once for dt/de; both are constant. Reading 13: the
    edges of Fig. 4 are taken as c: o4, o6; d: o1, o4; e: o3, o5.
    """
    return ValueGraph(
        arguments=program(
            "d, e, c, t = d e, sin(c) = c, p = sin(c) t, r = t, dp/dc = c, dr/dt = t"
        ),
        required=["dp/dc", "dr/dt"],
        overwrites={"d": ["o1", "o4"], "e": ["o3", "o5"], "c": ["o4", "o6"]},
    )


def figure_4() -> ValueGraph:
    """G1, of a and b, which shares locations with G2*. Reading 13: a: o1, o4; b: o2."""
    return ValueGraph(
        arguments=program("a, b, g = a b, dg/da = a b, dg/db = a"),
        required=["dg/da", "dg/db"],
        overwrites={"a": ["o1", "o4"], "b": ["o2"]},
    )


def figure_6(case: str) -> ValueGraph:
    """Five values, each with a partial derivative that is required."""
    locations = {
        "a": {1: [1], 2: [2], 3: [3], 4: [4], 5: [5]},
        "b": {1: [1, 2, 3, 4], 2: [5], 3: [5], 4: [5], 5: [5]},
        "c": {1: [1, 2], 2: [1, 2, 3], 3: [3, 4], 4: [3, 4], 5: [3, 4]},
    }[case]
    return ValueGraph(
        arguments={
            **{f"v{i}": () for i in locations},
            **{f"d{i}": (f"v{i}",) for i in locations},
        },
        required=[f"d{i}" for i in locations],
        overwrites={f"v{i}": [f"o{k}" for k in places] for i, places in locations.items()},
    )


def joined(graphs: Sequence[ValueGraph]) -> ValueGraph:
    """DAGs that share their locations and nothing else, as one graph."""
    return ValueGraph(
        arguments={name: given for each in graphs for name, given in each.arguments.items()},
        required=[name for each in graphs for name in each.required],
        overwrites={name: places for each in graphs for name, places in each.overwrites.items()},
    )


def assignments(count: int) -> ValueGraph:
    """v_i = phi_i(v_(i-1)), of which the adjoint reads the product of all derivatives."""
    arguments: dict[Name, tuple[Name, ...]] = {"v0": ()}
    for i in range(1, count + 1):
        arguments |= {f"v{i}": (f"v{i - 1}",), f"d{i}": (f"v{i - 1}",)}
        arguments[f"P{i}"] = (f"P{i - 1}", f"d{i}") if i > 1 else ("d1",)
    return ValueGraph(arguments=arguments, required=[f"P{count}"], overwrites={"v0": ["o0"]})


def random_graph(
    random: Random,
    *,
    dags: int,
    minimal: int,
    inner: int,
    required: int,
    locations: int,
    bytes_: int = 1,
    seconds: int = 0,
    refused: float = 0.0,
) -> ValueGraph:
    """Some DAGs of random values whose minimal ones are overwritten at some of the locations.

    Sizes are 1 to `bytes_`; `seconds`, where there are any, 0 to so many; `refused` is the part of
    values and of locations that cannot be stored, and of values that cannot be computed again.
    """
    places = [f"o{k}" for k in range(locations)]
    arguments: dict[Name, tuple[Name, ...]] = {}
    overwrites: dict[Name, list[str]] = {}
    read: list[Name] = []
    for dag in range(dags):
        pool = [f"{dag}m{k}" for k in range(minimal)]
        for name in pool:
            arguments[name] = ()
            if random.random() > 0.08:
                overwrites[name] = random.sample(
                    places, min(locations, random.choice((1, 1, 2, 3)))
                )
        for kind, count, most in (("i", inner, 3), ("r", required, 2)):
            inputs = list(pool)
            for k in range(count):
                name = f"{dag}{kind}{k}"
                some = random.randint(1, min(most, len(inputs)))
                arguments[name] = tuple(random.sample(inputs, some))
                pool.append(name)
                if kind == "i":
                    inputs.append(name)
                else:
                    read.append(name)
    return ValueGraph(
        arguments=arguments,
        required=read,
        overwrites=overwrites,
        nbytes={name: random.randint(1, bytes_) for name in arguments},
        recompute={
            name: inf if random.random() < refused else random.randint(0, seconds)
            for name in arguments
            if arguments[name]
        },
        unstorable=[name for name in arguments if random.random() < refused],
    )


class Every(NamedTuple):
    """Everything that could be chosen, a choice in each place of these arrays.

    Attributes
    ----------
    objective : float64 array
        What is to be least; infinite where the choice is not sufficient.
    saved, again : mapping of names to bool arrays
        Whether a location is saved, and a value has to be had again.
    """

    objective: NDArray[np.float64]
    saved: dict[Name, NDArray[np.bool_]]
    again: dict[Name, NDArray[np.bool_]]


def every(graph: ValueGraph, cost: Cost | None) -> Every:
    """All subsets of values and locations: what is known forward, and what is needed backward."""
    needed = graph.needed()
    values = [name for name in graph.arguments if name in needed]
    places = list(graph.locations)
    number = np.arange(1 << (len(values) + len(places)))
    bit = {name: (number >> i & 1).astype(bool) for i, name in enumerate([*values, *places])}
    never = {name for name in values if graph.recompute.get(name, 0) == inf}
    known: dict[Name, NDArray[np.bool_]] = {}
    for name in values:
        there = np.full(len(number), name not in never)
        for argument in graph.arguments[name]:
            there &= known[argument]
        for place in graph.overwrites.get(name, ()):
            there &= bit[place]
        known[name] = bit[name] | there
    again = {name: np.full(len(number), name in graph.required) for name in values}
    for name in reversed(values):
        again[name] &= ~bit[name]
        for argument in graph.arguments[name]:
            again[argument] |= again[name]
    total = np.zeros(len(number))
    for name, size in [(v, graph.nbytes.get(v, 1)) for v in values] + [*graph.locations.items()]:
        total += np.where(bit[name], cost(size) if cost else size, 0)
        if name in graph.unstorable:
            total[bit[name]] = inf
    if cost:
        for name in set(values) - never:
            total += np.where(again[name], graph.recompute.get(name, 0), 0)
    for name in graph.required:
        total[~known[name]] = inf
    for name in never:  # known without being stored only if it is not needed
        total[again[name]] = inf
    return Every(total, {name: bit[name] for name in places}, again)


def solvable(random: Random, **given: float) -> ValueGraph:
    """A random graph that some choice is sufficient for."""
    while True:
        graph = random_graph(random, **given)  # type: ignore[arg-type]
        try:
            choose(
                graph,
                saved=graph.locations,
                stored=set(graph.arguments) - set(graph.unstorable),
            )
        except BadInput:
            continue
        return graph


def objective(choice: StoredValues, cost: Cost | None) -> float:
    """What is to be least."""
    return choice.nbytes if cost is None else choice.seconds
