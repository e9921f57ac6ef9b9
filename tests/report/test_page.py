"""The report is one whole page, safe whatever its words are, small however long the run is."""

import math
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from browsing import complaints, opened
from drawing import Case, legal_schedules
from hypothesis import given, settings

from ckio.actions import Action, Advance, Discard, Key, Kind, Record, Reverse, Write
from ckio.actions.columns import READ, REVERSE, WRITE, Actions
from ckio.actions.variables import Flow, Step, Variables
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text
from ckio.report import compare, table
from ckio.report.accesses import access_cells
from ckio.report.page import largest_difference, page
from ckio.report.pictures import (
    MemoryCurve,
    PlotAxis,
    draw,
    resources,
    slow_discards,
    sweeps,
)
from ckio.report.pictures.svg import COLUMNS, DISTINCT
from ckio.schedule import Schedule
from ckio.schedule.occupancy import accesses, waits
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

from .drawing import SVG, groups, halving, in_sequence, long, shapes

CHAIN = Chain(steps=12, advance=0.5, record=0.75, reverse=1.25, restart=1000, tape=700, adjoint=300)
PLATFORM = Platform(
    (
        Level(name="ram", capacity=3000, write=Affine(0.01, 1e-5), read=Affine(0.02, 2e-5)),
        Level(name="archive", write=Affine(0.3, 1e-4), read=Affine(0.2, 2e-4), discard=Affine(0.1)),
    ),
    working_memory=700,
)
FACTS = [("model", "vorticity"), ("planner", "hrevolve")]
NASTY = '<script>alert("&")</script>'


SCHEDULE = Schedule(CHAIN, halving(12, levels=2))
PREDICTED = in_sequence(SCHEDULE, PLATFORM)
MEASURED = in_sequence(SCHEDULE, PLATFORM, slower=1.1)


def report(
    *,
    predicted: Timeline = PREDICTED,
    measured: Timeline | None = MEASURED,
    chain: Chain = CHAIN,
    platform: Platform = PLATFORM,
    word: str = "vorticity",
) -> str:
    return page(
        title=word,
        facts=[*FACTS, (word, word)],
        report=compare(predicted, measured or predicted, names=[word, word]),
        platform=platform,
        chain=chain,
        predicted=predicted,
        measured=measured,
    )


