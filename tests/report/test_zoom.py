"""What the page's script does, in a browser: it reads off, zooms in and comes back."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from browsing import tried

from ckio.actions import Advance, Key, Kind, Read, Record, Reverse, Write
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.report.document import SCRIPT
from ckio.report.page import page
from ckio.report.pictures.svg import COLUMNS, LEFT
from ckio.schedule import Schedule, seconds_of
from ckio.schedule.timeline import Timeline

X0 = Key(Kind.RESTART, 0)
CHAIN = Chain(steps=4, advance=5.0, record=5.0, reverse=20.0, restart=10, tape=7, adjoint=3)
PLATFORM = Platform((Level(name="ram"),))
SCHEDULE = Schedule(
    CHAIN,
    [
        *(Write(X0, 0), Advance(0, 3), Record(3, 4), Reverse(3, 4)),
        *(Read(X0, 0), Record(0, 3), Reverse(0, 3)),
    ],
)
STOP = np.cumsum(seconds_of(SCHEDULE, PLATFORM))  # 115 seconds in all
START = np.concatenate(([0.0], STOP))[:-1]
TIMELINE = Timeline(SCHEDULE.actions, START, STOP, CHAIN.nbytes_of(SCHEDULE.actions))
PAGE = page(title="zoom", facts=[], platform=PLATFORM, chain=CHAIN, predicted=TIMELINE)

TOOLS = """
const [steps, gantt, room, adjoint] = document.querySelectorAll("svg.picture");
const fire = (picture, type, at, more) => {
  const box = picture.getBoundingClientRect();
  const sort = type == "wheel" ? WheelEvent : type == "dblclick" ? MouseEvent : PointerEvent;
  picture.dispatchEvent(new sort(type, { bubbles: true, cancelable: true, button: 0,
    clientX: box.left + (box.width * (136 + 808 * at)) / 960, clientY: box.top + 30, ...more }));
};
const press = (picture, key) =>
  picture.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const view = (picture) => {
  const box = picture.querySelectorAll(".plot")[0].viewBox.baseVal;
  return [box.x, box.width].map((x) => Math.round(x * 10) / 10);
};
const ruler = (picture) => [...picture.querySelectorAll(".ruler text")].map(
  (text) => [text.textContent, Number(text.getAttribute("x"))]);
"""


def found(script: str, at: Path) -> list[object]:
    value = tried(PAGE, TOOLS + script, at)
    assert isinstance(value, list)
    return value


def test_dragging_across_a_picture_shows_that_part_in_all_with_time_across(tmp_path: Path) -> None:
    views, labels = found(
        """fire(gantt, "pointerdown", 0.5); fire(gantt, "pointermove", 0.25);
        fire(gantt, "pointerup", 0.25);
        say([[steps, gantt, room, adjoint].map(view), ruler(room)]);""",
        tmp_path,
    )
    part = [LEFT + COLUMNS * 0.25, COLUMNS * 0.25]
    assert views == [[LEFT, COLUMNS], part, part, part]
    # From 28.75 s to 57.5 s, a line every 5 seconds, each where its time is.
    assert [words for words, _ in labels] == ["30", "35", "40", "45", "50", "55"]
    for words, x in labels:
        assert x == pytest.approx(LEFT + COLUMNS * (float(words) - 28.75) / 28.75, abs=0.06)


def test_a_double_click_shows_all_again_as_it_was_drawn(tmp_path: Path) -> None:
    before, between, after = found(
        """const seen = () => [...document.querySelectorAll(".ruler")].map((g) => [
          g.firstElementChild.getAttribute("d"),
          ...[...g.querySelectorAll("text")].map((t) => [t.textContent, +t.getAttribute("x")])]);
        const before = seen();
        for (const picture of [steps, gantt]) { press(picture, "+"); press(picture, "ArrowLeft"); }
        const between = seen();
        fire(gantt, "dblclick", 0.5); fire(steps, "dblclick", 0.5);
        const tidy = (rulers) => rulers.map(([d, ...words]) => [d.replaceAll(".0 ", " "), words]);
        say([tidy(before), tidy(between), tidy(seen())]);""",
        tmp_path,
    )
    assert before == after != between


def test_the_pointer_reads_off_the_axis_and_shapes_say_what_they_are(tmp_path: Path) -> None:
    at_time, at_step, gone, title = found(
        """const hair = document.getElementById("hair"), words = [];
        fire(gantt, "pointermove", 0.5); words.push(hair.hidden ? "" : hair.textContent);
        press(gantt, "+");
        fire(steps, "pointermove", 0.6); words.push(hair.hidden ? "" : hair.textContent);
        fire(steps, "pointermove", -0.05); words.push(hair.hidden);
        press(gantt, "0");
        const bar = gantt.querySelector(".bar.reverse rect"), box = bar.getBoundingClientRect();
        const under = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
        words.push(under.querySelector("title").textContent);
        say(words);""",
        tmp_path,
    )
    assert at_time == "57.5 s"
    assert at_step == "step 2"
    assert gone is True
    assert title == "reverse step 3\n20 s to 40 s: 20 s"


def test_keys_and_the_wheel_zoom_move_and_stop_at_the_ends(tmp_path: Path) -> None:
    assert found(
        """const seen = [];
        const note = (...pairs) => pairs.forEach(([picture, key]) => press(picture, key)) ||
          seen.push(view(gantt));
        note([gantt, "+"]); note([room, "ArrowRight"]);
        note([gantt, "ArrowRight"], [gantt, "ArrowRight"]);
        note([gantt, "-"], [gantt, "-"]);
        fire(gantt, "wheel", 0, { ctrlKey: true, deltaY: -200 }); seen.push(view(gantt));
        fire(gantt, "wheel", 0, { shiftKey: true, deltaY: 1000 }); seen.push(view(gantt));
        fire(gantt, "wheel", 0, { deltaY: 1000 }); seen.push(view(gantt));
        for (let k = 0; k < 60; k++) press(gantt, "+");
        seen.push(document.querySelectorAll(".ruler")[1].querySelectorAll("text").length < 20);
        say(seen);""",
        tmp_path,
    ) == [
        *([338, 404], [439, 404], [540, 404], [136, 808]),
        *([136, 404], [540, 404], [540, 404], True),
    ]


def test_the_script_is_one_that_node_reads_too(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    (tmp_path / "script.js").write_text(SCRIPT, encoding="utf-8")
    subprocess.run([node, "--check", str(tmp_path / "script.js")], check=True, timeout=60)
