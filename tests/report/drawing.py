"""What the tests of pictures share: timelines in which nothing overlaps, and shapes by class."""

from xml.etree import ElementTree

import numpy as np

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import Actions
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, seconds_of
from ckio.schedule.timeline import Timeline

SVG = "{http://www.w3.org/2000/svg}"


def in_sequence(schedule: Schedule, platform: Platform, *, slower: float = 1.0) -> Timeline:
    """One action after the other."""
    stop = np.cumsum(slower * seconds_of(schedule, platform))
    start = np.concatenate(([0.0], stop))[: len(stop)]
    return Timeline(schedule.actions, start, stop, schedule.chain.nbytes_of(schedule.actions))


def repeated(count: int) -> Actions:
    """So many times: write, advance, read, discard."""
    step = np.arange(count, dtype=np.int64)
    return Actions(
        op=np.tile(np.array([3, 0, 4, 5], np.uint8), count),
        begin=np.repeat(step, 4),
        end=np.stack((0 * step, step + 1, 0 * step, 0 * step), axis=1).ravel(),
        level=np.tile(np.array([1, 0, 1, 1], np.int16), count),
    )


def halving(steps: int, levels: int) -> list[Action]:
    """x_begin lies on a level until the upper half is reversed, then the lower half follows."""
    actions: list[Action] = []

    def reverse(begin: int, end: int, depth: int) -> None:
        if end == begin + 1:
            actions.extend((Record(begin, end), Reverse(begin, end)))
            return
        middle, key, level = (begin + end) // 2, Key(Kind.RESTART, begin), depth % levels
        actions.extend((Write(key, level), Advance(begin, middle)))
        reverse(middle, end, depth + 1)
        actions.extend((Read(key, level), Discard(key, level)))
        reverse(begin, middle, depth + 1)

    reverse(0, steps, 0)
    return actions


def long(count: int, chain: Chain, platform: Platform) -> Timeline:
    return in_sequence(Schedule(chain.with_steps(count), repeated(count)), platform)


def groups(picture: str, css: str) -> list[ElementTree.Element]:
    """The groups of shapes whose class begins so."""
    root = ElementTree.fromstring(picture)
    return [g for g in root.iter(f"{SVG}g") if (g.get("class") or "").startswith(css)]


def shapes(picture: str, css: str) -> list[tuple[str, str]]:
    """(title, path) of the shapes of one class in the plot."""
    return [
        (path.findtext(f"{SVG}title") or "", path.get("d", ""))
        for g in ElementTree.fromstring(picture).findall(f"{SVG}svg/{SVG}g")
        if g.get("class") == css
        for path in g.iter(f"{SVG}path")
    ]
