"""The family of best snapshots: sets are true or false of each variable, so a table is a proof.

Then the equations of checkpointing, done: straight-line programs, their adjoints, every snapshot.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from random import Random

import pytest
from oracles.snapshots import SnapshotRates, cheapest

from ckio.actions.variables import Flow, Step
from ckio.analysis.snapshots import (
    Checkpointed,
    Code,
    Plain,
    Policy,
    Snapshot,
    SnapshotFamily,
    eager,
    lazy,
    plan,
    successive,
)
from ckio.errors import BadInput
from ckio.platform import Affine, Level

Names = frozenset[str]
Quadruple = tuple[bool, bool, bool, bool]
"""Whether the variable is in Sbk, Snp, Req_D, Req_C."""
Case = tuple[bool, bool, bool, bool, bool]
"""Whether it is in out(C), out(D̄), out(C̄), use(C̄), Req."""

CASES: list[Case] = list(product((False, True), repeat=5))  # type: ignore[arg-type]
QUADRUPLES: list[Quadruple] = list(product((False, True), repeat=4))  # type: ignore[arg-type]
LIKELY = [case for case in CASES if case[0] or not case[2]]
"""Those with out(C̄) <= out(C)."""


def one(holds: bool) -> Names:
    return frozenset({"v"} if holds else ())


def cut(case: Case) -> SnapshotFamily:
    out_c, out_d_bar, out_c_bar, use_c_bar, req = map(one, case)
    return SnapshotFamily(Flow((), out_c), Flow(use_c_bar, out_c_bar), Flow((), out_d_bar), req)


def quadruple(snapshot: Snapshot) -> Quadruple:
    it = snapshot
    return bool(it.sbk), bool(it.snp), bool(it.req_d), bool(it.req_c)


def is_valid(case: Case, sets: Quadruple) -> bool:
    """(4) and (5) as they are printed."""
    out_c, out_d_bar, out_c_bar, use_c_bar, req = case
    sbk, snp, req_d, req_c = sets
    first = (out_c or (out_d_bar and not req_d)) and not snp
    second = (first or (out_c_bar and not req_c)) and not sbk
    return not (first and use_c_bar) and not (second and req)


def minimal(case: Case) -> set[Quadruple]:
    valid = {sets for sets in QUADRUPLES if is_valid(case, sets)}
    return {sets for sets in valid if not any(is_less(other, sets) for other in valid)}


def is_less(a: tuple[object, ...], b: tuple[object, ...]) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))  # type: ignore[operator]


def family(case: Case) -> set[Quadruple]:
    """(7) by `SnapshotFamily`."""
    return {quadruple(cut(case).choice(plus)) for plus in ((), ("v",))}


def printed(case: Case) -> Iterator[Quadruple]:
    """(6) and (7) as they are printed, for every partition of the three sets."""
    out_c, out_d_bar, out_c_bar, use, req = case
    snp0 = out_c and (use or (req and not out_c_bar))
    opt1, opt2 = req and out_c_bar and use, req and out_c_bar and not use
    opt3 = out_d_bar and (use or req) and not out_c
    for one, two, three in product((False, True), repeat=3):
        yield (
            (opt1 and one) or (opt2 and two),
            snp0 or (opt2 and not two) or (opt3 and three),
            opt3 and not three,
            (opt1 and not one) or (opt2 and not two),
        )


def allows(family: SnapshotFamily, snapshot: Snapshot) -> bool:
    """Whether the derivatives are right with this snapshot, by (4) and (5)."""
    before_c_bar = (family.out_c | (family.d_bar.out - snapshot.req_d)) - snapshot.snp
    before_u = (before_c_bar | (family.c_bar.out - snapshot.req_c)) - snapshot.sbk
    return not before_c_bar & family.c_bar.use and not before_u & family.req


def test_every_member_of_the_family_is_valid_and_the_options_have_nothing_in_common() -> None:
    """Also where the hypothesis does not hold: it is made to."""
    for case in CASES:
        it = cut(case)
        assert all(is_valid(case, sets) for sets in family(case)), case
        assert all(allows(it, it.choice(plus)) for plus in ((), ("v",))), case
        assert len(it.opt1) + len(it.opt2) + len(it.opt3) <= 1
        assert it.opt1 <= it.snp0
        assert not it.snp0 & (it.opt2 | it.opt3)


def test_the_family_is_the_printed_one_and_each_of_it_is_minimal() -> None:
    for case in LIKELY:
        assert family(case) == set(printed(case)), case
        assert family(case) <= minimal(case), case
        for sets in QUADRUPLES:
            assert allows(cut(case), Snapshot(*map(one, sets))) == is_valid(case, sets), case


def test_without_the_hypothesis_the_printed_family_is_not_minimal() -> None:
    too_large = [(case, it) for case in CASES for it in set(printed(case)) - minimal(case)]
    assert len(too_large) == 4
    assert {case for case, _ in too_large}.isdisjoint(LIKELY)


def test_what_is_minimal_and_not_in_the_family_is_sbk_alone_instead_of_snp_alone() -> None:
    missed = {case: minimal(case) - family(case) for case in LIKELY}
    assert sum(map(bool, missed.values())) == 3
    for case, sets in missed.items():
        if sets:
            out_c, out_d_bar, out_c_bar, use_c_bar, req = case
            assert (req, use_c_bar, out_c_bar, out_c or out_d_bar) == (True, False, False, True)
            assert sets == {(True, False, False, False)}
            assert (False, True, False, False) in family(case)


def test_lazy_is_equation_9_and_eager_is_equation_8() -> None:
    for case in LIKELY:
        out_c, out_d_bar, out_c_bar, use, req = case
        assert quadruple(lazy(cut(case))) == (
            False,
            out_c and (req or use),
            out_d_bar and (req or use) and not out_c,
            out_c_bar and req,
        )
        assert quadruple(eager(cut(case))) == (
            req and out_c_bar,
            (out_c and (use or (req and not out_c_bar)))
            or (out_d_bar and use and not req and not out_c),
            out_d_bar and req and not out_c,
            False,
        )


def test_what_is_overwritten_in_the_end_is_the_same_for_the_whole_family() -> None:
    for case in LIKELY:
        out_c, out_d_bar, out_c_bar, _, _ = case
        for sbk, snp, req_d, req_c in family(case):
            first = (out_c or (out_d_bar and not req_d)) and not snp
            out = (first or (out_c_bar and not req_c)) and not sbk
            assert out == bool(cut(case).adjoint.out), case


def test_what_is_in_both_snapshots_is_stored_once() -> None:
    both = eager(cut((True, True, True, True, True)))
    assert (both.sbk, both.snp, both.stored) == ({"v"}, {"v"}, {"v"})


def test_flows_follow_one_another() -> None:
    first = Flow({"x", "y"}, {"x", "z"}, {"x"})
    after = Flow({"x", "z", "w"}, {"w", "y"}, {"w"})
    assert first.then(after) == Flow({*"xyzw"}, {*"xyzw"}, {*"xw"})
    assert after.then(first) == Flow({*"xyzw"}, {*"xyzw"}, {*"xw"})
    assert Flow().then(first) == first.then(Flow()) == first


def test_a_flow_surely_overwrites_only_what_it_overwrites() -> None:
    with pytest.raises(BadInput, match="kill has x, but out does not"):
        Flow((), (), {"x"})


@pytest.mark.parametrize("names", ["xy", 3, [1], ("",)])
def test_names_are_a_set_of_text(names: object) -> None:
    with pytest.raises(BadInput):
        Step(Flow(), restored=names)  # type: ignore[arg-type]


def test_a_recording_step_computes_what_the_forward_step_does() -> None:
    with pytest.raises(BadInput, match="forward overwrites x, record does not"):
        Step(Flow({"x"}, {"x"}), Flow({"x"}))


def test_the_adjoint_of_a_step_overwrites_what_it_does_not_restore() -> None:
    step = Step(
        Flow({"x"}, {"x", "y"}, {"y"}),
        Flow({"x"}, {"x", "y", "work"}, {"y", "work"}),
        Flow({"y", "q"}, {"x"}),
        restored={"x"},
    )
    assert step.adjoint == Flow({"x", "q"}, {"y", "work"}, {"y", "work"})
    assert step.variables == {"x", "y", "work", "q"}
    assert Step(step.forward).record == step.forward


def test_the_adjoint_of_a_step_uses_all_that_the_forward_does_if_it_reads_the_result() -> None:
    forward = Flow({"x", "rate"}, {"x"}, {"x"})
    tape = Flow({"x"}, {"x"}, {"x"})
    assert Step(forward, tape, Flow({"q"})).adjoint.use == {"x", "q"}
    assert Step(forward, tape, Flow({"x"})).adjoint.use == {"x", "rate"}


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
    check = Check(random, program, names, req)
    assert isinstance(program.code, Checkpointed)
    cut = program.code.family(req)
    valid = set()
    for sets in product(subsets(names), repeat=4):
        snapshot = Snapshot(*sets)
        right = check.passes([snapshot])
        assert right == allows(cut, snapshot), (program.lines, req, snapshot)
        if right:
            valid.add(sets)
    minimal = {it for it in valid if not any(is_less(other, it) for other in valid)}
    for plus in subsets(names):
        one = cut.choice(plus)
        assert (one.sbk, one.snp, one.req_d, one.req_c) in minimal
    return len(subsets(names)) ** 4


@pytest.mark.campaign
@pytest.mark.parametrize(("pairs", "triples"), [(10, 0), (40, 1), (0, 40)])
def test_the_derivatives_are_right_for_just_those_quadruples_that_the_equations_allow(
    pairs: int, triples: int
) -> None:
    random = Random(2)
    assert sum(compare_all_quadruples(random, "xy") for _ in range(pairs)) == pairs * 4**4
    assert sum(compare_all_quadruples(random, "xyz") for _ in range(triples)) == triples * 8**4


def random_program(random: Random, names: str, depth: int) -> Program:
    """Nested and successive checkpoints."""
    if depth == 0 or random.random() < 0.15:
        return Program.of(random_lines(random, names, 3))
    return random_program(random, names, depth - 1).then(random_program(random, names, depth - 1))


def anything(random: Random) -> Policy:
    return lambda cut: cut.choice(v for v in "wxyz" if random.random() < 0.5)


def test_nested_and_successive_checkpoints_are_right_by_any_policy_and_need_all_they_store() -> (
    None
):
    random, wrong = Random(4), 0
    for _ in range(24):
        program = random_program(random, "wxyz", 4)
        req = frozenset(v for v in "wxyz" if random.random() < 0.3)
        check = Check(random, program, "wxyz", req)
        for policy in (lazy, eager, anything(random)):
            snapshots = plan(program.code, req, policy=policy)
            assert check.passes(snapshots)
            right = check.run(snapshots)
            for number, snapshot in enumerate(snapshots):
                for name in snapshot.stored:
                    less = Snapshot(
                        snapshot.sbk - {name}, snapshot.snp - {name}, snapshot.req_d, snapshot.req_c
                    )
                    changed = [*snapshots[:number], less, *snapshots[number + 1 :]]
                    # Some line, forward or back, then finds another value than it did.
                    seen = check.run(changed)
                    same = (seen.forward, seen.back) == (right.forward, right.back)
                    assert not (same and check.keeps(seen)), (program.lines, number, name)
                    wrong += not check.passes(changed)
    assert wrong > 300


def random_rates(random: Random, names: str) -> SnapshotRates:
    def level(name: str) -> Level:
        write, read, discard = (Affine(0, random.randint(0, 9)) for _ in range(3))
        return Level(name=name, write=write, read=read, discard=discard)

    return SnapshotRates(
        nbytes={name: random.randint(1, 9) for name in names},
        snapshots=level("snapshots"),
        tape=level("tape"),
    )


def every_plan(code: Code, req: Names, names: str) -> Iterator[tuple[Snapshot, ...]]:
    """All members of the family (7), of all checkpoints."""
    if isinstance(code, Plain):
        yield ()
        return
    cut = code.family(req)
    free = (cut.opt1 | cut.opt2 | cut.opt3) & frozenset(names)
    for plus in subsets("".join(sorted(free))):
        one = cut.choice(plus)
        for later in every_plan(code.rest, one.req_d, names):
            for earlier in every_plan(code.first, one.req_c, names):
                yield (one, *later, *earlier)


def seconds(code: Code, req: Names, snapshots: Iterator[Snapshot], rates: SnapshotRates) -> float:
    """What is stored, in seconds, as `SnapshotRates` says in words."""
    snap, tape = rates.snapshots, rates.tape
    if isinstance(code, Plain):
        per_byte = tape.write.per_byte + tape.read.per_byte + tape.discard.per_byte
        taped = req & code.adjoint.out
        return per_byte * sum(code.pushed.get(v, rates.nbytes[v]) for v in taped)
    it = next(snapshots)
    once = snap.write.per_byte + snap.discard.per_byte
    stored = sum(rates.nbytes[v] * once for v in it.stored)
    read = sum(rates.nbytes[v] * snap.read.per_byte for v in (*it.snp, *it.sbk))
    later = seconds(code.rest, it.req_d, snapshots, rates)
    return stored + read + later + seconds(code.first, it.req_c, snapshots, rates)


def with_pushed(random: Random, code: Code, names: str) -> Code:
    if isinstance(code, Plain):
        some = {v: random.randint(0, 20) for v in names if random.random() < 0.5}
        return Plain(code.forward, code.adjoint, some)
    first, rest = (with_pushed(random, it, names) for it in (code.first, code.rest))
    return Checkpointed(first, rest)


def test_cheapest_is_the_least_of_all_plans_and_right() -> None:
    random, plans = Random(5), 0
    for _ in range(100):
        program = random_program(random, "xyz", 3)
        req = frozenset(v for v in "xyz" if random.random() < 0.5)
        code, rates = with_pushed(random, program.code, "xyz"), random_rates(random, "xyz")
        snapshots, least = cheapest(code, req, rates=rates)
        assert seconds(code, req, iter(snapshots), rates) == least
        every = [seconds(code, req, iter(it), rates) for it in every_plan(code, req, "xyz")]
        assert min(every) == least
        assert Check(random, program, "xyz", req).passes(snapshots)
        plans += len(every)
    assert plans > 300


def test_what_several_snapshots_use_is_stored_by_the_one_whose_code_overwrites_it() -> None:
    """The paper's example: all use A, only the last overwrites it."""

    def part(*out: str) -> Plain:
        return Plain(Flow({"A", "x"}, out, out), Flow({"A", "x"}, out, out))

    code = successive([part("x"), part("x"), part("x"), part("x", "A"), part("x")])
    assert [it.stored for it in plan(code)] == [{"x"}, {"x"}, {"x"}, {"x", "A"}]
    assert [it.stored for it in plan(code, policy=eager)] == [{"x"}, {"x"}, {"x", "A"}, {"x", "A"}]


def test_thousands_of_successive_checkpoints() -> None:
    x, both = {"x"}, {"A", "x"}
    step = Plain(Flow(both, x, x), Flow(both, x, x))
    last = Plain(Flow(both, both, both), Flow(both, both, both))
    code = successive([*[step] * 1000, last, step])
    snapshots = plan(code)
    assert [it.stored for it in snapshots] == [{"x"}] * 1000 + [{"x", "A"}]
    level = Level(name="disk", write=Affine(1, 1))
    rates = SnapshotRates(nbytes={"A": 3, "x": 2}, snapshots=level, tape=level)
    jointly, least = cheapest(code, rates=rates)
    assert [it.stored for it in jointly] == [it.stored for it in snapshots]
    assert least == 1001 * 2 + 3  # and nothing on a tape, where lazy leaves A to that of `last`


def test_code_is_at_least_one_part() -> None:
    with pytest.raises(BadInput, match="at least one part"):
        successive([])


def test_what_is_pushed_is_bytes() -> None:
    with pytest.raises(BadInput, match="pushed"):
        Plain(Flow(), Flow(), {"x": -1})
