"""Choose which values of straight-line programs are stored for their adjoint.

The tape of a step need not contain all values that the adjoint reads, because some of them can be
computed again from other values. These must then be available: in variables that are not
overwritten, or stored when they are computed (the set U), or saved where the program overwrites
them (the set S) [Cole-Mullen, Lyons & Utke]. The cheapest choice for several DAGs at once is a
minimum cut of one network (`network`).

For example, two DAGs read the variable a, in y = sin a and in z = a**3, before a = 0 overwrites it.
Saving the 8 bytes of a is sufficient for both, while storing the two derivatives takes 16 bytes:

    >>> graph = ValueGraph(
    ...     arguments={"a in y": (), "cos a": ("a in y",), "a in z": (), "3 a**2": ("a in z",)},
    ...     required=["cos a", "3 a**2"],
    ...     overwrites={"a in y": ["a = 0"], "a in z": ["a = 0"]},
    ...     nbytes=dict.fromkeys(["a in y", "cos a", "a in z", "3 a**2"], 8),
    ... )
    >>> choice = solve(graph)
    >>> choice.saved, choice.stored, choice.recomputed, choice.nbytes
    (('a = 0',), (), ('cos a', '3 a**2'), 8)

By default only bytes count, and recomputation is free. If a `cost` gives the seconds of a level
for a number of bytes, these are compared with the seconds to `recompute`. The result describes
steps of a `Chain`: `nbytes` is their tape, and their `reverse` takes `recomputing` seconds longer.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TypeAlias

from ckio.actions.checks import as_float, check_cost, check_size
from ckio.analysis.cut import SINK, SOURCE, Arc, nearest_cut
from ckio.errors import BadInput
from ckio.platform import Level

Name: TypeAlias = Hashable
"""The name of a value or of a location, often a string."""

Cost: TypeAlias = Callable[[int], float]
"""A function that returns the seconds to store a number of bytes and to read them back."""


@dataclass(frozen=True, kw_only=True)
class ValueGraph:
    """DAGs of values, the values that their adjoints need, and the locations that overwrite others.

    A value is the result of one assignment, for example a partial derivative or a product of such.
    Values without arguments are *minimal*: they are variables of the program, and the adjoint sweep
    can read them unless the program overwrites the variable first. The statements that do so are
    the *locations*. Because of aliases and branches one value may have several locations, and one
    location may overwrite values of several DAGs. The DAGs share nothing else. Therefore they are
    given as one graph.

    Attributes
    ----------
    arguments : mapping of names to names
        For each value, the values that it is computed from. Every argument comes before the value,
        as in the program. A minimal value has no arguments.
    required : collection of names
        The values that the adjoint sweep reads, in all DAGs.
    overwrites : mapping of names to names
        For each minimal value, the locations that may overwrite it. A value that is not listed is
        never overwritten, and it costs nothing to read it again.
    nbytes : mapping of names to bytes
        The size of each value. The default is 1, so that values are counted. At a location, the
        bytes of the largest value that it overwrites have to be saved.
    recompute : mapping of names to seconds
        The time to compute a value from its arguments, or to read a minimal value. The default is
        0. It is infinite for a value that cannot be computed a second time.
    unstorable : collection of names
        Values that cannot be stored.

    Raises BadInput if a name does not exist, if an argument comes after its value, or if a size or
    a number of seconds is not valid.
    """

    arguments: Mapping[Name, Sequence[Name]]
    required: Collection[Name]
    overwrites: Mapping[Name, Collection[Name]] = field(default_factory=dict)
    nbytes: Mapping[Name, int] = field(default_factory=dict)
    recompute: Mapping[Name, float] = field(default_factory=dict)
    unstorable: Collection[Name] = ()

    def __post_init__(self) -> None:
        for name in ("arguments", "overwrites"):
            lists = {key: _each(items) for key, items in getattr(self, name).items()}
            object.__setattr__(self, name, lists)
        for name in ("required", "unstorable"):
            object.__setattr__(self, name, _each(getattr(self, name)))
        self._check_names()
        sizes = {
            key: check_size(f"ValueGraph: nbytes of {key!r}", size)
            for key, size in self.nbytes.items()
        }
        object.__setattr__(self, "nbytes", sizes)
        seconds = {key: _seconds(key, given) for key, given in self.recompute.items()}
        object.__setattr__(self, "recompute", seconds)

    def _check_names(self) -> None:
        known: set[Name] = set()
        for value, arguments in self.arguments.items():
            if late := [name for name in arguments if name not in known]:
                raise BadInput(
                    f"ValueGraph: {value!r} is computed from {late[0]!r}, which does not come"
                    " before it; list values in the order in which they are computed"
                )
            known.add(value)
        for what in ("required", "overwrites", "nbytes", "recompute", "unstorable"):
            for name in getattr(self, what):
                if name not in known:
                    raise BadInput(f"ValueGraph: {what} names {name!r}, which is not a value")
        for value in self.overwrites:
            if self.arguments[value]:
                raise BadInput(
                    f"ValueGraph: {value!r} is overwritten, but it is computed from"
                    f" {self.arguments[value][0]!r}; only minimal values are variables"
                )

    @cached_property
    def locations(self) -> Mapping[Name, int]:
        """Every location, in the order of their first mention, and the bytes to save at each."""
        sizes: dict[Name, int] = {}
        for value, locations in self.overwrites.items():
            for location in locations:
                sizes[location] = max(sizes.get(location, 0), self.nbytes.get(value, 1))
        return sizes

    def needed(self, stored: Collection[Name] = (), /) -> set[Name]:
        """Return the needed values that are not stored, and all values they are computed from."""
        needed: set[Name] = set()
        left = list(self.required)
        while left:
            value = left.pop()
            if value not in needed and value not in stored:
                needed.add(value)
                left.extend(self.arguments[value])
        return needed


def _each(names: Iterable[Name]) -> tuple[Name, ...]:
    """Return every name once, in the given order."""
    if isinstance(names, str):
        raise BadInput(f"ValueGraph: {names!r} is one name, but several are expected; give a list")
    return tuple(dict.fromkeys(names))


def _seconds(name: Name, seconds: object) -> float:
    """Return the seconds to recompute a value: infinite, or a valid number of seconds."""
    what = f"ValueGraph: recompute of {name!r} (seconds)"
    return inf if as_float(seconds) == inf else check_cost(what, seconds)


def seconds_for(cost: Cost, nbytes: int, /) -> float:
    """Return the seconds for this many bytes. Raise BadInput if a cost is not a valid number."""
    return check_cost(f"cost of {nbytes} bytes (seconds)", cost(nbytes))


def cost_on(level: Level, /) -> Cost:
    """Return the cost of a level: its measured seconds to write, read and discard."""
    return lambda nbytes: level.write(nbytes) + level.read(nbytes) + level.discard(nbytes)


@dataclass(frozen=True, kw_only=True)
class StoredValues:
    """The values that a program stores for its adjoint, and those that are computed again.

    Attributes
    ----------
    saved : tuple of names
        S: the locations at which the old value is saved before it is overwritten.
    stored : tuple of names
        U: the values that are stored as soon as they are computed. Minimal values are stored before
        they are overwritten.
    begins : tuple of names
        The minimal values that are read again from their variables. If a location overwrites one of
        them, its old value is `saved`.
    recomputed : tuple of names
        The values that are computed again, each once, in a possible order.
    nbytes : int
        Bytes of all saved and stored values, which are the tape.
    storing : float
        Seconds to store these values and read them back; 0 without a cost.
    recomputing : float
        Seconds to compute values again, by which the adjoint sweep takes longer.
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
        """The sum of `storing` and `recomputing`."""
        return self.storing + self.recomputing


