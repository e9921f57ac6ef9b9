"""A program as blocks of straight-line code, and which variables each of them needs."""

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeAlias, assert_never

from ckio.programs.compiled.source import bound, read

Names: TypeAlias = frozenset[str]


@dataclass(frozen=True, slots=True)
class Jump:
    """On to a block."""

    to: int


@dataclass(frozen=True, slots=True)
class Branch:
    """To one of two blocks."""

    test: ast.expr
    yes: int
    no: int


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """Into another program, and then on to a block; `result` is the variable it is assigned to."""

    call: ast.Call
    result: str
    to: int


@dataclass(frozen=True, slots=True)
class Return:
    """Back to the caller, or the end."""

    value: ast.expr


End: TypeAlias = Jump | Branch | ProgramCall | Return


@dataclass(frozen=True, slots=True)
class Block:
    """Statements without loops and branches, and what follows.

    Attributes
    ----------
    statements : tuple of ast.stmt
        What is done.
    end : Jump, Branch, ProgramCall or Return
        Where it goes on.
    head : bool
        Whether this is the test of a loop.
    """

    statements: tuple[ast.stmt, ...]
    end: End
    head: bool = False


@dataclass(frozen=True)
class Graph:
    """Blocks, of which number 0 is the first, with the variables that each needs.

    Attributes
    ----------
    blocks : tuple of Block
        All that can be reached.
    live : tuple of tuple of str
        The variables that a block or one after it reads, before they are set.
    unset : tuple of frozenset of str
        Those of its live variables that may not have been set.
    takes : tuple of bool
        Whether the last of these variables is the result of the call that a block follows.
    """

    blocks: tuple[Block, ...]
    live: tuple[tuple[str, ...], ...]
    unset: tuple[Names, ...]
    takes: tuple[bool, ...]

    def waiting(self, number: int, /) -> tuple[str, ...]:
        """The variables of a block before the call that it follows has returned."""
        return self.live[number][:-1] if self.takes[number] else self.live[number]


def graph(blocks: Iterable[Block], parameters: Names, own: Names, /) -> Graph:
    """The blocks of a function with these parameters and variables, as few as there can be."""
    reachable = _reachable(_with_heads(_threaded(list(blocks))))
    calls = [block.end for block in reachable if isinstance(block.end, ProgramCall)]
    results = {call.to: call.result for call in calls}
    sets = [_sets(block) for block in reachable]
    variables = own.union(*sets, results.values())
    uses = [_uses(block) & variables for block in reachable]
    live = _live(reachable, uses, sets)
    unset = _unset(reachable, sets, own - parameters)
    ordered = [_last(names, results.get(number)) for number, names in enumerate(live)]
    return Graph(
        tuple(reachable),
        tuple(ordered),
        tuple(maybe & names for maybe, names in zip(unset, live, strict=True)),
        tuple(results.get(number) in names for number, names in enumerate(live)),
    )


def _last(names: Names, result: str | None) -> tuple[str, ...]:
    """By name, but for this one."""
    return (*sorted(names - {result}), *([result] if result in names else []))


def following(end: End, /) -> tuple[int, ...]:
    """The blocks that may come next."""
    match end:
        case Jump(to=to) | ProgramCall(to=to):
            return (to,)
        case Branch(yes=yes, no=no):
            return (yes, no)
        case Return():
            return ()
        case _:
            assert_never(end)


def renumbered(end: End, number: Callable[[int], int], /) -> End:
    """Return an end with other numbers of blocks."""
    match end:
        case Jump(to=to):
            return Jump(number(to))
        case Branch(test=test, yes=yes, no=no):
            return Branch(test, number(yes), number(no))
        case ProgramCall(call=call, result=result, to=to):
            return ProgramCall(call, result, number(to))
        case Return():
            return end
        case _:
            assert_never(end)


