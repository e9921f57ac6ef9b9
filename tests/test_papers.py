"""The schedules printed in papers 002 and 004 are legal and cost what is printed."""

import re
from pathlib import Path

import pytest

from ckio.actions import Write
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule import text as texts
from ckio.schedule.replay import validate
from ckio.schedule.text import notation

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def costs(*, u_f: float, u_b: float) -> Chain:
    """Paper 004's costs: a checkpoint is one byte, and u_b = record + reverse."""
    return Chain(steps=None, advance=u_f, record=0, reverse=u_b, restart=1, tape=1, adjoint=1)


MEMORY_AND_DISK = Platform(
    (
        Level(name="memory", capacity=2),
        Level(name="disk", write=Affine(latency=2), read=Affine(latency=1)),
    ),
    working_memory=1,
)
LISTING_1 = Platform.loads(golden("listing_1.platform.txt"))

LISTINGS = [
    pytest.param("listing_2", LISTING_1, costs(u_f=1, u_b=1), 21, 89, id="H-Revolve"),
    pytest.param("listing_3", MEMORY_AND_DISK, costs(u_f=1, u_b=0), 11, 22, id="Disk-Revolve"),
    pytest.param("listing_6", MEMORY_AND_DISK, costs(u_f=1, u_b=0), 11, 25, id="Per-Disk-Revolve"),
]


@pytest.mark.parametrize(("name", "platform", "chain", "steps", "cost"), LISTINGS)
def test_a_listing_of_paper_004_is_legal_and_costs_what_is_printed(
    name: str, platform: Platform, chain: Chain, steps: int, cost: float
) -> None:
    text = golden(f"{name}.txt")
    schedule = notation.loads(text, chain, source=name)
    assert schedule.chain.steps == counts(schedule).reversed == steps
    assert validate(schedule, platform).adjoint == 0
    assert makespan(schedule, platform) == cost == float(text.rpartition("Makespan:")[2])


@pytest.mark.parametrize(("name", "platform", "chain", "steps", "cost"), LISTINGS)
def test_a_listing_names_each_state_that_it_stores_once_by_level(
    name: str, platform: Platform, chain: Chain, steps: int, cost: float
) -> None:
    text = golden(f"{name}.txt")
    printed = re.findall(r"^(?:Storage level \d|Memory|Disk): \[(.*)\]$", text, re.MULTILINE)
    written: list[dict[int, None]] = [{} for _ in printed]
    for action in notation.loads(text, chain).actions:
        if isinstance(action, Write):
            written[action.level][action.key.step] = None
    assert [", ".join(map(str, steps)) for steps in written] == printed


@pytest.mark.parametrize(
    ("name", "disk"), [("listing_2", False), ("listing_3", True), ("listing_6", True)]
)
def test_a_listing_is_printed_again_as_it_was(name: str, disk: bool) -> None:
    text = golden(f"{name}.txt")
    again = notation.dumps(notation.loads(text, costs(u_f=1, u_b=0)), disk=disk)
    assert again.split() == text[text.index("Sequence:") : text.index("]") + 1].split()


def test_the_platforms_of_paper_004_have_the_slots_that_its_text_counts() -> None:
    slots = {
        name: [level.capacity for level in Platform.loads(golden(f"{name}.platform.txt")).levels]
        for name in ("listing_1", "arch_1", "arch_2")
    }
    assert slots == {"listing_1": [1, 2, 10], "arch_1": [1, 1, 2, 20], "arch_2": [2, 20, 20]}


def test_an_access_on_a_platform_of_paper_004_costs_what_its_line_says() -> None:
    levels = Platform.loads(golden("arch_2.platform.txt")).levels
    assert [(level.write(1), level.read(1)) for level in levels] == [(0.5, 0.5), (10, 10), (20, 20)]


TABLES = [
    pytest.param("table_2", 4, 4, 0, 0, id="store everything"),
    pytest.param("table_3", 8, 2, 0, 2, id="periodic"),
    pytest.param("table_4", 8, 1, 2, 0, id="revolve"),
    pytest.param("table_5", 6, 1, 3, 0, id="mixed"),
]


def table(name: str) -> tuple[Schedule, Platform]:
    document = texts.loads(golden(f"{name}.txt"), source=name)
    assert document.platform is not None
    return document.schedule, document.platform


@pytest.mark.parametrize(("name", "forward", "tapes", "discards", "kept"), TABLES)
def test_a_table_of_paper_002_is_legal_and_takes_the_steps_that_it_shows(
    name: str, forward: int, tapes: int, discards: int, kept: int
) -> None:
    schedule, platform = table(name)
    machine = validate(schedule, platform)
    assert machine.adjoint == 0
    assert sum(map(len, machine.stored)) == kept
    total = counts(schedule)
    assert total.forward == forward
    assert sum(level.discards for level in total.levels) == discards
    assert platform.tapes(schedule.chain) == tapes


@pytest.mark.parametrize(("name", "forward", "tapes", "discards", "kept"), TABLES)
def test_a_table_of_paper_002_needs_all_the_room_that_it_states(
    name: str, forward: int, tapes: int, discards: int, kept: int
) -> None:
    schedule, platform = table(name)
    assert platform.working_memory == tapes * schedule.chain.tape
    peaks = [level.peak_bytes for level in counts(schedule).levels]
    assert peaks == [level.capacity for level in platform.levels]