def choose(
    graph: ValueGraph,
    /,
    *,
    saved: Collection[Name],
    stored: Collection[Name],
    cost: Cost | None = None,
) -> StoredValues:
    """Return the consequences of storing these values. Raise BadInput if they are not sufficient.

    They are sufficient if every required value is stored or can be computed from available values.
    A minimal value is available if all locations that overwrite it are in S. This is condition (CR)
    of Cole-Mullen, Lyons & Utke: some vertex cut C before the required values has, for all c in C,

        c ∈ U   or   c ∈ V_min and ((c, o) ∈ E_b  ⇒  o ∈ S).

    Reading 1: the paper prints (c, o) ∈ O; the pairs are the edges E_b.
    """
    saved, stored = frozenset(saved), frozenset(stored)
    locations = [name for name in graph.locations if name in saved]
    values = [name for name in graph.arguments if name in stored]
    recomputed = graph.needed(stored)
    needed = [name for name in graph.arguments if name in recomputed]
    for value in needed:
        _check_available(graph, value, saved)
    sizes = [graph.locations[name] for name in locations]
    sizes += [graph.nbytes.get(name, 1) for name in values]
    return StoredValues(
        saved=tuple(locations),
        stored=tuple(values),
        begins=tuple(name for name in needed if not graph.arguments[name]),
        recomputed=tuple(name for name in needed if graph.arguments[name]),
        nbytes=sum(sizes),
        storing=sum((seconds_for(cost, size) for size in sizes), 0.0) if cost else 0.0,
        recomputing=float(sum(graph.recompute.get(name, 0.0) for name in needed)),
    )


def _check_available(graph: ValueGraph, value: Name, saved: frozenset[Name]) -> None:
    """Check that a value that is needed and not stored can be computed or read again."""
    if graph.recompute.get(value) == inf:
        raise BadInput(
            f"choose: {value!r} is needed again and not stored, and it cannot be computed a second"
            " time; store it, or the values that are computed from it"
        )
    for location in graph.overwrites.get(value, ()):
        if location not in saved:
            raise BadInput(
                f"choose: {value!r} is needed again and not stored, and {location!r} overwrites it;"
                f" save its value at {location!r}, store the value, or store the values that are"
                " computed from it"
            )


