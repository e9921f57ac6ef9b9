"""What `ckio plan` takes beside steps and costs, and what it says beside figures."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest
from cli.commands import answer, ckio, complaint

TWO_LEVELS = "2\n2 0 0\n100 10 2\n"  # the machine of the paper's Listing 4
LISTING_4 = ("--steps", 101, "--platform", "listing_4.txt")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "listing_4.txt").write_text(TWO_LEVELS)
    return tmp_path


def test_it_says_what_a_planner_has_to_say(place: Path) -> None:
    words = ("plan", "--planner", "periodic-disk-revolve", *LISTING_4)
    note = answer(*words, at=place)["note"]
    assert note.startswith("a far checkpoint every 16 steps")
    assert note in ckio(*words, at=place).stdout
    found = answer("plan", "--planner", "auto", *LISTING_4, "--record", 1, at=place)
    assert found["note"].startswith(f"mixed: {found['makespan']:g} s, ")
    told = ckio("plan", "--help", at=place).stdout.replace(",", " ").replace(".", " ").split()
    assert {point.name for point in entry_points(group="ckio.planners")} <= set(told)


def test_a_two_level_planner_can_be_told_its_levels(place: Path) -> None:
    (place / "three.txt").write_text("3\n2 0 0\n3 0 0\n100 10 2\n")
    words = ("plan", "--planner", "two-level", "--steps", 101, "--platform", "three.txt")
    found = answer(*words, "--near", "level1", "--far", "level2", at=place)
    assert [level["writes"] > 0 for level in found["levels"]] == [False, True, True]
    assert "both 'level1'" in complaint(*words, "--near", "level1", "--far", "level1", at=place)


@pytest.mark.campaign
@pytest.mark.parametrize("concat", [1, 2, 3])
def test_a_short_form_is_printed_and_read_back(place: Path, concat: int) -> None:
    words = ("plan", "--planner", "disk-revolve", *LISTING_4)
    found = answer(*words, "--concat", concat, at=place)
    assert found.pop("sequence") in ckio(*words, "--concat", concat, at=place).stdout
    ckio(*words, "--concat", concat, "-o", "short.txt", at=place)
    again = answer("plan", "--sequence", "short.txt", "--platform", "listing_4.txt", at=place)
    assert found["makespan"] == 384
    for same in ("steps", "makespan", "forward_steps", "actions", "levels"):
        assert again[same] == found[same]


def test_what_a_short_form_cannot_say_is_refused(place: Path) -> None:
    (place / "three.txt").write_text("3\n1 0 0\n2 2 2\n10 3 3\n")
    said = complaint("plan", "--steps", 40, "--platform", "three.txt", "--concat", 3, at=place)
    assert "concat 3 cannot express this schedule" in said
    assert "--concat" in complaint("plan", *LISTING_4, "--concat", 4, at=place)


def test_a_schedule_in_the_papers_notation_is_read_and_leaves_nothing_to_plan(place: Path) -> None:
    words = ("plan", "--planner", "hrevolve", *LISTING_4)
    found = answer(*words, "--format", "paper", "-o", "long.txt", at=place)
    words = ("plan", "--sequence", "long.txt", "--platform", "listing_4.txt")
    assert answer(*words, at=place)["makespan"] == found["makespan"]
    for more in (("--planner", "revolve"), ("--period", 3)):
        assert "is planned already" in complaint(*words, *more, at=place)


@pytest.mark.slow
def test_steps_that_differ_come_from_a_table(place: Path) -> None:
    table = "advance, record\n" + "".join(f"{1 + step % 3}, {2 + step % 3}\n" for step in range(30))
    (place / "costs.csv").write_text(table)
    words = ("plan", "--costs", "costs.csv", "--platform", "listing_4.txt")
    found = answer(*words, "-o", "plan.txt", at=place)
    assert found["steps"] == 30
    assert "lower bound" in found["note"]
    assert answer("simulate", "plan.txt", at=place)["makespan"] == found["makespan"]
    assert answer(*words, "--steps", 12, at=place)["steps"] == 12
    assert "knows the costs of 30 steps" in complaint(*words, "--steps", 31, at=place)
    assert "advance is given here and for all steps" in complaint(*words, "--advance", 2, at=place)


def test_a_planner_for_equal_steps_refuses_a_table(place: Path) -> None:
    (place / "costs.csv").write_text("advance\r\n1\r\n2\r\n", encoding="utf-8-sig")
    words = ("plan", "--costs", "costs.csv", "--platform", "listing_4.txt")
    assert answer(*words, at=place)["steps"] == 2  # the mark of the byte order is passed over
    said = complaint(*words, "--planner", "multistage", at=place)
    assert "multistage plans for steps that are all alike" in said


def test_a_sequence_that_means_nothing_is_refused(place: Path) -> None:
    words = ("plan", "--sequence", "short.txt", "--platform", "listing_4.txt")
    for sequence, message in (
        ("[RD_0, Revolve(3, 2)]", "is not legal on this platform: #0 Read"),
        ("[WD_0, WD_0, Revolve(3, 2)]", "is not legal on this platform"),
        ("[F_0->2, Revolve(3, 2)]", "ends before the first 3 steps are reversed"),
        ("[]", "ends before the first 1 steps are reversed"),
        (f"[Revolve({'9' * 5000}, 2)]", "line 1"),
        (f"({'9' * 5000}; 3)", "is too large a number of steps"),
    ):
        (place / "short.txt").write_text(f"Sequence: {sequence}\n")
        said = complaint(*words, at=place)
        assert said.startswith("ckio: short.txt")
        assert message in said
