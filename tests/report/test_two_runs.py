"""Two runs next to each other: classes add up to the difference, the verdict names the largest."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import Actions
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.report import BETWEEN
from ckio.report.two_runs import (
    RunSide,
    class_pairs,
    comparison_page,
    run_table,
    verdict,
)
from ckio.schedule.timeline import Timeline

X0 = Key(Kind.RESTART, 0)
CHAIN = Chain(steps=4, advance=1, record=1, reverse=1, restart=8, tape=8, adjoint=8)
PLATFORM = Platform((Level(name="ram"), Level(name="nvme", capacity=100)))
MANY: list[Action] = [
    *(Write(X0, 1), Advance(0, 3), Record(3, 4), Reverse(3, 4), Read(X0, 1)),
    *(Advance(0, 2), Record(2, 3), Reverse(2, 3), Read(X0, 1), Discard(X0, 1)),
    *(Record(0, 2), Reverse(0, 2)),
]
FEW: list[Action] = [Record(0, 4), Reverse(0, 4)]
NASTY = '<script>alert("&")</script>'


def side(
    name: str,
    actions: list[Action],
    *,
    forward: float = 1.0,
    reverse: float = 2.0,
    access: float = 0.5,
    gap: float = 0.0,
    digest: str = "d",
    host: str = "n1",
) -> RunSide:
    seconds = []
    for action in actions:
        match action:
            case Advance(begin, end) | Record(begin, end):
                seconds.append(forward * (end - begin))
            case Reverse(begin, end):
                seconds.append(reverse * (end - begin))
            case Discard():
                seconds.append(0.0)
            case _:
                seconds.append(access)
    stop = np.cumsum(np.array(seconds) + gap)
    timeline = Timeline(Actions.of(actions), stop - seconds, stop, np.zeros(len(actions), np.int64))
    return RunSide(
        name,
        timeline,
        CHAIN,
        PLATFORM,
        facts={"planner": "revolve", "host": host},
        problem={"model": "wave"},
        predicted=10.0,
        digest=digest,
    )


def test_the_verdict_says_which_took_less_time_and_where() -> None:
    many, few = side("A", MANY), side("B", FEW)
    assert (many.timeline.makespan, few.timeline.makespan) == (18.5, 12.0)
    assert verdict(many, few) == (
        "B took 35% less time (12 s instead of 18.5 s). The largest part is 5 s less for advance (5"
        " and 0 steps). The gradients are equal bit for bit."
    )
    assert verdict(few, many).startswith(
        "A took 54% more time (18.5 s instead of 12 s). The largest part is 5 s more for advance (0"
        " and 5 steps)."
    )


def test_runs_that_hardly_differ_have_no_reason() -> None:
    said = verdict(side("A", FEW), side("B", FEW, reverse=2.001))
    assert said == (
        "A and B took the same time within 1% (12 s instead of 12 s). The gradients are equal bit"
        " for bit."
    )


def test_what_makes_runs_less_comparable_is_said() -> None:
    one, two = side("A", MANY), side("B", FEW, digest="e", host="n2")
    assert "They ran on different hosts, n1 and n2. The gradients are NOT equal" in verdict(
        one, two
    )
    assert "The gradients are NOT equal bit for bit." in verdict(two, one)
    assert "The gradients are equal bit for bit." in verdict(one, replace(two, digest=one.digest))
    other = replace(two, problem={"model": "burgers"})
    said = verdict(one, other)
    assert "The runs solve different problems: model is wave in A and burgers in B." in said
    assert "gradients" not in said
    part = replace(two, timeline=side("B", [Reverse(0, 1)]).timeline)
    assert "Only the last process of B is compared, because B was resumed" in verdict(one, part)


SECONDS = st.floats(1e-6, 1e3)


@st.composite
def sides(draw: st.DrawFn) -> RunSide:
    names = ("forward", "reverse", "access", "gap")
    seconds = {name: draw(SECONDS) for name in names}
    return side("A", draw(st.sampled_from([MANY, FEW])), **seconds)


@settings(max_examples=50)
@given(sides(), sides())
def test_classes_add_up_to_the_difference(one: RunSide, two: RunSide) -> None:
    pairs = class_pairs(one, two)
    change = two.timeline.makespan - one.timeline.makespan
    largest = max(one.timeline.makespan, two.timeline.makespan)
    total = sum(new.measured - old.measured for old, new in pairs)
    assert total == pytest.approx(change, abs=1e-9 * largest)
    for said in (verdict(one, two), verdict(two, one)):
        assert not re.search(r"\bnan\b|\binf\b", said)


def test_the_table_has_all_classes_of_both_and_their_signed_differences() -> None:
    rows = {row[0]: row[1:] for row in run_table(side("A", MANY), side("B", FEW))}
    assert rows["measured"] == ["18.5 s", "12 s", "-6.5 s"]
    assert rows["predicted"] == ["10 s", "10 s", "0"]
    assert rows["record (4 steps)"] == ["4 s", "4 s", "0"]
    assert rows["advance (5 and 0 steps)"] == ["5 s", "0 s", "-5 s"]
    assert rows["write nvme (1 and 0 actions)"] == ["500 ms", "0 s", "-500 ms"]
    assert rows["read nvme (2 and 0 actions)"] == ["1 s", "0 s", "-1 s"]
    assert rows["levels"][0] == "ram without a limit, nvme 100 B"
    assert rows["peak of checkpoints"][:2] == ["8 B", "0 B"]
    assert rows["planner"] == ["revolve", "revolve", ""]
    pairs = class_pairs(side("A", MANY), side("B", FEW))
    assert pairs[-1][0].name == BETWEEN
    assert sum(old.measured for old, _ in pairs) == pytest.approx(18.5)


def test_the_page_has_the_pictures_of_both_on_one_time_axis_and_is_escaped() -> None:
    one = replace(side(NASTY, MANY), facts={NASTY: NASTY}, problem={"model": NASTY})
    page = comparison_page(one, side("B", FEW), origin=NASTY)
    assert NASTY not in page
    assert page.count("<script>") == 1
    assert page.index('<p class="verdict">') < page.index("<svg") < page.index("<table>")
    pictures = re.findall(r'<svg xmlns[^>]*class="picture".*?</svg>\s*</div>', page, re.DOTALL)
    assert len(pictures) == 8
    until = {
        ruler.get("data-until")
        for picture in pictures
        for ruler in ElementTree.fromstring(picture.removesuffix("</div>").strip()).iter()
        if ruler.get("data-axis") == "time" and ruler.get("data-until")
    }
    assert until == {"18.5"}
