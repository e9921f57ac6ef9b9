"""What the library gives is printed as a short table, and drawn as a picture."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ckio
from ckio import Affine, Chain, Level, Platform, Schedule, Timeline
from ckio.report.pictures import draw_schedule, draw_timeline
from ckio.schedule.timeline import EMPTY

SVG = "{http://www.w3.org/2000/svg}svg"
MARKUP = "<script>alert('x')</script>"
"""What may be in a note, and is no markup of a page."""

EVIL = f"\x1b[2J{MARKUP}\r\n"

CHAIN = Chain(steps=6, advance=1.0, record=1.5, reverse=2.5, restart=8192, tape=4096, adjoint=8192)
PLATFORM = Platform(
    (
        Level(name="ram", capacity=16384),
        Level(
            name="nvme",
            backend="directory",
            write=Affine(0.5, 1 / 2**20),
            read=Affine(0.25),
            options={"durability": "direct"},
            note=f"measured {MARKUP}",
        ),
    ),
    working_memory=4096,
    models={f"wave {MARKUP}": replace(CHAIN, steps=None)},
)
SCHEDULE = Schedule(CHAIN, ckio.planners.hrevolve(CHAIN, PLATFORM).actions, note=f"the best {EVIL}")
TIMELINE = ckio.simulate(SCHEDULE, PLATFORM)


class Model(ckio.ArrayModel):
    def step(self, state: Any, i: int, /) -> None:
        state["J"] += (state["x"] ** 2).sum()

    def adjoint_step(self, adjoint: Any, tape: Any, i: int, /) -> None:
        adjoint["x"] += 2 * tape["x"] * adjoint["J"]


def checked() -> Any:
    def make() -> Model:
        x = np.array([1.0, 2.0])
        return Model({EVIL: x, "x": x, "J": 0.0}, control={EVIL: x, "x": x})

    wrong = {EVIL: np.ones(2), "x": np.array([4.0, 8.0])}
    return ckio.check_gradient(make, 2, wrong)


VALUES: dict[str, Callable[[], Any]] = {
    "chain": lambda: CHAIN,
    "platform": lambda: PLATFORM,
    "schedule": lambda: SCHEDULE,
    "timeline": lambda: TIMELINE,
    "report": lambda: ckio.compare(TIMELINE, TIMELINE, names=[EVIL, "nvme"], lossy={EVIL: EVIL}),
    "check": checked,
}


def test_a_short_table_says_what_each_value_is(golden: Callable[[str, str], None]) -> None:
    texts = [str(value()) for name, value in VALUES.items() if name != "check"]
    golden("readable.txt", "\n\n".join(texts) + "\n")


def test_a_chain_is_printed_with_the_range_of_what_varies() -> None:
    assert "advance    1 s to 3 s" in str(replace(CHAIN, advance=[1, 2, 3, 1, 1, 1]))
    assert str(replace(CHAIN, steps=None)).startswith("chain of an unknown number of steps")


@pytest.mark.parametrize("name", VALUES)
def test_names_do_not_steer_a_terminal(name: str) -> None:
    assert all(letter.isprintable() or letter == "\n" for letter in str(VALUES[name]()))


@pytest.mark.parametrize("schedule", [SCHEDULE, Schedule(CHAIN, [])])
def test_a_picture_of_a_schedule_is_well_formed(schedule: Schedule) -> None:
    assert ET.fromstring(draw_schedule(schedule)).tag == SVG


@pytest.mark.parametrize("timeline", [TIMELINE, EMPTY])
def test_a_picture_of_a_timeline_is_well_formed(timeline: Timeline) -> None:
    assert ET.fromstring(draw_timeline(timeline)).tag == SVG


def test_representations_are_those_of_values() -> None:
    assert repr(CHAIN).startswith("Chain(steps=6, advance=1.0, ")
    assert eval(repr(CHAIN), {name: getattr(ckio, name) for name in dir(ckio)}) == CHAIN
    assert repr(TIMELINE).startswith("<timeline of ")
