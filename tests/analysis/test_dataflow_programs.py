"""The equations of checkpointing, done: straight-line programs, their adjoints, every snapshot."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from random import Random

import pytest

from ckio.actions.variables import Flow
from ckio.analysis.snapshots import Checkpointed, Code, Plain, Snapshot, SnapshotFamily

Names = frozenset[str]


@dataclass(frozen=True)
class Line:
    """target = operation(arguments) + shift; with shifts that differ, so do all values."""

    target: str
    operation: str
    arguments: tuple[str, ...]
    shift: float = 0.0

    @property
    def bent(self) -> Names:
        """What its derivatives need: the arguments of what is not linear."""
        return frozenset(self.arguments if self.operation in ("times", "sine") else ())

    def value(self, at: dict[str, float]) -> float:
        x = [at[name] for name in self.arguments]
        match self.operation:
            case "times":
                return x[0] * x[1] + self.shift
            case "sum":
                return 0.6 * x[0] + 1.2 * x[1] + self.shift
            case "sine":
                return math.sin(1.3 * x[0]) + self.shift
            case _:
                return 0.8 * x[0] + self.shift

    def slopes(self, at: dict[str, float]) -> tuple[float, ...]:
        x = [at[name] for name in self.arguments]
        match self.operation:
            case "times":
                return x[1], x[0]
            case "sum":
                return 0.6, 1.2
            case "sine":
                return (1.3 * math.cos(1.3 * x[0]),)
            case _:
                return (0.8,)


Lines = tuple[Line, ...]
ARITY = {"times": 2, "sum": 2, "sine": 1, "scaled": 1}


def random_lines(random: Random, names: str, most: int) -> Lines:
    def line() -> Line:
        operation = random.choice(sorted(ARITY))
        return Line(
            random.choice(names),
            operation,
            tuple(random.choice(names) for _ in range(ARITY[operation])),
            random.uniform(-0.5, 0.5),
        )

    return tuple(line() for _ in range(random.randint(1, most)))


Order = tuple[str, object]
"""What a machine does: do, undo (a line); push, pop (a variable); save, load (several)."""


def adjoint(lines: Lines, req: Names) -> list[Order]:
    """Req |- the adjoint: each value that is needed further back is pushed before it is lost.

    Lines whose values no derivative needs are left out of the forward sweep.
    """
    live: Names = frozenset()
    kept = []
    for line in reversed(lines):
        kept.append(line.target in live)
        if line.target in live:
            live = (live - {line.target}) | frozenset(line.arguments)
        live |= line.bent
    kept.reverse()
    needed, sweep, back = req, [], []
    for line, keep in zip(lines, kept, strict=True):
        needed |= line.bent
        undo: list[Order] = [("undo", line)]
        if keep:
            if line.target in needed:
                sweep.append(("push", line.target))
                undo.insert(0, ("pop", line.target))
                needed -= {line.target}
            sweep.append(("do", line))
        back.append(undo)
    return [*sweep, *chain.from_iterable(reversed(back))]


def flow(orders: Sequence[Order]) -> Flow:
    """What orders use, overwrite in the end, and overwrite surely: they have no branches."""
    now: dict[str, object] = {}
    stack: list[object] = []
    use: set[str] = set()
    for order, what in orders:
        match order, what:
            case "do", Line() as line:
                use |= {name for name in line.arguments if now.get(name, name) == name}
                now[line.target] = object()
            case "undo", Line() as line:
                use |= {name for name in line.bent if now.get(name, name) == name}
            case "push", str(name):
                stack.append(now.get(name, name))
            case "pop", str(name):
                now[name] = stack.pop()
    out = {name for name, value in now.items() if value != name}
    return Flow(use, out, out)


def plain(lines: Lines) -> Plain:
    return Plain(flow([("do", line) for line in lines]), flow(adjoint(lines, frozenset())))


@dataclass(frozen=True)
class Program:
    """Lines, and the code that they are to `plan`; or [C]; D of two programs."""

    lines: Lines
    code: Code
    parts: "tuple[Program, Program] | None" = None

    @staticmethod
    def of(lines: Lines) -> "Program":
        return Program(lines, plain(lines))

    def then(self, rest: "Program") -> "Program":
        return Program(self.lines + rest.lines, Checkpointed(self.code, rest.code), (self, rest))

    def orders(self, req: Names, snapshots: Iterator[Snapshot]) -> list[Order]:
        """Its adjoint (1), with the snapshots in the order in which they are taken."""
        if self.parts is None:
            return adjoint(self.lines, req)
        first, rest = self.parts
        it = next(snapshots)
        later = rest.orders(it.req_d, snapshots)
        earlier = first.orders(it.req_c, snapshots)
        return [
            ("save", it.sbk),
            ("save", it.snp),
            *(("do", line) for line in first.lines),
            *later,
            ("load", it.snp),
            *earlier,
            ("load", it.sbk),
        ]


@dataclass
class Seen:
    """What was found and computed: by lines forward, by derivatives, and in the end."""

    forward: list[tuple[float, ...]] = field(default_factory=list)
    back: list[tuple[float, ...]] = field(default_factory=list)
    bar: dict[str, float] = field(default_factory=dict)
    end: dict[str, float] = field(default_factory=dict)


def run(orders: Sequence[Order], start: dict[str, float], seeds: dict[str, float]) -> Seen:
    """Do these orders from a start and from adjoints at the end."""
    now, bar = dict(start), dict(seeds)
    seen = Seen(bar=bar, end=now)
    stack: list[float] = []
    for order, what in orders:
        match order, what:
            case "do", Line() as line:
                seen.forward.append(tuple(now[name] for name in line.arguments))
                now[line.target] = line.value(now)
            case "undo", Line() as line:
                seen.back.append(tuple(now[name] for name in sorted(line.bent)))
                of_target, bar[line.target] = bar[line.target], 0.0
                for name, slope in zip(line.arguments, line.slopes(now), strict=True):
                    bar[name] += slope * of_target
            case "push", str(name):
                stack.append(now[name])
            case "pop", str(name):
                now[name] = stack.pop()
            case "save", frozenset() as names:
                stack += [now[name] for name in sorted(names)]
            case "load", frozenset() as names:
                for name in sorted(names, reverse=True):
                    now[name] = stack.pop()
    assert not stack
    return seen


class Check:
    """A program, where it starts, and what its derivatives have to be."""

    def __init__(self, random: Random, program: Program, names: str, req: Names) -> None:
        self.program, self.req = program, req
        self.start = {name: random.uniform(0.4, 1.2) for name in names}
        self.seeds = {name: random.uniform(0.5, 1.5) for name in names}
        self.right = run(adjoint(program.lines, req), self.start, self.seeds)
        assert self.keeps(self.right)

    def keeps(self, seen: Seen) -> bool:
        return all(seen.end[name] == self.start[name] for name in self.req)

    def run(self, snapshots: Sequence[Snapshot]) -> Seen:
        return run(self.program.orders(self.req, iter(snapshots)), self.start, self.seeds)

    def passes(self, snapshots: Sequence[Snapshot]) -> bool:
        """Whether these snapshots keep what is used, and Req; then the derivatives are the same."""
        seen = self.run(snapshots)
        same = seen.back == self.right.back and self.keeps(seen)
        assert not same or seen.bar == self.right.bar
        return same


def subsets(names: str) -> list[Names]:
    sizes = range(len(names) + 1)
    return [frozenset(some) for size in sizes for some in combinations(names, size)]


def test_the_adjoint_is_that_of_the_program() -> None:
    random = Random(0)
    for _ in range(20):
        program = Program.of(random_lines(random, "xyz", 6))
        check = Check(random, program, "xyz", frozenset())

        def objective(start: dict[str, float], program: Program = program) -> dict[str, float]:
            now = dict(start)
            for line in program.lines:
                now[line.target] = line.value(now)
            return now

        for name in "xyz":
            ends = []
            for sign in (1, -1):
                moved = check.start | {name: check.start[name] + sign * 1e-6}
                ends.append(sum(check.seeds[v] * it for v, it in objective(moved).items()))
            assert check.right.bar[name] == pytest.approx(
                (ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-7
            )


def compare_all_quadruples(random: Random, names: str) -> int:
    """Every quadruple of sets, run on a random [C]; D; returns how many there were."""
    first, rest = (Program.of(random_lines(random, names, 4)) for _ in range(2))
    program, req = first.then(rest), frozenset(v for v in names if random.random() < 0.5)
    check, cut = Check(random, program, names, req), cut_of(program, req)
    valid = set()
    for sets in product(subsets(names), repeat=4):
        snapshot = Snapshot(*sets)
        right = check.passes([snapshot])
        assert right == cut.allows(snapshot), (program.lines, req, snapshot)
        if right:
            valid.add(sets)
    minimal = {it for it in valid if not any(is_less(other, it) for other in valid)}
    for plus in subsets(names):
        one = cut.choice(plus)
        assert (one.sbk, one.snp, one.req_d, one.req_c) in minimal
    return len(subsets(names)) ** 4


def cut_of(program: Program, req: Names) -> SnapshotFamily:
    assert isinstance(program.code, Checkpointed)
    return program.code.family(req)


def is_less(a: tuple[Names, ...], b: tuple[Names, ...]) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


@pytest.mark.slow
def test_the_derivatives_are_right_for_just_those_quadruples_that_the_equations_allow() -> None:
    random = Random(2)
    assert sum(compare_all_quadruples(random, "xy") for _ in range(40)) == 40 * 4**4
    assert compare_all_quadruples(random, "xyz") == 8**4


@pytest.mark.slow
def test_the_same_of_all_quadruples_of_many_programs() -> None:
    random = Random(3)
    assert sum(compare_all_quadruples(random, "xyz") for _ in range(40)) == 40 * 8**4
