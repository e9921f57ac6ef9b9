"""Register programs: straight-line nodes that say which of them comes next."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

Values: TypeAlias = dict[str, Any]
"""Arrays of JAX by the names of registers."""


class Constant(NamedTuple):
    """An operand that is no register: a number written in the code."""

    array: Any


Operand: TypeAlias = str | Constant


class Piece(NamedTuple):
    """Some equations: a function from arrays to as many arrays as there are results."""

    compute: Callable[..., Sequence[Any]]
    operands: tuple[Operand, ...]
    results: tuple[str, ...]


class Row(NamedTuple):
    """One row of a stacked array, which a scan reads at the start of a node or writes at its end.

    `counter` is the register that counts iterations; `length` is that of a scan from the end to the
    start, and 0 for one that goes forward.
    """

    stacked: str
    row: str
    counter: str
    length: int

    def number(self, values: Mapping[str, Any]) -> Any:
        index = values[self.counter]
        return self.length - 1 - index if self.length else index


@dataclass(frozen=True)
class Node:
    """One tick: rows are read, pieces computed, rows written; then `choice` says where to go.

    Attributes
    ----------
    targets : tuple of int
        Nodes that may come next; the number of nodes stands for the end.
    choice : str, Constant or None
        Which of the targets, as a boolean or whole number, held to those there are; None for the
        first.
    """

    pieces: tuple[Piece, ...]
    reads: tuple[Row, ...]
    writes: tuple[Row, ...]
    choice: Operand | None
    targets: tuple[int, ...]

    @cached_property
    def uses(self) -> frozenset[str]:
        """The registers it needs from those before it."""
        used: set[str] = set()
        for row in (*self.reads, *self.writes):
            used |= {row.stacked, row.counter}
        made = {row.row for row in self.reads}
        for piece in self.pieces:
            used |= {name for name in piece.operands if isinstance(name, str)} - made
            made |= set(piece.results)
        choice = {self.choice} if isinstance(self.choice, str) else set()
        return frozenset(used | (choice - made))

    @cached_property
    def sets(self) -> frozenset[str]:
        """The registers that are other ones after it."""
        results = {name for piece in self.pieces for name in piece.results}
        rows = {row.row for row in self.reads} | {row.stacked for row in self.writes}
        return frozenset(results | rows)


@dataclass(frozen=True)
class Code:
    """A whole program. It starts at node 0, to which nothing leads, and ends behind the last node.

    Attributes
    ----------
    nodes : tuple of Node
    avals : dict of str to Any
        Shape and dtype of each register.
    constants : dict of str to array
        Registers that nothing sets, which are part of the code and of no state.
    inputs, outputs : tuple of str
        Registers of the first state and of the last; the same array has as many outputs as asked.
    """

    nodes: tuple[Node, ...]
    avals: dict[str, Any]
    constants: dict[str, Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def live(self) -> tuple[tuple[str, ...], ...]:
        """For each node, and for the end, the registers that a state there consists of."""
        live = [set(node.uses) for node in self.nodes] + [set(self.outputs)]
        changed = True
        while changed:
            changed = False
            for pc, node in reversed(list(enumerate(self.nodes))):
                after = set[str]().union(*(live[target] for target in node.targets))
                more = after - node.sets - live[pc]
                live[pc] |= more
                changed |= bool(more)
        live[0] = set(self.inputs)
        known = self.constants.keys()
        return tuple(tuple(sorted(names - known)) for names in live)

    def before(self, pc: int) -> tuple[str, ...]:
        """The registers that a node takes, without constants, in order."""
        return tuple(sorted(self.nodes[pc].uses - self.constants.keys()))

    def after(self, pc: int) -> tuple[str, ...]:
        """The registers that it sets and that something uses later, in order."""
        node = self.nodes[pc]
        later = {name for target in node.targets for name in self.live[target]}
        return tuple(sorted(node.sets & later))

    def known(self, pc: int) -> Values:
        """The constants that a node takes."""
        names = self.nodes[pc].uses & self.constants.keys()
        return {name: self.constants[name] for name in sorted(names)}

    def is_loop(self, pc: int) -> bool:
        """Whether a node leads to itself: an innermost loop."""
        return pc in self.nodes[pc].targets