class Tags(HTMLParser):
    """The tags of a page, and whether each is closed in its turn."""

    VOID = frozenset({"meta", "link", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_asks_the_network_for_nothing() -> None:
    text, tags = report(), Tags(report())
    assert tags.open == []
    ids = [attributes["id"] for _, attributes in tags.seen if "id" in attributes]
    assert len(ids) == len(set(ids)) > 0
    for _, attributes in tags.seen:
        assert (attributes.get("src") or "data:image/png;").startswith("data:image/png;")
        assert attributes.get("href", "data:,") == "data:,"
    assert not re.search(r"url\(|@import|https?://(?!www.w3.org/2000/svg)", text)


def test_whatever_comes_from_outside_is_escaped() -> None:
    level = Level(name="disk", options={"place": NASTY})
    text = report(word=NASTY, platform=Platform((*PLATFORM.levels, level)))
    assert NASTY not in text
    assert text.count("<script>") == 1
    assert "&lt;script&gt;" in text


def test_the_platform_can_be_copied_from_the_page() -> None:
    (toml,) = re.findall(r"<pre>(.*?)</pre>", report(), re.DOTALL)
    assert Platform.loads(unescape(toml)) == PLATFORM


def test_the_levels_are_told_in_numbers() -> None:
    text = report()
    # 11 checkpoints in all; halving puts those of even depth on the first level.
    writes = [
        sum(a == Write(a.key, k) for a in SCHEDULE.actions if isinstance(a, Write)) for k in (0, 1)
    ]
    assert sum(writes) == 11
    # 1000 B in 20 ms are 50 kB/s; measured, all is slower by a tenth.
    for count, name, capacity, speed, seconds in (
        (writes[0], "ram", "2.93 KiB", "4.55e-05", "22 ms"),
        (writes[1], "archive", "never fills", "2.27e-06", "440 ms"),
    ):
        cells = [name, "2", "1.95 KiB", capacity, "write", count, bytes_text(1000 * count)]
        first = "".join(f"<td>{cell}</td>" for cell in cells)
        last = "".join(f"<td>{cell}</td>" for cell in (speed, seconds, seconds))
        assert re.search(f"<tr>{first}<td>[^<]*</td>{last}</tr>", text)
    (levels,) = re.findall(r"<h2>Storage levels</h2>.*?</table>", text, re.DOTALL)
    assert levels.count("<td>read</td>") == 2
    assert levels.count("<td>discard</td>") == 1  # those of the first level take no time


def test_percentiles_are_of_single_accesses() -> None:
    keys = [Key(Kind.RESTART, k) for k in range(10)]
    actions = Actions.of([Write(key, 0) for key in keys])
    start = np.arange(10.0) * 10
    timeline = Timeline(actions, start, start + np.arange(1.0, 11.0), np.full(10, 10**9))
    assert access_cells(timeline, WRITE) == [
        *("write", "10", "9.31 GiB", "55 s", f"{10 / 55:.3g}", "5.5 s", "9.1 s")
    ]


def test_discards_have_a_track_only_where_they_take_a_notable_time() -> None:
    axis = PlotAxis(PREDICTED.makespan)
    assert slow_discards([PREDICTED], PLATFORM) == {1}
    tracks = re.findall(r"right[^>]*>(\w+)</text>", resources(PREDICTED, PLATFORM, axis).element())
    assert [word for word in tracks if word != "time"][3:] == [
        *("write", "read"),
        *("write", "read", "discard"),
    ]
    everything = resources(PREDICTED, PLATFORM, axis, discards=frozenset({0, 1})).element()
    assert everything.count(">discard</text>") == 2
    picture = resources(PREDICTED, Platform((*PLATFORM.levels, Level(name="tape"))), axis)
    assert picture.element().count(">not used</text>") == 1


def test_single_variables_are_counted_and_explained_as_such() -> None:
    u, m = (Key(Kind.RESTART, 0, name) for name in "um")
    step = Step(Flow({"u", "m"}, {"u", "m"}, {"u", "m"}))
    chain = replace(CHAIN.with_steps(1), variables=Variables({"u": 2, "m": 3}, step))
    schedule = Schedule(chain, [Write(u, 0), Write(m, 0), Record(0, 1), Reverse(0, 1)])
    timeline = in_sequence(schedule, PLATFORM)
    text = report(predicted=timeline, measured=None, chain=chain)
    assert "peak arrays" in text
    assert "2 arrays, 5 B" in text
    assert "each variable is stored by itself" in text
    for words in ("arrays", "each variable"):
        assert words not in report()


@pytest.mark.parametrize("seconds", [0.0, 5e-324, 1e-12, 1e9])
@pytest.mark.parametrize(
    "actions", [[], [Record(0, 1), Reverse(0, 1)]], ids=["nothing", "one step"]
)
def test_no_times_and_extreme_times_have_their_pictures(
    actions: list[Action], seconds: float
) -> None:
    chain = Chain(steps=1, advance=0, record=seconds, reverse=seconds, restart=1, tape=1, adjoint=1)
    timeline = in_sequence(Schedule(chain, actions), PLATFORM)
    for platform in (PLATFORM, Platform(())):
        drawn = draw(timeline, chain, platform)
        assert ElementTree.fromstring(drawn) is not None
        assert not re.search(r'"[^"]*\b(nan|inf)\b[^"]*"', drawn)
        Tags(report(predicted=timeline, measured=None, chain=chain, platform=platform))


def test_predicted_and_measured_can_be_switched_and_a_prediction_alone_needs_no_switch() -> None:
    for measured, switches in ((MEASURED, 3), (None, 0)):
        text = report(measured=measured)
        assert text.count('<div class="predicted">') == 3
        assert text.count('<div class="measured">') == text.count('type="radio"') == switches


def test_few_events_have_a_shape_and_a_tooltip_each() -> None:
    axis = PlotAxis(PREDICTED.makespan)
    picture = resources(PREDICTED, PLATFORM, axis).element()
    bars = [r for g in groups(picture, "bar") for r in g.findall("{*}rect")]
    assert len(bars) == len(SCHEDULE)
    titles = [bar.findtext("{*}title") or "" for bar in bars]
    assert any(title.startswith("advance steps 0 to 5\n") for title in titles)
    assert any(title.startswith("write x_0, 1000 B\n") for title in titles)


def test_a_bar_is_where_its_seconds_are() -> None:
    axis = PlotAxis(2 * PREDICTED.makespan)
    picture = resources(PREDICTED, PLATFORM, axis).element()
    (reverse,) = groups(picture, "bar reverse")
    last = reverse.findall("{*}rect")[-1]
    end = float(last.get("x", "")) + float(last.get("width", ""))
    assert end == pytest.approx(axis.x(np.array([PREDICTED.makespan]))[0], abs=0.2)


def test_merged_bars_are_as_high_as_their_share_of_the_time() -> None:
    # Half of the time is spent writing, in 1000 writes: columns filled to one half.
    count = 1000
    keys = [Key(Kind.RESTART, 0)]
    actions = Actions.of(
        [a for _ in range(count) for a in (Write(keys[0], 0), Discard(keys[0], 0))]
    )
    start = np.arange(2 * count, dtype=np.float64)
    timeline = Timeline(actions, start, start + 1.0, np.zeros(2 * count, np.int64))
    picture = resources(timeline, PLATFORM, PlotAxis(timeline.makespan)).element()
    (write,) = groups(picture, "bar write")[:1]
    titles = [p.findtext("{*}title") or "" for p in write.findall("{*}path")]
    assert sum(int(title.split(" ")[0]) for title in titles) == count
    assert {title.split(", ")[1].split(" ")[0] for title in titles} <= {"49%", "50%", "51%"}


def test_as_many_shapes_as_are_ever_drawn_one_by_one_make_a_small_page() -> None:
    platform = Platform(tuple(Level(name=f"level{k}") for k in range(4)))
    schedule = Schedule(CHAIN.with_steps(DISTINCT), halving(DISTINCT, levels=4))
    timeline = in_sequence(schedule, platform)
    text = report(predicted=timeline, measured=timeline, chain=schedule.chain, platform=platform)
    assert len(text) < 3_000_000


@settings(max_examples=10)
@given(legal_schedules())
def test_every_legal_schedule_has_its_pictures(case: Case) -> None:
    schedule, platform = case
    timeline = in_sequence(schedule, platform)
    root = ElementTree.fromstring(draw(timeline, schedule.chain, platform))
    for shape in root.iter(f"{SVG}rect"):
        assert float(shape.get("width", "")) >= 0
        assert float(shape.get("height", "")) >= 0
    Tags(report(predicted=timeline, chain=schedule.chain, platform=platform, measured=None))


def test_lines_merge_into_the_columns_that_they_cross() -> None:
    steps = 4 * DISTINCT
    schedule = Schedule(CHAIN.with_steps(steps), [Advance(k, k + 1) for k in range(steps)])
    timeline = in_sequence(schedule, PLATFORM)
    picture = sweeps(timeline, schedule.chain, PLATFORM, PlotAxis(timeline.makespan)).element()
    ((_, line),) = shapes(picture, "line move advance")
    strokes = re.findall(r"M([\d.]+) ([\d.]+)V([\d.]+)", line)
    # One unbroken climb: a stroke in every column, each beginning where the one before it ended.
    assert len(strokes) == COLUMNS
    for before, after in pairwise(strokes):
        assert abs(float(before[2]) - float(after[1])) <= 1


def test_a_browser_opens_the_page_without_complaint(tmp_path: Path) -> None:
    done = opened(report(), tmp_path)
    assert done.stdout.count('<svg xmlns="http://www.w3.org/2000/svg" class="picture"') == 7
    assert complaints(done) == []


def test_a_browser_prints_the_page(tmp_path: Path) -> None:
    target = tmp_path / "page.pdf"
    opened(report(), tmp_path, how=f"--print-to-pdf={target}")
    pages = re.findall(rb"/Type\s*/Page\b", target.read_bytes())
    assert 3 <= len(pages) <= 8


def test_with_overlap_levels_show_their_transfers_and_the_program_what_it_waits_for() -> None:
    near, far = replace(PLATFORM.levels[0], capacity=9000), PLATFORM.levels[1]
    platform = replace(PLATFORM, levels=(near, replace(far, backend="directory")))
    timeline = simulate(SCHEDULE, platform, overlap=Overlap(1, 1))
    axis = PlotAxis(timeline.makespan)
    picture = resources(timeline, platform, axis).element()
    bars = [r for g in groups(picture, "bar") for r in g.findall("{*}rect")]
    waited = waits(timeline, platform)
    near_or_computing = len(timeline) - len(accesses(PREDICTED, platform, 1))
    assert len(bars) == near_or_computing + len(timeline.transfers) + len(waited)
    assert len(waited) > 0
    assert ">waiting</text>" in picture
    assert ">waiting</text>" not in resources(PREDICTED, platform, axis).element()
    table = Tags(report(predicted=timeline, measured=None, platform=platform))
    assert table.open == []
    assert ElementTree.fromstring(draw(timeline, CHAIN, platform)) is not None


def test_a_sentence_names_the_largest_difference_above_the_table() -> None:
    """What computes is slower, what reads is faster than predicted."""
    op = PREDICTED.actions.op
    seconds = (PREDICTED.stop - PREDICTED.start) * np.where(op == READ, 0.5, 1.0)
    seconds += np.where(op == REVERSE, 3.0, 0.0)
    stop = np.cumsum(seconds)
    measured = Timeline(PREDICTED.actions, stop - seconds, stop, PREDICTED.nbytes)
    report = compare(PREDICTED, measured, names=["ram", "archive"])
    assert largest_difference(report) == (
        "The largest difference is that of reverse: 51 s instead of 15 s, 36 s longer than"
        " predicted. It explains 97% of all differences."
    )
    drawn = page(
        title="", facts=[], platform=PLATFORM, chain=CHAIN, predicted=PREDICTED, measured=measured,
        report=report,
    )  # fmt: skip
    assert f'<p class="largest">{largest_difference(report)}</p>' in drawn
    for row in table(report):  # discards that take less than 1% of the time are with the reads
        assert f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" in drawn
    assert "<td>read, discard archive</td>" in drawn


def test_where_nothing_differs_no_class_is_named() -> None:
    report = compare(PREDICTED, PREDICTED)
    assert largest_difference(report) == "Every class of action took as long as predicted."


SCREEN, MARGIN, LINE, LETTERS = 900, 24, 27, 105
"""Pixels of a first screen of 1400 x 900, its margin, and the height and length of a line."""


@pytest.mark.parametrize("count", [3, 40, 10_000])
def test_verdict_and_first_picture_fit_the_first_screen(count: int) -> None:
    timeline, chain = long(count, CHAIN, PLATFORM), CHAIN.with_steps(count)
    text = report(predicted=timeline, measured=timeline, chain=chain)
    before, _, rest = text.partition("<body>")[2].partition("<svg")
    (verdict,) = re.findall(r'<p class="verdict">(.*?)</p>', before)
    assert re.findall(r"<(h1|p|h2|h3|figcaption|table)\b", before) == ["h1", "p", "h2"]
    height = float(re.findall(r'viewBox="0 0 960 ([\d.]+)"', rest)[0])
    words = math.ceil(len(verdict) / LETTERS) * LINE
    assert MARGIN + 2 * LINE + words + 2.5 * LINE + height <= SCREEN


def test_the_verdict_says_whether_more_memory_would_help() -> None:
    curve = MemoryCurve([(1000, 40.0), (2000, 30.0), (4000, 24.0)], 2000, (8000, 20.0), 90.0)
    arguments = {"platform": PLATFORM, "chain": CHAIN, "predicted": PREDICTED}
    for memory, words in ((curve, curve.text()), (None, "Level ram never fills up, so a")):
        text = page(title="memory", facts=[], memory=memory, **arguments)  # type: ignore[arg-type]
        (verdict,) = re.findall(r'<p class="verdict">(.*?)</p>', text)
        assert words in verdict
        if memory is not None:
            _, _, section = text.partition("<h2>Would more memory help?</h2>")
            assert section.index(f"<p>{memory.text()}</p>") < section.index("<svg")
