"""Compact schedules: the published ones, and every planner's written and read again."""

import logging

import pytest
from hypothesis import given, settings
from oracles import compact
from oracles import compact_text as text_form
from oracles import notation as oracle
from oracles.compact import Call
from oracles.compact_text import Compact

from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import Planner
from ckio.planners.binomial import revolve
from ckio.planners.blocks import Periods
from ckio.planners.dp import hrevolve
from ckio.planners.literature import (
    disk_revolve,
    multistage,
    per_rev_revolve,
    periodic_disk_revolve,
    revolve_1d,
    two_level,
)
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import counts, makespan
from ckio.schedule.replay import validate

from .cases import GOLDEN, chain, chains, platform, platforms

PLANNERS: dict[str, Planner] = {
    "disk-revolve": disk_revolve,
    "1d-revolve": revolve_1d,
    "periodic-disk-revolve": periodic_disk_revolve,
    "per-rev-revolve": per_rev_revolve,
    "two-level": two_level,
    "revolve": revolve,
}
each_form = pytest.mark.parametrize("concat", [1, 2, 3])


def printed(name: str, steps: int, machine: Platform, concat: int) -> str:
    """The text of the schedule of a planner."""
    schedule = PLANNERS[name](chain(steps), machine)
    return compact.dumps(schedule, machine, planner=name, concat=concat)


LISTING_4 = platform((2, 0, 0), (None, 10, 2))


def golden(name: str) -> str:
    return (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def sequence(text: str) -> list[str]:
    """What stands after `Sequence:`, in words."""
    return text[text.index("Sequence:") :].partition("Memory:")[0].split()


def test_listing_4_is_the_schedule_of_disk_revolve_and_costs_384() -> None:
    schedule = text_form.loads(golden("listing_4"), chain(101), LISTING_4)
    assert schedule == disk_revolve(chain(101), LISTING_4)
    assert validate(schedule, LISTING_4).adjoint == 0
    assert makespan(schedule, LISTING_4) == 384


def test_disk_revolve_is_written_as_listing_4_prints_it() -> None:
    text = compact.dumps(
        disk_revolve(chain(101), LISTING_4), LISTING_4, planner="disk-revolve", concat=2
    )
    assert sequence(text) == sequence(golden("listing_4"))


def test_1d_revolve_15_2_of_listing_4_is_what_its_call_stands_for() -> None:
    within = golden("listing_4_1d").partition("Sequence: [")[2].strip()
    spelt = f"Sequence: [WD_0, F_0->15, Revolve(0, 2), RD_0, {within}"
    called = "Sequence: [WD_0, F_0->15, Revolve(0, 2), RD_0, 1D-Revolve(15, 2)]"
    schedule = text_form.loads(called, chain(17), LISTING_4)
    assert schedule == text_form.loads(spelt, chain(17), LISTING_4)
    assert makespan(schedule, LISTING_4) == 10 + 16 + 2 + 36


def test_listing_5_is_a_misprint() -> None:
    assert text_form.parse(golden("listing_5")).form == Periods((16, 16, 16, 16, 11), 10)
    with pytest.raises(BadInput, match=r"listing 5: .*has 85 steps"):
        text_form.loads(golden("listing_5"), chain(101), LISTING_4, source="listing 5")
    text = compact.dumps(
        disk_revolve(chain(101), LISTING_4), LISTING_4, planner="disk-revolve", concat=3
    )
    assert text.startswith("Sequence: (16, 16, 16, 16, 16, 11; 10)\n")


@settings(max_examples=10)
@given(chains(), platforms())
def test_what_is_written_is_read_as_the_same_schedule(chain_: Chain, machine: Platform) -> None:
    for name, planner in PLANNERS.items():
        schedule = planner(chain_, machine)
        for concat in (1, 2, 3):
            text = compact.dumps(schedule, machine, planner=name, concat=concat)
            assert text_form.is_compact(text)
            assert text_form.loads(text, chain_, machine) == schedule, (name, concat)


def test_periods_that_are_read_once_say_so() -> None:
    once = compact.dumps(
        per_rev_revolve(chain(101), LISTING_4), LISTING_4, planner="per-rev-revolve", concat=3
    )
    again = compact.dumps(
        periodic_disk_revolve(chain(101), LISTING_4),
        LISTING_4,
        planner="periodic-disk-revolve",
        concat=3,
    )
    assert once.endswith("Options: --one_read_disk\n")
    assert "one_read" not in again
    assert text_form.parse(once).once
    assert not text_form.parse(again).once


def test_a_period_that_is_read_once_is_written_as_revolve() -> None:
    machine = platform((2, 0, 0), (None, 2, 1))
    text = compact.dumps(
        periodic_disk_revolve(chain(11), machine),
        machine,
        planner="periodic-disk-revolve",
        concat=2,
    )
    assert text == (
        "Sequence: [WD_0, F_0->2, WD_3, F_3->5, WD_6, F_6->8,\n"
        "Revolve(1, 2), RD_6, Revolve(2, 2), RD_3, Revolve(2, 2), RD_0,\n"
        "Revolve(2, 2)]\n"
    )


@each_form
def test_a_schedule_that_has_no_such_form_is_refused(concat: int) -> None:
    machine = platform((2, 0, 0), (2, 1, 1), (None, 10, 2))
    for name, planner in {"multistage": multistage, "hrevolve": hrevolve}.items():
        with pytest.raises(BadInput, match=rf"concat {concat} cannot express a schedule of {name}"):
            compact.dumps(planner(chain(60), machine), machine, planner=name, concat=concat)


def test_a_form_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadInput, match="concat = 4; it must be 1, 2 or 3"):
        compact.dumps(
            disk_revolve(chain(5), LISTING_4), LISTING_4, planner="disk-revolve", concat=4
        )


