"""The schedules that papers print are legal and cost what is printed.

Listings are of Herrmann and Pallez, "H-Revolve", 2020; tables of Maddison, "Step-based
checkpointing with high-level algorithmic differentiation", 2024.
"""

import re
from pathlib import Path

import pytest
from oracles import notation

from ckio.actions import Write
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import counts, makespan
from ckio.schedule import text as texts
from ckio.schedule.replay import validate

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def costs(*, u_f: float, u_b: float) -> Chain:
    """A checkpoint is one byte, and u_b = record + reverse."""
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
def test_a_listing_is_legal_costs_what_is_printed_and_is_printed_again_as_it_was(
    name: str, platform: Platform, chain: Chain, steps: int, cost: float
) -> None:
    text = golden(f"{name}.txt")
    schedule = notation.loads(text, chain, source=name)
    assert schedule.chain.steps == counts(schedule).reversed == steps
    assert validate(schedule, platform).adjoint == 0
    assert makespan(schedule, platform) == cost == float(text.rpartition("Makespan:")[2])
    printed = text[text.index("Sequence:") : text.index("]") + 1]
    numbered = re.sub(r"\b([WRD])([MD])_", lambda it: f"{it[1]}^{'MD'.index(it[2])}_", printed)
    assert notation.dumps(schedule).split() == numbered.split()
    stored = re.findall(r"^(?:Storage level \d|Memory|Disk): \[(.*)\]$", text, re.MULTILINE)
    written: list[dict[int, None]] = [{} for _ in stored]
    for action in schedule.actions:
        if isinstance(action, Write):
            written[action.level][action.key.step] = None
    assert [", ".join(map(str, steps)) for steps in written] == stored


@pytest.mark.parametrize(
    ("name", "levels"),
    [
        ("listing_1", [(1, 0, 0), (2, 2, 2), (10, 3, 3)]),
        ("arch_1", [(1, 1, 1), (1, 5, 5), (2, 10, 10), (20, 20, 20)]),
        ("arch_2", [(2, 0.5, 0.5), (20, 10, 10), (20, 20, 20)]),
    ],
)
def test_the_platforms_have_the_slots_and_the_costs_of_their_lines(
    name: str, levels: list[tuple[int, float, float]]
) -> None:
    platform = Platform.loads(golden(f"{name}.platform.txt"))
    assert [(it.capacity, it.write(1), it.read(1)) for it in platform.levels] == levels


TABLES = [
    pytest.param("table_2", 4, 4, 0, 0, id="store everything"),
    pytest.param("table_3", 8, 2, 0, 2, id="periodic"),
    pytest.param("table_4", 8, 1, 2, 0, id="revolve"),
    pytest.param("table_5", 6, 1, 3, 0, id="mixed"),
]


@pytest.mark.parametrize(("name", "forward", "tapes", "discards", "kept"), TABLES)
def test_a_table_is_legal_takes_the_steps_that_it_shows_and_all_the_room_that_it_states(
    name: str, forward: int, tapes: int, discards: int, kept: int
) -> None:
    document = texts.loads(golden(f"{name}.txt"), source=name)
    schedule, platform = document.schedule, document.platform
    assert platform is not None
    machine = validate(schedule, platform)
    assert machine.adjoint == 0
    assert sum(map(len, machine.stored)) == kept
    total = counts(schedule)
    assert total.forward == forward
    assert sum(level.discards for level in total.levels) == discards
    assert platform.working_memory == tapes * schedule.chain.tape
    assert [it.peak_bytes for it in total.levels] == [it.capacity for it in platform.levels]
