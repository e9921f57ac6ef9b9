"""Synchronous storage, as the papers assume it: the simulator ends when they say.

Each golden schedule is simulated as it is printed. HP (paper 004) prints makespans; M (paper 002)
prints forward steps, which are a makespan where each takes a second and nothing else takes any.
"""

from pathlib import Path
from typing import Any

import pytest

from ckio.adapters.registry import find
from ckio.planners import compact
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.schedule import text as texts
from ckio.schedule.text import notation
from ckio.sim.engine import simulate

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def paper_chain(length: int | None, *, u_b: float) -> Chain:
    """HP's chain of size l: u_f is a second, a checkpoint is one byte."""
    steps = None if length is None else length + 1
    return Chain(steps=steps, advance=1, record=0, reverse=u_b, restart=1, tape=1, adjoint=1)


def disk(write: float, read: float) -> Platform:
    """HP's two levels: two free slots, and a disk without end."""
    far = Level(name="disk", write=Affine(write), read=Affine(read))
    return Platform((Level(name="memory", capacity=2), far), working_memory=1)


def file(name: str) -> Platform:
    return Platform.loads(golden(f"{name}.platform.txt"))


def seconds(schedule: Schedule, platform: Platform) -> float:
    """The end of a timeline in which nothing overlaps, and every action has its place."""
    timeline = simulate(schedule, platform)
    assert timeline.actions == schedule.actions
    assert timeline.start.tolist() == [0.0, *timeline.stop.tolist()][: len(timeline)]
    assert len(timeline.transfers) == 0
    assert timeline.makespan == makespan(schedule, platform)
    return timeline.makespan


# --- Schedules as they are printed -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "platform", "u_b", "printed"),
    [
        pytest.param("listing_2", file("listing_1"), 1, 89, id="HP Listing 2, H-Revolve"),
        pytest.param("listing_3", disk(2, 1), 0, 22, id="HP Listing 3, Disk-Revolve"),
        pytest.param("listing_6", disk(2, 1), 0, 25, id="HP Listing 6, Per-Disk-Revolve"),
    ],
)
def test_a_listing_takes_the_makespan_that_is_printed_below_it(
    name: str, platform: Platform, u_b: float, printed: float
) -> None:
    text = golden(f"{name}.txt")
    assert float(text.rpartition("Makespan:")[2]) == printed
    schedule = notation.loads(text, paper_chain(None, u_b=u_b))
    assert seconds(schedule, platform) == printed


def test_listing_2_takes_21_seconds_less_where_its_21_backward_steps_take_none() -> None:
    schedule = notation.loads(golden("listing_2.txt"), paper_chain(None, u_b=0))
    assert seconds(schedule, file("listing_1")) == 89 - 21


LISTING_5_REPAIRED = golden("listing_5.txt").replace("(16,", "(16, 16,")
"""Its printed periods are of 85 steps: one 16 is missing, which Listing 4 has."""

WITHIN = golden("listing_4_1d.txt").partition("Sequence: [")[2]
WITHIN_A_PERIOD = f"Sequence: [WD_0, F_0->15, Revolve(0, 2), RD_0, {WITHIN}"
"""The printed 1D-Revolve(15, 2), with the write and the read that it follows."""


@pytest.mark.parametrize(
    ("text", "length", "expected"),
    [
        pytest.param(golden("listing_4.txt"), 100, 384, id="HP Listing 4, Disk-Revolve"),
        pytest.param(WITHIN_A_PERIOD, 16, 10 + 16 + 2 + 36, id="HP Listing 4, 1D-Revolve"),
        pytest.param(LISTING_5_REPAIRED, 100, 384, id="HP Listing 5, repaired"),
    ],
)
def test_a_compact_listing_takes_what_the_papers_recurrence_gives(
    text: str, length: int, expected: float
) -> None:
    schedule = compact.loads(text, paper_chain(length, u_b=0), disk(10, 2))
    assert seconds(schedule, disk(10, 2)) == expected


