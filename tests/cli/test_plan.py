"""What `ckio plan` takes beside steps and costs, and what it says beside figures."""

import math
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from cli.commands import answer, ckio, complaint

from ckio.planners.recovery import every
from ckio.platform.readable import seconds_text

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


FAILING = """
format = 1
working_memory = "1 kB"
[[level]]
name = "ram"
capacity = "6 kB"
[[level]]
name = "nvme"
backend = "directory"
capacity = "20 kB"
write = {latency = 2.0}
read = {latency = 2.0}
"""
STEPS = ("--steps", 200, "--platform", "node.toml")
UNITS = (
    *("--advance", 10, "--record", 12, "--reverse", 25),
    *("--restart", "1kB", "--tape", "1kB", "--adjoint", "1kB"),
)


def test_with_failures_the_interval_is_dalys_and_the_expected_time_follows(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(FAILING)
    words = ("plan", "--planner", "hrevolve", *STEPS, *UNITS)
    plain = answer(*words, at=tmp_path)
    seldom, often = (
        answer(*words, "--mtbf", mtbf, at=tmp_path)["failures"] for mtbf in ("1000d", "1h")
    )
    assert (often["level"], often["mtbf"]) == ("nvme", 3600.0)
    assert often["every"] == every(2.0, 3600.0)
    assert plain["makespan"] <= seldom["expected"] < 1.1 * plain["makespan"] < often["expected"]
    assert "failures" not in plain
    text = ckio(*words, "--mtbf", "1h", at=tmp_path).stdout.splitlines()[-1]
    assert text == often["text"]
    step = plain["makespan"] / 200
    steps = math.ceil(often["every"] / step)
    interval = f"every {seconds_text(often['every'])} of work, about {steps} steps; "
    assert text.startswith(f"an adjoint checkpoint on nvme {interval}")
    assert text.endswith(
        f"with a kill in 3600 s on average, expect {seconds_text(often['expected'])}"
    )
    text = answer(*words, "--mtbf", "10s", at=tmp_path)["failures"]["text"]
    assert text.startswith("an adjoint checkpoint on nvme after each step; ")
