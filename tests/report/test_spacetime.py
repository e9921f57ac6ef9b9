"""The picture with steps across: every mark is where a hand would draw it."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.report.pictures.lines import STROKES
from ckio.report.pictures.spacetime import BEGINS, MOST, spacetime
from ckio.report.pictures.svg import LEFT, RIGHT
from ckio.schedule import Schedule
from ckio.schedule.timeline import Timeline

from .drawing import SVG, in_sequence, long, shapes

CHAIN = Chain(steps=4, advance=1.0, record=1.5, reverse=2.5, restart=10, tape=7, adjoint=3)
PLATFORM = Platform((Level(name="ram"), Level(name="disk")))
X0, X2, T2 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 2), Key(Kind.TAPE, 2)

# Four steps: x_0 on the disk, x_2 in memory, and the tape of step 2 in the slot that x_2 leaves.
SMALL: list[Action] = [
    *(Write(X0, 1), Advance(0, 2), Write(X2, 0), Advance(2, 3), Record(3, 4)),  # line 0
    Reverse(3, 4),  # line 1
    *(Read(X2, 0), Discard(X2, 0), Record(2, 3), Write(T2, 0)),  # line 2
    *(Read(T2, 0), Discard(T2, 0), Reverse(2, 3)),  # line 3
    *(Read(X0, 1), Discard(X0, 1), Record(0, 2)),  # line 4
    Reverse(0, 2),  # line 5
]


def drawn(actions: list[Action], chain: Chain = CHAIN) -> str:
    timeline = in_sequence(Schedule(chain, actions), PLATFORM)
    return spacetime(timeline, chain, PLATFORM).element()


# A step is 808 / 4 = 202 wide and a line 18 high; the first has its middle at 38 + 9.
X = [136, 338, 540, 742, 944]
Y = [47, 65, 83, 101, 119, 137]


def test_arrows_lie_where_their_steps_and_sweeps_are() -> None:
    root = drawn(SMALL)
    assert [d for _, d in shapes(root, "line move advance")] == [
        f"M{X[0]} {Y[0]}H{X[2]}",
        f"M{X[2]} {Y[0]}H{X[3]}",
    ]
    assert [d for _, d in shapes(root, "line move thick record")] == [
        f"M{X[3]} {Y[0]}H{X[4]}",
        f"M{X[2]} {Y[2]}H{X[3]}",
        f"M{X[0]} {Y[4]}H{X[2]}",
    ]
    assert [d for _, d in shapes(root, "line move reverse")] == [
        f"M{X[4]} {Y[1]}H{X[3]}",
        f"M{X[3]} {Y[3]}H{X[2]}",
        f"M{X[2]} {Y[5]}H{X[0]}",
    ]
    titles = [title for title, _ in shapes(root, "line move reverse")]
    assert titles[0] == "reverse step 3\n4.5 s to 7 s: 2.5 s"


def test_heads_point_the_way_of_the_arrow() -> None:
    root = drawn(SMALL)
    # A mark has a radius of 4.5; heads are 0.7 of that.
    assert shapes(root, "line move tip to-right advance")[0][1] == "M536.9 43.9L540 47L536.9 50.1"
    assert shapes(root, "line move tip to-left reverse")[0][1] == "M745.1 61.9L742 65L745.1 68.2"


def test_crosses_are_those_of_their_levels_and_boxed_where_they_are_read() -> None:
    root = drawn(SMALL)
    ram, disk = (
        [s for verb in ("write", "read") for s in shapes(root, f"line mark {verb} level{k} point")]
        for k in (0, 1)
    )
    falling_and_rising = "M{0} {2}L{1} {3}M{0} {3}L{1} {2}"
    assert ram[0][1] == falling_and_rising.format(535.5, 544.5, 42.5, 51.5)
    assert ram[1][1].startswith(falling_and_rising.format(535.5, 544.5, 78.5, 87.5))
    assert ram[1][1].count("M") == 6  # and a box
    assert disk[0][1] == "M130.6 47L141.4 47M136 41.6L136 52.4"
    assert [title for title, _ in ram] == [
        "write x_2, 10 B\nto ram, 2 s to 2 s: 0 s",
        "read x_2, 10 B\nfrom ram, 7 s to 7 s: 0 s",
    ]
    assert [title.split("\n")[0] for title, _ in disk] == ["write x_0, 10 B", "read x_0, 10 B"]


def test_a_tape_is_a_bar_with_two_ends_in_its_step() -> None:
    root = drawn(SMALL)
    bars = shapes(root, "line mark write level0") + shapes(root, "line mark read level0")
    # Around 641, the middle of step 2; 0.3 of a line below the arrow.
    assert bars[0][1] == "M560.2 88.4L721.8 88.4M560.2 84.8L560.2 92M721.8 84.8L721.8 92"
    assert [title.split(",")[0] for title, _ in bars if title] == ["write t_2", "read t_2"]


def test_what_is_stored_has_a_line_as_long_as_it_is() -> None:
    root = drawn(SMALL)
    assert shapes(root, "line stay stored level1") == [
        ("x_0 on disk\n0 s to 11 s", f"M{X[0]} {Y[0]}V{Y[4]}")
    ]
    assert [d for _, d in shapes(root, "line stay stored level0")] == [
        f"M{X[2]} {Y[0]}V{Y[2]}",
        "M641 88.4V106.4",
    ]


def labels(root: str) -> list[tuple[float, float, str | None]]:
    return [
        (float(each.get("x", "")), float(each.get("y", "")), each.text)
        for each in ElementTree.fromstring(root).iter(f"{SVG}text")
    ]


def test_axes_say_steps_above_and_at_the_left_sweeps_and_when_they_begin() -> None:
    texts = labels(drawn(SMALL))
    for k in range(4):
        assert (X[k], 32.0, str(k)) in texts
    assert (RIGHT, 32.0, "step") in texts
    assert (0.0, 32.0, "start (s)") in texts
    assert [words for x, _, words in texts if x == LEFT - 8] == ["sweep", *"123456"]
    times = [(y, words) for x, y, words in texts if x == BEGINS]
    assert times == [
        (y + 4, t) for y, t in zip(Y, ("0", "4.5", "7", "8.5", "11", "14"), strict=True)
    ]


@pytest.mark.parametrize(("late", "label"), [(1e-5, "0"), (0.5, "0.5")])
def test_a_first_time_below_a_thousandth_of_the_makespan_is_labelled_zero(
    late: float, label: str
) -> None:
    first = in_sequence(Schedule(CHAIN, SMALL), PLATFORM)
    timeline = Timeline(first.actions, first.start + late, first.stop + late, first.nbytes)
    texts = labels(spacetime(timeline, CHAIN, PLATFORM).element())
    assert next(words for x, _, words in texts if x == BEGINS) == label


def test_many_sweeps_have_round_numbers_and_short_times() -> None:
    timeline = long(10_000, CHAIN, PLATFORM)
    texts = labels(spacetime(timeline, CHAIN.with_steps(10_000), PLATFORM).element())
    numbers = [words or "" for x, _, words in texts if x == LEFT - 8][1:]
    first, second = (int(words.replace(",", "")) for words in numbers[:2])
    assert str(first).rstrip("0") in ("1", "2", "5")
    assert second == 2 * first
    times = [words or "" for x, _, words in texts if x == BEGINS]
    assert len(times) == len(numbers) > 5
    assert all(len(words.replace(",", "").replace(".", "")) <= 5 for words in times)


def test_what_lay_there_from_the_start_and_what_stays_go_to_the_edges() -> None:
    root = drawn([Read(X2, 0), Record(2, 3), Write(Key(Kind.RESTART, 3), 1)])
    (before,), (stays,) = (shapes(root, f"line stay stored level{k}") for k in (0, 1))
    assert before[1] == "M540 38V56"
    assert stays[1] == "M742 47V56"


def test_nothing_and_one_step_have_a_picture() -> None:
    assert shapes(drawn([]), "line move advance") == []
    chain = CHAIN.with_steps(1)
    root = drawn([Record(0, 1), Reverse(0, 1)], chain)
    assert shapes(root, "line move thick record")[0][1] == f"M{LEFT} {Y[0]}H{RIGHT}"
    assert shapes(root, "line move reverse")[0][1] == f"M{RIGHT} {Y[1]}H{LEFT}"


def test_many_sweeps_share_lines_and_many_steps_share_columns() -> None:
    timeline = long(10_000, CHAIN, PLATFORM)
    root = spacetime(timeline, CHAIN.with_steps(10_000), PLATFORM).element()
    ((title, d),) = shapes(root, "line move advance")
    assert title == "10,000 × advance"
    strokes = re.findall(r"M(\d+) ([\d.]+)H(\d+)", d)
    # The forward alone, once over all columns and down all lines.
    assert (int(strokes[0][0]), int(strokes[-1][2])) == (LEFT, RIGHT)
    assert len({y for _, y, _ in strokes}) <= MOST
    for before, after in pairwise(strokes):
        assert int(after[0]) - int(before[2]) in (0, -1)
    assert len(strokes) <= STROKES
    words = [each.text or "" for each in ElementTree.fromstring(root).iter(f"{SVG}text")]
    assert any(re.fullmatch(r"one line is \d+ of [\d,]+ sweeps", w) for w in words)


def test_a_long_schedule_has_a_small_picture() -> None:
    timeline = long(100_000, CHAIN, PLATFORM)
    assert len(spacetime(timeline, CHAIN.with_steps(100_000), PLATFORM).element()) < 500_000