def _threaded(blocks: list[Block]) -> list[Block]:
    """Jumps and branches past blocks in which nothing is done, but for one that jumps to itself."""

    def final(number: int) -> int:
        seen = set()
        while number not in seen:
            seen.add(number)
            block = blocks[number]
            if block.statements or not isinstance(block.end, Jump):
                break
            number = block.end.to
        return number

    def past(block: Block) -> Block:
        # The block after a call takes its result, and is that of no other.
        if isinstance(block.end, ProgramCall):
            return block
        return replace(block, end=renumbered(block.end, final))

    return [past(block) for block in blocks]


def _with_heads(blocks: list[Block]) -> list[Block]:
    """A block that goes back to the test of a loop makes the test itself: one tick, not two."""

    def joined(block: Block) -> Block:
        if not isinstance(block.end, Jump) or not blocks[block.end.to].head:
            return block
        head = blocks[block.end.to]
        return replace(block, statements=block.statements + head.statements, end=head.end)

    return [joined(block) for block in blocks]


def _reachable(blocks: list[Block]) -> list[Block]:
    reached = [0]
    seen = {0}
    for number in reached:
        new = [to for to in following(blocks[number].end) if to not in seen]
        reached += dict.fromkeys(new)
        seen.update(new)
    place = {number: at for at, number in enumerate(sorted(reached))}
    chosen = [blocks[number] for number in sorted(reached)]
    return [replace(block, end=renumbered(block.end, place.__getitem__)) for block in chosen]


def _uses(block: Block) -> Names:
    """Return the variables that a block reads before it sets them."""
    used: set[str] = set()
    known: set[str] = set()
    for statement in block.statements:
        used |= set(read(statement)) - known
        known |= set(bound(statement))
    match block.end:
        case Branch(test=part) | ProgramCall(call=part) | Return(value=part):
            used |= set(read(part)) - known
        case Jump():
            pass
    return frozenset(used)


def _sets(block: Block) -> Names:
    return frozenset(name for statement in block.statements for name in bound(statement))


def _live(blocks: list[Block], uses: list[Names], sets: list[Names]) -> list[Names]:
    """The least fixed point of live = uses + (live after - sets), by going backwards."""
    live = list(uses)
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(blocks))):
            end = blocks[number].end
            after = reduce(frozenset.union, (live[to] for to in following(end)), frozenset[str]())
            if isinstance(end, ProgramCall):
                after -= {end.result}
            now = uses[number] | (after - sets[number])
            changed |= now != live[number]
            live[number] = now
    return live


def _unset(blocks: list[Block], sets: list[Names], first: Names) -> list[Names]:
    """Variables that may not have been set where a block begins."""
    unset = [first, *(frozenset[str]() for _ in blocks[1:])]
    changed = True
    while changed:
        changed = False
        for number, block in enumerate(blocks):
            after = unset[number] - sets[number]
            if isinstance(block.end, ProgramCall):
                after -= {block.end.result}
            for to in following(block.end):
                changed |= not after <= unset[to]
                unset[to] |= after
    return unset


@dataclass
class Writing:
    """Blocks while they are written: each has a number before it has an end."""

    blocks: dict[int, Block] = field(default_factory=dict)
    count: int = 1
    at: int = 0
    head: bool = False
    statements: list[ast.stmt] = field(default_factory=list)

    def new(self) -> int:
        """The number of a block that is to come."""
        self.count += 1
        return self.count - 1

    def begin(self, number: int, /, *, head: bool = False) -> None:
        """From here on it is this block; the one before has ended."""
        self.at, self.head, self.statements = number, head, []

    def end(self, end: End, /) -> None:
        """The block ends so. What follows without a `begin` cannot be reached."""
        self.blocks[self.at] = Block(tuple(self.statements), end, self.head)
        self.begin(self.new())

    def done(self) -> list[Block]:
        """All of them, in the order of their numbers."""
        nothing = Block((), Return(ast.Constant(None)))
        return [self.blocks.get(number, nothing) for number in range(self.count)]
