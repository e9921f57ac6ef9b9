"""Nested and successive checkpoints: right by every policy, and the cheapest of all plans."""

from collections.abc import Iterator
from random import Random

import pytest

from ckio.analysis.dataflow import (
    Checkpointed,
    Code,
    Flow,
    Plain,
    Policy,
    Prices,
    Snapshot,
    cheapest,
    eager,
    lazy,
    plan,
    successive,
)
from ckio.errors import BadInput
from ckio.platform import Affine, Level

from .test_dataflow_programs import Check, Line, Names, Program, random_lines, subsets


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


def random_prices(random: Random, names: str) -> Prices:
    def level(name: str) -> Level:
        write, read, discard = (Affine(0, random.randint(0, 9)) for _ in range(3))
        return Level(name=name, write=write, read=read, discard=discard)

    return Prices(
        nbytes={name: random.randint(1, 9) for name in names},
        snapshots=level("snapshots"),
        tape=level("tape"),
    )


def every_plan(code: Code, req: Names, names: str) -> Iterator[tuple[Snapshot, ...]]:
    """All members of the family (7), of all checkpoints."""
    if isinstance(code, Plain):
        yield ()
        return
    cut = code.cut(req)
    free = (cut.opt1 | cut.opt2 | cut.opt3) & frozenset(names)
    for plus in subsets("".join(sorted(free))):
        one = cut.choice(plus)
        for later in every_plan(code.rest, one.req_d, names):
            for earlier in every_plan(code.first, one.req_c, names):
                yield (one, *later, *earlier)


def seconds(code: Code, req: Names, snapshots: Iterator[Snapshot], prices: Prices) -> float:
    """What is stored, in seconds, as `Prices` says in words."""
    snap, tape = prices.snapshots, prices.tape
    if isinstance(code, Plain):
        per_byte = tape.write.per_byte + tape.read.per_byte + tape.discard.per_byte
        taped = req & code.adjoint.out
        return per_byte * sum(code.pushed.get(v, prices.nbytes[v]) for v in taped)
    it = next(snapshots)
    once = snap.write.per_byte + snap.discard.per_byte
    stored = sum(prices.nbytes[v] * once for v in it.stored)
    read = sum(prices.nbytes[v] * snap.read.per_byte for v in (*it.snp, *it.sbk))
    later = seconds(code.rest, it.req_d, snapshots, prices)
    return stored + read + later + seconds(code.first, it.req_c, snapshots, prices)


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
        code, prices = with_pushed(random, program.code, "xyz"), random_prices(random, "xyz")
        snapshots, least = cheapest(code, req, prices=prices)
        assert seconds(code, req, iter(snapshots), prices) == least
        every = [seconds(code, req, iter(it), prices) for it in every_plan(code, req, "xyz")]
        assert min(every) == least
        assert Check(random, program, "xyz", req).passes(snapshots)
        plans += len(every)
    assert plans > 300


def test_cheapest_is_never_dearer_than_lazy_or_eager_and_often_cheaper_than_both() -> None:
    random, cheaper = Random(7), 0
    for _ in range(50):
        code = with_pushed(random, random_program(random, "wxyz", 5).code, "wxyz")
        prices = random_prices(random, "wxyz")
        snapshots, least = cheapest(code, prices=prices)
        assert seconds(code, frozenset(), iter(snapshots), prices) == least
        others = [
            seconds(code, frozenset(), iter(plan(code, policy=policy)), prices)
            for policy in (lazy, eager)
        ]
        assert least <= min(others)
        cheaper += least < min(others)
    assert cheaper > 5


def test_of_equal_plans_cheapest_is_the_lazy_one() -> None:
    random, free = Random(6), Level(name="free")
    for _ in range(30):
        code = random_program(random, "xyz", 3).code
        prices = Prices(nbytes=dict.fromkeys("xyz", 1), snapshots=free, tape=free)
        assert cheapest(code, {"x"}, prices=prices) == (plan(code, {"x"}), 0.0)


def test_cheapest_needs_the_size_of_what_it_may_store() -> None:
    code = Program.of((Line("x", "sine", ("x",)),)).then(Program.of((Line("y", "sine", ("x",)),)))
    prices = Prices(nbytes={"y": 1}, snapshots=Level(name="a"), tape=Level(name="b"))
    with pytest.raises(BadInput, match="how large x is"):
        cheapest(code.code, {"x"}, prices=prices)


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
    prices = Prices(nbytes={"A": 3, "x": 2}, snapshots=level, tape=level)
    jointly, least = cheapest(code, prices=prices)
    assert [it.stored for it in jointly] == [it.stored for it in snapshots]
    assert least == 1001 * 2 + 3  # and nothing on a tape, where lazy leaves A to that of `last`


def test_code_is_at_least_one_part() -> None:
    with pytest.raises(BadInput, match="at least one part"):
        successive([])


def test_what_is_pushed_is_bytes() -> None:
    with pytest.raises(BadInput, match="pushed"):
        Plain(Flow(), Flow(), {"x": -1})