@pytest.mark.parametrize(
    ("name", "forward"),
    [
        pytest.param("table_2", 4, id="M Table 2, everything stored"),
        pytest.param("table_3", 8, id="M Table 3, periodic"),
        pytest.param("table_4", 8, id="M Table 4, Revolve"),
        pytest.param("table_5", 6, id="M Table 5, mixed"),
    ],
)
def test_a_table_takes_a_second_for_each_forward_step_that_it_shows(
    name: str, forward: int
) -> None:
    document = texts.loads(golden(f"{name}.txt"), source=name)
    assert document.platform is not None
    free = tuple(
        Level(name=level.name, capacity=level.capacity) for level in document.platform.levels
    )
    written = document.schedule
    sizes = {size: getattr(written.chain, size) for size in ("restart", "tape", "adjoint")}
    chain = Chain(steps=4, advance=1, record=1, reverse=0, **sizes)
    schedule = Schedule(chain, written.actions, written.stored)
    assert seconds(schedule, Platform(free, document.platform.working_memory)) == forward


@pytest.mark.parametrize(
    ("name", "computing", "storing"),
    [
        pytest.param("table_2", 4 * 2 + 4 * 3, 0, id="M Table 2, everything stored"),
        pytest.param("table_3", 4 * 1 + 4 * 2 + 4 * 3, 2 * 6 + 2 * 4, id="M Table 3, periodic"),
        pytest.param("table_4", 4 * 1 + 4 * 2 + 4 * 3, 2 * 6 + 3 * 4, id="M Table 4, Revolve"),
        pytest.param("table_5", 2 * 1 + 4 * 2 + 4 * 3, 3 * 6 + 3 * 4, id="M Table 5, mixed"),
    ],
)
def test_a_table_takes_its_actions_one_after_the_other(
    name: str, computing: float, storing: float
) -> None:
    """The file's costs: advance 1, record 2, reverse 3; the disk writes in 6 and reads in 4."""
    document = texts.loads(golden(f"{name}.txt"), source=name)
    assert document.platform is not None
    assert seconds(document.schedule, document.platform) == computing + storing


# --- What the planners make of the printed cases ---------------------------------------------

ARCH_1 = {10: 51, 50: 333, 100: 717, 200: 1541, 500: 4017, 1000: 8145}
ARCH_2 = {10: 31, 50: 251.5, 100: 531.5, 200: 1092, 500: 2783, 1000: 6054.5}
"""By Theorem 2, with u_b = 0, on the machines of Listings 8 and 9."""


def rows() -> list[Any]:
    """Planner, its length, its machine, the makespan, and u_b if it is not 0."""
    given: list[tuple[str, str, int, Platform, float, float]] = [
        ("HP Listing 2", "hrevolve", 20, file("listing_1"), 89, 1),
        ("HP Listing 2", "hrevolve-2020", 20, file("listing_1"), 89, 1),
        ("HP Listing 3", "disk-revolve", 10, disk(2, 1), 22, 0),
        ("HP Listing 3, without disk", "revolve", 10, disk(2, 1), 24, 0),
        ("HP Listing 4", "disk-revolve", 100, disk(10, 2), 384, 0),
        ("HP Listing 6", "periodic-disk-revolve", 10, disk(2, 1), 25, 0),
        ("HP Listing 7", "per-rev-revolve", 10, disk(2, 1), 25, 0),
    ]
    for name, values in (("arch_1", ARCH_1), ("arch_2", ARCH_2)):
        given += [
            (f"HP {name}", planner, length, file(name), expected, 0)
            for length, expected in values.items()
            for planner in ("hrevolve", "hrevolve-2020")
        ]
    return [pytest.param(*row, id=f"{where}, {row[0]}, l = {row[1]}") for where, *row in given]


@pytest.mark.parametrize(("planner", "length", "platform", "expected", "u_b"), rows())
def test_a_plan_for_a_published_case_takes_its_makespan(
    planner: str, length: int, platform: Platform, expected: float, u_b: float
) -> None:
    schedule = find("planners", planner)(paper_chain(length, u_b=u_b), platform)
    assert seconds(schedule, platform) == expected
