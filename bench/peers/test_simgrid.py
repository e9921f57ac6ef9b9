"""The simulators, against SimGrid's disks: each scenario is run by both, from one description.

SimGrid is another project's simulator of machines. Its disks share their bandwidth among all who
use them; its actors, in `simgrid_disks`, know nothing of ckio.
"""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.peers.simgrid_disks import Disk, Outcome, Scenario, Word
from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate
from ckio.sim.ranks import Ranks
from ckio.sim.ranks.sharing import simulate_ranks
from ckio.sim.ranks.spread import Quantiles

DRIVER = Path(__file__).with_name("simgrid_disks.py")

INSTALL = (
    "SimGrid is not installed: apt-get install --no-install-recommends python3-simgrid; the tests"
    " find it in /usr/bin/python3, or in the python that runs them"
)

CLOSE = 1e-12
"""As a part of the time. Sums are taken in other orders, and nothing else is different."""

SPANS: dict[str, type[Advance | Record | Reverse]] = {
    "advance": Advance,
    "record": Record,
    "reverse": Reverse,
}
ACCESSES: dict[str, type[Write | Read | Discard]] = {
    "write": Write,
    "read": Read,
    "discard": Discard,
}
GB = 10**9


@cache
def python() -> str | None:
    """An interpreter that has SimGrid: this one, or the system's."""
    for found in (sys.executable, "/usr/bin/python3"):
        asked = [found, "-c", "import simgrid"]
        if Path(found).exists():
            done = subprocess.run(asked, capture_output=True, check=False)
            if done.returncode == 0:
                return found
    return None