def test_a_chain_without_a_length_gets_that_of_the_text() -> None:
    costs = Chain(steps=None, advance=1, record=0, reverse=0, restart=3, tape=2, adjoint=5)
    for text in (golden("listing_4"), "Sequence: (16, 16, 16, 16, 16, 11; 10)"):
        assert text_form.loads(text, costs, LISTING_4) == disk_revolve(chain(101), LISTING_4)


def test_what_stands_around_the_list_is_passed_over() -> None:
    text = "$> ./Periodic-Disk-Revolve.py 10 2 --one_read_disk --concat 3\nSequence: (3, 3; 5)\n"
    found = text_form.parse(text + "Disk: [0, 3]  # a list, no name\nMakespan: 25\n")
    assert found == Compact(Periods((3, 3), 5), once=True)


def test_values_are_written_as_the_paper_writes_them() -> None:
    assert str(Call("1D-Revolve", 15, 2)) == "1D-Revolve(15, 2)"
    assert compact.periods_text(Periods((16, 11), 10)) == "(16, 11; 10)"
    assert compact.periods_text(Periods((), 10)) == "(; 10)"


def test_a_list_of_single_operations_is_not_compact() -> None:
    assert not text_form.is_compact(golden("listing_3"))
    assert not text_form.is_compact("Sequence: [WD_0]  # Revolve(1, 2)")
    with pytest.raises(BadInput, match="expand a compact list"):
        oracle.loads(golden("listing_4"), chain(101))


UNREADABLE = {
    "nothing": r"^here: no compact schedule",
    "Sequence: [WD_0,\nWM_1]": "here, line 2: 'WM_1': this is no operation",
    "Sequence: [Revolve(9 2)]": r"line 1: 'Revolve\(9 2\)': this is no operation",
    "Sequence: [F_5->3, Revolve(1, 2)]": r"'F_5->3': .*\[5, 4\) is not a span",
    "Sequence: (3, 0; 2)": r"^here: .*\(3, 0; 2\) has a period without a step",
    "Sequence: []": "here: .*reverses no step",
    "Sequence: [F_0->9]": "here: .*reverses no step",
    "Sequence: [Revolve(1, 2), Revolve(1, 2)]": "has no first step: put F_i->j or RD_i before it",
    "Sequence: [1D-Revolve(1, 2)]": "has no first step: put RD_i before it",
    "Sequence: [Revolve(9, 3)]": r"Revolve\(9, 3\) asks for 3 near slots; this platform has 2",
    "Sequence: [Revolve(9, 0)]": r"Revolve\(9, 0\) asks for 0 near slots",
    "Sequence: (5; 6)": "has 11 steps, but the chain has 10",
}


def test_what_cannot_be_read_is_named() -> None:
    for text, message in UNREADABLE.items():
        with pytest.raises(BadInput, match=message):
            text_form.loads(text, chain(10), LISTING_4, source="here")


def test_a_far_level_with_too_few_slots_is_refused() -> None:
    machine = platform((2, 0, 0), (5, 10, 2))
    with pytest.raises(NoSchedule, match="needs 6 slots of 3 bytes on a far level, and no"):
        text_form.loads(golden("listing_4"), chain(101), machine)


def test_levels_that_hold_nothing_are_passed_over_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = platform((0, 0, 0), (2, 0, 0), (0, 1, 1), (None, 10, 2))
    with caplog.at_level(logging.WARNING, logger="ckio"):
        schedule = text_form.loads(golden("listing_4"), chain(101), machine)
    assert not caplog.messages
    assert [level.writes > 0 for level in counts(schedule).levels] == [False, True, False, True]


def test_long_schedules_are_written_and_read_in_one_pass() -> None:
    machine = Platform(
        (Level(name="ram", capacity=3 * 20), Level(name="nvme", write=Affine(latency=40))),
        working_memory=2,
    )
    schedule = per_rev_revolve(chain(20_000), machine)
    for concat in (1, 2, 3):
        text = compact.dumps(schedule, machine, planner="per-rev-revolve", concat=concat)
        assert text_form.loads(text, chain(20_000), machine) == schedule