def solve(graph: ValueGraph, /, *, cost: Cost | None = None) -> StoredValues:
    """Return the cheapest choice of S and U for all DAGs of the graph together.

    The result is exact, up to rounding (see `cut`). Among equally cheap choices it is the one that
    saves the fewest locations and computes the fewest values again. This extends the tie-breaker of
    Algorithm 1 of Cole-Mullen, Lyons & Utke, "minimal distance to R", to all DAGs.

    Parameters
    ----------
    graph : ValueGraph
        The values, those that are required, and the locations that overwrite them.
    cost : callable or None
        A function that returns the seconds to store a number of bytes and to read them back, such
        as `cost_on(level)`. The sum of these seconds and of the seconds to compute values again
        is then minimized. Without a cost the stored bytes are minimized.

    Raises BadInput if a required value can neither be stored nor be computed again.
    """
    choose(  # raises BadInput if storing everything is not sufficient
        graph,
        saved=graph.locations,
        stored=graph.arguments.keys() - set(graph.unstorable),
    )
    arcs = network(graph, cost)
    # The cheapest of three cuts: all arcs, all arcs of the source, or all required values.
    required = {("out", name) for name in graph.required}
    bound = min(
        sum(weight for *_, weight in arcs if weight < inf),
        sum(weight for tail, _, weight in arcs if tail == SOURCE),
        sum(weight for _, head, weight in arcs if head in required),
    )
    beyond = nearest_cut(arcs, bound=bound)
    return choose(
        graph,
        saved=[name for name in graph.locations if ("at", name) in beyond],
        stored=[
            name
            for name in graph.arguments
            if ("out", name) in beyond and ("in", name) not in beyond
        ],
        cost=cost,
    )


def network(graph: ValueGraph, cost: Cost | None, /) -> list[Arc]:
    """Return the network whose minimum cuts are the cheapest choices of S and U.

    It has two nodes for each value before the required ones, in(v) and out(v), and one node at(o)
    for each location:

        source --saving(o)-->  at(o)             cut: the old value is saved at o       (o in S)
        at(o)  --infinite-->   in(v)             (v, o) in E_b
        in(v)  --weight(v)-->  out(v)            cut: v is stored                         (v in U)
        source --again(v)-->   in(v)             cut: v is needed and computed again
        out(q) --infinite-->   in(v)             v is computed from q
        out(r) --infinite-->   sink              r is required

    A node is on the sink's side of the cut if its value has to be available again. This is true for
    out(r). If it is true for out(v), it is true for in(v), unless v is stored. If it is true for
    in(v), it is true for the out(q) of its arguments, and for the locations that overwrite v.
    Therefore a cut consists of exactly S, U and the values that have to be computed again. A
    minimal value that is never overwritten has no path from the source and costs nothing. The DAGs
    share locations. Therefore they are solved together.

    Without a cost, bytes are the weights, and only values that cannot be computed again have an
    arc from the source.

    For example, u has 8 bytes, v = f(u) has 4 and w = g(v) has 16. If w is required and u is
    overwritten, the cuts are to save u (8 bytes), to store v (4) or to store w (16):

    >>> graph = ValueGraph(
    ...     arguments={"u": (), "v": ("u",), "w": ("v",)},
    ...     required=["w"],
    ...     overwrites={"u": ["u = 0"]},
    ...     nbytes={"u": 8, "v": 4, "w": 16},
    ... )
    >>> [(head, weight) for _, head, weight in network(graph, None) if weight < inf]
    [(('at', 'u = 0'), 8), (('out', 'u'), 8), (('out', 'v'), 4), (('out', 'w'), 16)]
    >>> solve(graph).stored
    ('v',)
    """

    def weight(nbytes: int) -> float:
        return seconds_for(cost, nbytes) if cost else nbytes

    needed, unstorable = graph.needed(), frozenset(graph.unstorable)
    values = [name for name in graph.arguments if name in needed]
    pairs = [(name, location) for name in values for location in graph.overwrites.get(name, ())]
    arcs: list[Arc] = [
        (SOURCE, ("at", location), weight(graph.locations[location]))
        for location in dict.fromkeys(location for _, location in pairs)
    ]
    arcs += [(("at", location), ("in", name), inf) for name, location in pairs]
    for name in values:
        storing = inf if name in unstorable else weight(graph.nbytes.get(name, 1))
        seconds = graph.recompute.get(name, 0.0)
        arcs.append((("in", name), ("out", name), storing))
        if seconds > 0 and (cost or seconds == inf):
            arcs.append((SOURCE, ("in", name), seconds))
        arcs += [(("out", argument), ("in", name), inf) for argument in graph.arguments[name]]
    return [*arcs, *((("out", name), SINK, inf) for name in graph.required)]
