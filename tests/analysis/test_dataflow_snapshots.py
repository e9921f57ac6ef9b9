"""The family of best snapshots: sets are true or false of each variable, so a table is a proof."""

from collections.abc import Iterator
from itertools import product

import pytest

from ckio.actions.variables import Flow, Step
from ckio.analysis.snapshots import Snapshot, SnapshotFamily, eager, lazy
from ckio.errors import BadInput

Quadruple = tuple[bool, bool, bool, bool]
"""Whether the variable is in Sbk, Snp, Req_D, Req_C."""
Case = tuple[bool, bool, bool, bool, bool]
"""Whether it is in out(C), out(D̄), out(C̄), use(C̄), Req."""

CASES: list[Case] = list(product((False, True), repeat=5))  # type: ignore[arg-type]
QUADRUPLES: list[Quadruple] = list(product((False, True), repeat=4))  # type: ignore[arg-type]


def one(holds: bool) -> frozenset[str]:
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


def hypothesis(case: Case) -> bool:
    """out(C̄) <= out(C)."""
    return case[0] or not case[2]


def minimal(case: Case) -> set[Quadruple]:
    valid = {sets for sets in QUADRUPLES if is_valid(case, sets)}
    return {sets for sets in valid if not any(is_less(other, sets) for other in valid)}


def is_less(a: Quadruple, b: Quadruple) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


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


@pytest.mark.parametrize("case", CASES)
def test_every_member_of_the_family_is_valid(case: Case) -> None:
    """Also where the hypothesis does not hold: it is made to."""
    assert all(is_valid(case, sets) for sets in family(case))
    assert all(cut(case).allows(cut(case).choice(plus)) for plus in ((), ("v",)))


@pytest.mark.parametrize("case", [case for case in CASES if hypothesis(case)])
def test_the_family_is_the_printed_one_and_each_of_it_is_minimal(case: Case) -> None:
    assert family(case) == set(printed(case))
    assert family(case) <= minimal(case)
    for sets in QUADRUPLES:
        assert cut(case).allows(Snapshot(*map(one, sets))) == is_valid(case, sets)


def test_without_the_hypothesis_the_printed_family_is_not_minimal() -> None:
    too_large = [
        (case, sets) for case in CASES for sets in set(printed(case)) if sets not in minimal(case)
    ]
    assert len(too_large) == 4
    assert not any(hypothesis(case) for case, _ in too_large)


def test_what_is_minimal_and_not_in_the_family_is_sbk_alone_instead_of_snp_alone() -> None:
    missed = {
        case: minimal(case) - family(case)
        for case in CASES
        if hypothesis(case) and minimal(case) - family(case)
    }
    assert len(missed) == 3
    for case, sets in missed.items():
        out_c, out_d_bar, out_c_bar, use_c_bar, req = case
        assert (req, use_c_bar, out_c_bar) == (True, False, False)
        assert out_c or out_d_bar
        assert sets == {(True, False, False, False)}
        assert (False, True, False, False) in family(case)


@pytest.mark.parametrize("case", [case for case in CASES if hypothesis(case)])
def test_lazy_is_equation_9_and_eager_is_equation_8(case: Case) -> None:
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


@pytest.mark.parametrize("case", [case for case in CASES if hypothesis(case)])
def test_what_is_overwritten_in_the_end_is_the_same_for_the_whole_family(case: Case) -> None:
    out_c, out_d_bar, out_c_bar, _, _ = case
    for sbk, snp, req_d, req_c in family(case):
        first = (out_c or (out_d_bar and not req_d)) and not snp
        out = (first or (out_c_bar and not req_c)) and not sbk
        assert out == bool(cut(case).adjoint.out)


@pytest.mark.parametrize("case", CASES)
def test_the_three_options_have_nothing_in_common(case: Case) -> None:
    it = cut(case)
    assert len(it.opt1) + len(it.opt2) + len(it.opt3) <= 1
    assert it.opt1 <= it.snp0
    assert not it.snp0 & (it.opt2 | it.opt3)


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
    with pytest.raises(BadInput, match="kill has x, which out has not"):
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
