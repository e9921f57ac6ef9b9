"""A program as blocks of straight-line code, with the variables that each block needs.

For example, `while x > 1: x = x / 2` followed by `return x` has three blocks: the test, which
branches to the two others; `x = x / 2`, which repeats the test; and the return. All need x.
"""

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ckio.programs.compiled.source import bound, read

Names: TypeAlias = frozenset[str]


@dataclass(frozen=True, slots=True)
class End:
    """The end of a block. It evaluates `node`, and leads to one of the blocks `to`.

    It is a jump (to one block), a branch by a test (to two blocks, for true and false), a return of
    a value (to no block), or a call of a program, whose result is assigned to the variable
    `result`.
    """

    to: tuple[int, ...]
    node: ast.expr | None = None
    result: str | None = None

    @property
    def jumps(self) -> bool:
        return self.node is None


@dataclass(frozen=True, slots=True)
class Block:
    """Statements without loops and branches, and an end. `head` is true for the test of a loop."""

    statements: tuple[ast.stmt, ...]
    end: End
    head: bool = False

    def parts(self) -> Iterator[ast.AST]:
        """Yield the statements and the expression that the block evaluates."""
        yield from self.statements
        if self.end.node is not None:
            yield self.end.node

    def sets(self) -> Names:
        return frozenset(name for statement in self.statements for name in bound(statement))

    def uses(self) -> Names:
        """Return the variables that the block reads before it sets them."""
        used: set[str] = set()
        known: set[str] = set()
        for part in self.parts():
            used |= set(read(part)) - known
            known |= set(bound(part))
        return frozenset(used)

    def to(self, number: Callable[[int], int]) -> "Block":
        """Return the block with other numbers of the next blocks."""
        return replace(self, end=replace(self.end, to=tuple(map(number, self.end.to))))


@dataclass(frozen=True)
class Graph:
    """The blocks of a function, with the variables that each needs. Block 0 is the first.

    Attributes
    ----------
    live : tuple of tuple of str
        The variables that each block or a later one reads before they are set.
    unset : tuple of frozenset of str
        The live variables of each block that may not have been set.
    takes : tuple of bool
        Whether the last live variable of each block is the result of the call before the block.
    """

    blocks: tuple[Block, ...]
    live: tuple[tuple[str, ...], ...]
    unset: tuple[Names, ...]
    takes: tuple[bool, ...]

    def waiting(self, number: int, /) -> tuple[str, ...]:
        """Return the live variables of a block while the call before it has not returned."""
        return self.live[number][:-1] if self.takes[number] else self.live[number]


def graph(blocks: Iterable[Block], parameters: Names, own: Names, /) -> Graph:
    """Return the graph of a function with these parameters and variables, with few blocks."""
    reachable = _reachable(_with_heads(_skip_empty(list(blocks))))
    ends = [block.end for block in reachable]
    results = {end.to[0]: end.result for end in ends if end.result is not None}
    sets = [block.sets() for block in reachable]
    variables = own.union(*sets, results.values())
    live = _live(ends, [block.uses() & variables for block in reachable], sets)
    unset = _unset(ends, sets, own - parameters)
    ordered = []
    for number, names in enumerate(live):  # sorted by name, except that a result comes last
        result = {results[number]} & names if number in results else set[str]()
        ordered.append((*sorted(names - result), *result))
    return Graph(
        tuple(reachable),
        tuple(ordered),
        tuple(maybe & names for maybe, names in zip(unset, live, strict=True)),
        tuple(results.get(number) in names for number, names in enumerate(live)),
    )


def _skip_empty(blocks: list[Block]) -> list[Block]:
    """Let jumps skip empty blocks, except for an empty block that jumps to itself."""

    def final(number: int) -> int:
        seen = set()
        while number not in seen:
            seen.add(number)
            if blocks[number].statements or not blocks[number].end.jumps:
                break
            (number,) = blocks[number].end.to
        return number

    # The block after a call receives its result, so that no other block may lead to it.
    return [block.to(final) if block.end.result is None else block for block in blocks]


def _with_heads(blocks: list[Block]) -> list[Block]:
    """Let a block that jumps to the test of a loop do the test itself, which saves a tick."""

    def joined(block: Block) -> Block:
        if not block.end.jumps or not blocks[block.end.to[0]].head:
            return block
        head = blocks[block.end.to[0]]
        return replace(block, statements=block.statements + head.statements, end=head.end)

    return [joined(block) for block in blocks]


def _reachable(blocks: list[Block]) -> list[Block]:
    reached = [0]
    for number in reached:
        reached += [to for to in dict.fromkeys(blocks[number].end.to) if to not in reached]
    place = {number: at for at, number in enumerate(sorted(reached))}
    return [blocks[number].to(place.__getitem__) for number in sorted(reached)]


def _live(ends: list[End], uses: list[Names], sets: list[Names]) -> list[Names]:
    """Return the least fixed point of live = uses + (live after - sets).

    For example, in `y = x; return y` the return needs {y}, and the first block {x} + ({y} - {y}).
    """
    live = list(uses)
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(ends))):
            after = frozenset[str]().union(*(live[to] for to in ends[number].to))
            now = uses[number] | (after - {ends[number].result} - sets[number])
            changed |= now != live[number]
            live[number] = now
    return live


def _unset(ends: list[End], sets: list[Names], first: Names) -> list[Names]:
    """Return the variables that may not have been set at the beginning of each block."""
    unset = [first, *(frozenset[str]() for _ in ends[1:])]
    changed = True
    while changed:
        changed = False
        for number, end in enumerate(ends):
            after = unset[number] - sets[number] - {end.result}
            for to in end.to:
                changed |= not after <= unset[to]
                unset[to] |= after
    return unset


@dataclass
class Writing:
    """Blocks while they are written. Each gets its number before its end."""

    blocks: dict[int, Block] = field(default_factory=dict)
    count: int = 1
    at: int = 0
    head: bool = False
    statements: list[ast.stmt] = field(default_factory=list)

    def new(self) -> int:
        """Return the number of a later block."""
        self.count += 1
        return self.count - 1

    def begin(self, number: int, /, *, head: bool = False) -> None:
        """Begin to write a block, after the end of another."""
        self.at, self.head, self.statements = number, head, []

    def end(
        self, *to: int, node: ast.expr | None = None, result: str | None = None, begin: int = -1
    ) -> None:
        """End the block, and begin another. Without `begin`, the next block is unreachable code."""
        self.blocks[self.at] = Block(tuple(self.statements), End(to, node, result), self.head)
        self.begin(begin if begin >= 0 else self.new())

    def done(self) -> list[Block]:
        """Return all blocks, in the order of their numbers."""
        nothing = Block((), End((), ast.Constant(None)))
        return [self.blocks.get(number, nothing) for number in range(self.count)]
