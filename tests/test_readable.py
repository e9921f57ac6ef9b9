"""What the library gives is printed as a short table, and shown in a notebook with its picture."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import ckio
from ckio import Affine, Chain, Level, Platform, Schedule, Timeline
from ckio.platform.readable import PICTURES, Printed
from ckio.schedule.timeline import EMPTY

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
SCHEDULE = Schedule(CHAIN, ckio.hrevolve(CHAIN, PLATFORM).actions, note=f"the best {EVIL}")
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


class Tags(HTMLParser):
    """The tags of a page, which have to be closed as they were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", VALUES)
def test_names_neither_steer_a_terminal_nor_are_html(name: str) -> None:
    value = VALUES[name]()
    text, html = str(value), value._repr_html_()
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert all(letter.isprintable() or letter == "\n" for letter in html)
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert "script" not in tags.seen
    assert {"p", "table"} <= tags.seen
    assert ("svg" in tags.seen) == (name in ("schedule", "timeline"))


@pytest.mark.parametrize("value", [SCHEDULE, TIMELINE, Schedule(CHAIN, []), EMPTY])
def test_a_picture_is_well_formed(value: Schedule | Timeline) -> None:
    svg = PICTURES[type(value).__name__](value)
    assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert svg in value._repr_html_()


def test_representations_are_those_of_values() -> None:
    assert repr(CHAIN).startswith("Chain(steps=6, advance=1.0, ")
    assert eval(repr(CHAIN), {**vars(ckio), "None": None}) == CHAIN
    assert repr(TIMELINE).startswith("<timeline of ")
    assert all(issubclass(kind, Printed) for kind in (Chain, Platform, Schedule, Timeline))