def by_simgrid(scenario: Scenario) -> Outcome:
    """What SimGrid makes of it; skips the test where there is none."""
    found = python()
    if found is None:
        pytest.skip(INSTALL)
    done = subprocess.run(
        [found, str(DRIVER)],
        input=scenario.dumps(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Outcome.loads(done.stdout.splitlines()[-1])


# --- The same scenario for ckio --------------------------------------------------------------


def platform(scenario: Scenario) -> Platform:
    """Memory without end that is free, and a level for each directory; a disk is a channel."""

    def level(name: str, device: str) -> Level:
        disk = scenario.disks[device]
        write, read = disk.write_alone or disk.write, disk.read_alone or disk.read
        return Level(
            name=name,
            backend="directory",
            channel=device,
            write=Affine(disk.latency, 1 / write),
            read=Affine(disk.latency, 1 / read),
        )

    levels = (level(*directory) for directory in scenario.levels.items())
    return Platform((Level(name="ram"), *levels))


def schedule(scenario: Scenario) -> Schedule:
    levels = {name: 1 + number for number, name in enumerate(scenario.levels)}

    def action(word: Word) -> Action:
        name, first, last = word
        if name in SPANS:
            return SPANS[name](first, int(last))
        return ACCESSES[name](Key(Kind.RESTART, first), levels[str(last)])

    steps = max(int(last) for name, _, last in scenario.program if name in SPANS)
    sizes = {"restart": scenario.nbytes, "tape": 1, "adjoint": 1}
    costs: dict[str, Any] = {**scenario.seconds, **sizes}
    return Schedule(Chain(steps=steps, **costs), map(action, scenario.program))


def by_ckio(scenario: Scenario) -> Timeline:
    overlap = Overlap(scenario.behind, scenario.ahead)
    return simulate(schedule(scenario), platform(scenario), overlap=overlap)


# --- Programs --------------------------------------------------------------------------------


def stretches(length: int, *lengths: int) -> list[tuple[int, int]]:
    """Steps from checkpoint to checkpoint: so many of ten, and others."""
    ends = np.cumsum([0, *[10] * length, *lengths]).tolist()
    return list(pairwise(ends))


def forward(spans: Iterable[tuple[int, int]], *levels: str) -> list[Word]:
    """Steps, and before each stretch a checkpoint on every level."""
    words: list[Word] = []
    for begin, end in spans:
        words += [("write", begin, level) for level in levels]
        words.append(("advance", begin, end))
    return words


def back(spans: list[tuple[int, int]], *levels: str) -> list[Word]:
    """Each stretch is recorded anew, and reversed; the levels are read in turn."""
    words: list[Word] = []
    for at, (begin, end) in enumerate(reversed(spans)):
        words.append(("read", begin, levels[at % len(levels)]))
        words += [("record", begin, end), ("reverse", begin, end)]
    return words


def moved(spans: Iterable[tuple[int, int]], source: str, target: str) -> list[Word]:
    """All checkpoints, from one level to the other."""
    words: list[Word] = []
    for begin, _ in spans:
        words += [("read", begin, source), ("write", begin, target), ("discard", begin, source)]
    return words


SECONDS = {"advance": 1.0, "record": 1.25, "reverse": 1.5}
NVME, ARCHIVE = Disk(read=2 * GB, write=1 * GB), Disk(read=0.2 * GB, write=0.15 * GB)
TEN = stretches(10)


def scenario(program: list[Word], disks: dict[str, Disk], *, behind: int, ahead: int) -> Scenario:
    """A disk has one directory, of its own name."""
    return Scenario(
        disks=disks,
        levels={name: name for name in disks},
        program=program,
        nbytes=4 * GB,
        seconds=SECONDS,
        behind=behind,
        ahead=ahead,
    )


THERE_AND_BACK = forward(TEN, "nvme") + back(TEN, "nvme")
MIGRATED = forward(TEN, "nvme") + moved(TEN, "nvme", "archive") + back(TEN, "archive")
TO_THE_ARCHIVE = forward(TEN, "archive") + back(TEN, "archive")
BOTH = {"nvme": NVME, "archive": ARCHIVE}

ONE_RANK = {
    "written synchronously": scenario(THERE_AND_BACK, {"nvme": NVME}, behind=0, ahead=0),
    "one write behind": scenario(THERE_AND_BACK, {"nvme": NVME}, behind=1, ahead=0),
    "moved to the archive": scenario(MIGRATED, BOTH, behind=0, ahead=0),
    "moved behind the program": scenario(MIGRATED, BOTH, behind=1, ahead=0),
    "a slow disk, one write behind": scenario(
        TO_THE_ARCHIVE, {"archive": ARCHIVE}, behind=1, ahead=0
    ),
    "a slow disk, four writes behind": scenario(
        TO_THE_ARCHIVE, {"archive": ARCHIVE}, behind=4, ahead=0
    ),
    "one read ahead": scenario(TO_THE_ARCHIVE, {"archive": ARCHIVE}, behind=0, ahead=1),
    "three reads ahead": scenario(TO_THE_ARCHIVE, {"archive": ARCHIVE}, behind=0, ahead=3),
}


@pytest.mark.parametrize("given", ONE_RANK.values(), ids=ONE_RANK)
def test_one_rank_does_everything_when_simgrid_says(given: Scenario) -> None:
    check_every_event(given)


def check_every_event(given: Scenario) -> Timeline:
    """Begin and end of all that the program does, and of every transfer behind it."""
    found, timeline = by_simgrid(given), by_ckio(given)
    assert len(timeline) == len(given.program)
    mine = np.stack((timeline.start, timeline.stop), axis=1)
    assert mine == pytest.approx(np.array(found.program[0]), rel=CLOSE, abs=CLOSE)
    if given.behind or given.ahead:
        transfers = [event for event in timeline.transfers if not isinstance(event.action, Discard)]
        ends = sorted((event.start, event.stop) for event in transfers)
        theirs = np.array(sorted(found.transfers[0].values()))
        assert np.array(ends) == pytest.approx(theirs, rel=CLOSE, abs=CLOSE)
    return timeline


# --- Contention: two directories on one disk -------------------------------------------------

LAST_IS_LONG = stretches(9, 30)
MIRRORED = Scenario(
    disks={"disk": Disk(read=1 * GB, write=0.5 * GB)},
    levels={"here": "disk", "mirror": "disk"},
    program=forward(LAST_IS_LONG, "here", "mirror") + back(LAST_IS_LONG, "here", "mirror"),
    nbytes=4 * GB,
    seconds=SECONDS,
    behind=2,
)
"""Every checkpoint is written to both; that takes longer than ten steps, not than thirty."""


def test_two_directories_on_one_disk_take_turns_as_actors_with_a_mutex_do() -> None:
    timeline = check_every_event(MIRRORED)
    written = [event for event in timeline if isinstance(event.action, Write)]
    assert any(event.stop > event.start for event in written), "the program waits for the disk"


# --- Contention: many ranks and one archive --------------------------------------------------

FIVE = stretches(5)
STRAGGLERS = Quantiles((1, 1, 1.01, 1.2, 2))

crowds = pytest.mark.parametrize(
    ("count", "bandwidth"),
    [(2, 0.25), (7, 1.0), pytest.param(40, 3.0, marks=pytest.mark.slow)],
)
"""How many, and the GB/s of the archive that they share."""

limits = pytest.mark.parametrize(
    ("read_alone", "write_alone"),
    [(0.0, 0.0), (0.3, 0.3), (0.5, 0.15)],
    ids=["no limit for one", "a limit for one", "a limit for reading, another for writing"],
)
"""GB/s of one rank alone."""


def check_ranks(given: Scenario, count: int) -> None:
    """The same end for each of so many ranks that share the archive, some of them slower."""
    shared = {"archive": given.disks["archive"].write}
    ranks = Ranks(count=count, shared=shared, spread=STRAGGLERS, seed=count)
    given = replace(given, factors=ranks.factors().tolist())
    outcome = simulate_ranks(
        schedule(given), platform(given), ranks, overlap=Overlap(given.behind, given.ahead)
    )
    ends = np.array([spans[-1][1] for spans in by_simgrid(given).program])
    assert outcome.finish == pytest.approx(ends, rel=CLOSE)
    assert outcome.groups > 1
    assert outcome.channels["archive"].most > 1
    assert outcome.channels["archive"].slowed.max() > 0


def crowded(bandwidth: float, read_alone: float, write_alone: float) -> Disk:
    """An archive whose reads and writes share one bandwidth, each client with limits of its own."""
    return Disk(
        read=bandwidth * GB,
        write=bandwidth * GB,
        shared=True,
        read_alone=read_alone * GB,
        write_alone=write_alone * GB,
        latency=0.5,
    )


@limits
@crowds
@pytest.mark.parametrize("behind", [0, 1, 3])
def test_ranks_that_share_an_archive_end_when_simgrid_says(
    count: int, bandwidth: float, read_alone: float, write_alone: float, behind: int
) -> None:
    program = forward(FIVE, "nvme", "archive") + back(FIVE, "archive", "nvme")
    disks = {"nvme": NVME, "archive": crowded(bandwidth, read_alone, write_alone)}
    check_ranks(scenario(program, disks, behind=behind, ahead=0), count)


@limits
@crowds
@pytest.mark.parametrize("ahead", [1, 2])
def test_ranks_that_read_ahead_from_an_archive_end_when_simgrid_says(
    count: int, bandwidth: float, read_alone: float, write_alone: float, ahead: int
) -> None:
    program = forward(FIVE, "archive") + back(FIVE, "archive")
    disks = {"archive": crowded(bandwidth, read_alone, write_alone)}
    check_ranks(scenario(program, disks, behind=0, ahead=ahead), count)
