"""What failures do to a run, by options; and real runs, killed where the simulated ones are."""

import platform as host
import random
import re
import shutil
from math import inf, sqrt
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from cli.commands import answer, ckio, complaint
from cli.resumable import STEPS, place, words

from ckio.actions.columns import RECORD, REVERSE
from ckio.adapters.registry import find
from ckio.jobs import history
from ckio.jobs.failing import planned
from ckio.jobs.history import PastRun
from ckio.jobs.planning import Planning
from ckio.planners.dp import hrevolve
from ckio.platform import Platform
from ckio.platform.chain import COSTS as COST_NAMES
from ckio.platform.chain import Chain
from ckio.platform.readable import seconds_text
from ckio.schedule import makespan, seconds_of
from ckio.schedule.text import loads
from ckio.sim.failures import Book, Failure, Life, Moment, Trajectory, trajectory

NODE = """
[[level]]
name = "ram"
capacity = 300
[[level]]
name = "nvme"
capacity = 1000
write = {latency = 2.0}
read = {latency = 1.0}
backend = "directory"
options = {path = "nvme"}
[[level]]
name = "archive"
capacity = 1000
write = {latency = 8.0}
read = {latency = 4.0}
backend = "hdf5"
options = {path = "archive.h5"}
"""
COSTS = "--steps 16 --restart 100 --tape 100 --adjoint 100 --advance 1 --record 1 --reverse 2"
RESTART = 1.0
CHAIN = Chain(steps=16, advance=1, record=1, reverse=2, restart=100, tape=100, adjoint=100)


def line(at: Path, options: str, *, node: str = NODE) -> list[str]:
    """The command, for this machine."""
    (at / "node.toml").write_text(node)
    planner = "" if "--planner" in options else "--planner hrevolve"
    return f"failures --platform node.toml {COSTS} {planner} {options}".split()


def said(at: Path, options: str, *, node: str = NODE) -> str:
    """What the command prints."""
    return ckio(*line(at, options, node=node), at=at).stdout


def told(at: Path, options: str, *, node: str = NODE) -> dict[str, Any]:
    return answer(*line(at, options, node=node), at=at)


@pytest.mark.slow
def test_intervals_around_dalys_are_tried_and_the_best_is_told(tmp_path: Path) -> None:
    options = "--mtbf 40 --restart-time 5 --trajectories 20"
    found, table = told(tmp_path, options), said(tmp_path, options)
    assert (found["planner"], found["steps"], found["mtbf"]) == ("hrevolve", 16, 40.0)
    assert found["level"] == "nvme"
    assert found["young"] == sqrt(2 * 2 * 40)
    every = [one["every"] for one in found["intervals"]]
    assert every == pytest.approx([found["daly"] * 2.0**k for k in range(-2, 3)])
    least = min(found["intervals"], key=lambda one: one["expected"])
    assert found["best"] == least["every"]
    adjoints = [one["adjoints"] for one in found["intervals"]]
    assert adjoints == sorted(adjoints, reverse=True)
    rows = [row for row in table.splitlines() if re.search(r"\.\d%$", row)]
    for one, row in zip(found["intervals"], rows, strict=True):
        assert one["trajectories"] == 20
        assert list(one["quantiles"]) == ["10%", "50%", "90%", "99%"]
        assert one["planned"] <= one["quantiles"]["10%"] <= one["expected"] + 9 * one["error"]
        assert one["failures"] > 0
        assert f"  {one['expected']:.6g}  " in row
        assert row.endswith(f" {one['redone']:.1%}")
    assert (
        f"best of these: the adjoint is stored every {seconds_text(found['best'])} on nvme" in table
    )
    assert table.startswith(
        "hrevolve, 16 steps; one failure in 40 s on average; 20 simulated runs;"
    )
    assert told(tmp_path, options) == found
    other = told(tmp_path, f"{options} --seed 1")
    assert other["intervals"][0]["expected"] != found["intervals"][0]["expected"]


@pytest.mark.slow
def test_a_lost_node_takes_its_levels_with_it(tmp_path: Path) -> None:
    options = "--every 20s --trajectories 20"
    killed = told(tmp_path, f"--mtbf 60 {options}")
    lost = told(tmp_path, f"--node-mtbf 60 --node-level nvme {options}")
    assert told(tmp_path, f"--node-mtbf 60 {options}") == killed
    assert lost["intervals"][0]["redone"] > killed["intervals"][0]["redone"]
    both = told(tmp_path, f"--mtbf 60 --node-mtbf 30 {options}")
    assert both["mtbf"] == pytest.approx(20.0)


def test_of_intervals_that_store_no_adjoint_one_is_enough(tmp_path: Path) -> None:
    """The run takes some 80 s: Daly's interval is longer, and so are those beyond it."""
    found = told(tmp_path, "--mtbf 2000 --trajectories 5")
    assert found["daly"] > found["intervals"][-1]["planned"]
    assert [one["adjoints"] for one in found["intervals"]][-2:] == [1, 0]
    assert found["intervals"][-1]["every"] == found["daly"]
    often = told(tmp_path, "--mtbf 80 --trajectories 5")
    assert [one["adjoints"] for one in often["intervals"]].count(0) == 1
    assert often["intervals"][-1]["every"] > often["daly"]


def test_a_trace_is_replayed_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("20\n0m45s node\n400 process\n")
    options = "--failures trace --every 20s --restart-time 5"
    (one,) = told(tmp_path, f"{options} --node-level nvme")["intervals"]
    assert (one["failures"], one["trajectories"], one["error"]) == (2.0, 1, None)
    assert len(set(one["quantiles"].values())) == 1
    plan = Planning("hrevolve", CHAIN, Platform.loads(NODE), hrevolve)
    plans, _ = planned(plan, every=20.0)
    kinds = [Failure(survive=frozenset(kept), restart=5.0) for kept in ({1, 2}, {2})]
    moments = list(zip((20.0, 45.0), kinds, strict=True))
    assert one["expected"] == trajectory(Book(plans, plan.platform), moments).makespan
    somewhere = told(tmp_path, f"{options} --trajectories 10")["intervals"][0]
    assert somewhere["trajectories"] == 10
    assert somewhere["error"] > 0
    assert "one failure in 133.3 s on average; 1 simulated run;" in (
        once := said(tmp_path, options)
    )
    assert "50%" not in once


def test_a_trace_may_be_empty_or_as_programs_write_numbers(tmp_path: Path) -> None:
    def replayed(text: str, options: str = "--every 20s") -> dict[str, Any]:
        (tmp_path / "trace").write_text(text)
        return told(tmp_path, f"--failures trace {options}")

    found = replayed("# a good week\n", "")
    assert (found["mtbf"], found["daly"], found["young"]) == (None, None, None)
    (one,) = found["intervals"]
    assert (one["every"], one["adjoints"]) == (None, 0)
    assert one["expected"] == one["planned"]
    assert "no failures; 1 simulated run;" in said(tmp_path, "--failures trace")
    (one,) = replayed("0\n", "")["intervals"]
    assert one["failures"] == 1
    # At the start, at one instant, and long after the end.
    (one,) = replayed("0\n2.000000000000000000e+01\n20 node\n1e9\n")["intervals"]
    assert [one] == replayed("0.0\n20s\n0m20s node\n300000d\n")["intervals"]
    assert one["failures"] == 3


def test_where_nothing_survives_every_failure_is_a_new_start(tmp_path: Path) -> None:
    volatile = NODE.split('[[level]]\nname = "nvme"', maxsplit=1)[0].replace("300", "800")
    options = "--mtbf 100 --trajectories 20"
    found = told(tmp_path, options, node=volatile)
    assert (found["level"], found["daly"], found["young"]) == (None, None, None)
    (one,) = found["intervals"]
    assert one["adjoints"] == 0
    assert one["expected"] > one["planned"]
    text = said(tmp_path, options, node=volatile)
    assert "the adjoint is not stored: no durable level" in text


REFUSED = {
    "": "the failures of the run are not given; give --mtbf TIME, --node-mtbf TIME, or",
    "--seed 3": "the failures of the run are not given",
    "--mtbf 1d --node-level nvme": "give the mean time between such losses by --node-mtbf",
    "--node-mtbf 1d --node-level disk": "no level is named 'disk'",
    "--mtbf 1d --failures trace": "leave out --mtbf",
    "--failures no-such-file": "no-such-file",
    "--failures trace --seed 3": "give --trajectories",
    "--failures nothing --trajectories 3": "nothing: a trace in which runs start at random times",
    "--failures trace": "trace: line 2: 'soon' is not a time",
    "--mtbf 0.001": "after 10000 failures",
    "--mtbf 0": "'0' is not a time",
    "--mtbf nan": "'nan' is not a time",
    "--node-mtbf=-1": "'-1' is not a time",
    "--restart-time 1e99 --mtbf 1d": "'1e99' is not a time",
    "--mtbf 1d --every 0": "'0' is not a time",
    "--mtbf 1d --trajectories 0": "0 is not in the range",
    "--mtbf 1d --trajectories 10000000": "10000000 is not in the range",
    "--mtbf 1d --seed -1": "-1 is not in the range",
    "--mtbf 1d --planner overlapped": "simulated without it; choose another",
    "--mtbf 1d --planner unheard-of": "unheard-of",
}


def test_what_does_not_fit_together_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("20\nsoon\n")
    (tmp_path / "nothing").write_text("")
    for options, says in REFUSED.items():
        for more in ((), ("--json",)):
            assert says in complaint(*line(tmp_path, options), *more, at=tmp_path)
    for time in ("-5", "nan", "1e400"):
        (tmp_path / "trace").write_text(f"20\n{time}\n")
        words = line(tmp_path, "--failures trace")
        assert f"trace: line 2: '{time}' is not a time" in complaint(*words, at=tmp_path)


# ---- real runs


def place_for(at: Path, planner: str) -> Path:
    """A place to run in; with tapes, one where it is mostly best to take up what was killed."""
    node = place(at) / "node.toml"
    if planner == "mixed":
        larger = node.read_text().replace("capacity = 9000", "capacity = 14000")
        node.write_text(f"working_memory = 8192\n{larger}")
    return at


def plan_at(at: Path, planner: str) -> Planning:
    """The plan of the run that is made there."""
    platform = Platform.loads((at / "node.toml").read_text())
    chain = platform.models["ocean:growth"].with_steps(STEPS)
    return Planning(planner, chain, platform, find("planners", planner))


def instant(life: Life, platform: Platform, what: str, number: int) -> float:
    """When a life is in the middle of so many-th step forward, or back; infinite if never.

    Or when its process is born, which is before it reads anything.
    """
    if what == "born":
        return life.begin + RESTART / 2
    actions, costs = life.schedule.actions, seconds_of(life.schedule, platform)
    these = actions.op == REVERSE if what == "adjoint" else actions.op <= RECORD
    counted = np.cumsum(np.where(these, actions.end - actions.begin, 0))
    row = int(np.searchsorted(counted, number))
    if row == len(counted):
        return inf
    ahead = counted[row] - number + 0.5  # a step takes a second
    return life.work + float(np.cumsum(costs)[row]) - float(ahead)


def steps_of(run: Trajectory, platform: Platform) -> tuple[int, int]:
    """Steps forward and back that were complete, in all processes of a run."""
    forward, back = 0.0, 0.0
    for life in run.lives:
        actions, until = life.schedule.actions, np.cumsum(seconds_of(life.schedule, platform))
        share = np.zeros(len(actions))
        share[: life.done] = 1
        steps = (actions.end - actions.begin) * share
        if life.failure is not None and life.end >= life.work and actions.op[life.done] <= REVERSE:
            before = until[life.done - 1] if life.done else 0.0
            steps[life.done] = int(life.end - life.work - before)
        forward += steps[actions.op <= RECORD].sum()
        back += steps[actions.op == REVERSE].sum()
    return int(forward), int(back)


def check_killed(
    at: Path, patch: pytest.MonkeyPatch, planner: str, kills: list[tuple[str, int, bool]]
) -> Trajectory:
    """Kill a run in the middle of these steps, some with their node; hold it against the simulator.

    The plans of all processes are the same, and so are the steps that they do.
    """
    plan = plan_at(at, planner)
    line = words("--resume", "--planner", planner)
    plans, _ = planned(plan, every=8.0)
    book, moments = Book(plans, plan.platform), list[Moment]()
    run = trajectory(book, moments)
    patch.setenv("WORK", str(at / "work"))
    for what, number, node in kills:
        when = instant(run.lives[-1], plan.platform, what, number)
        with patch.context() as here:
            here.setenv("KILL", f"{what}:{number}")
            done = ckio(*line, at=at, status=ANY)
        assert done.returncode == (0 if when == inf else -9), done.stderr
        if when == inf:
            break
        if node:
            shutil.rmtree(at / "ck", ignore_errors=True)
        failure = Failure(survive=frozenset() if node else frozenset({1}), restart=RESTART)
        moments.append((when, failure))
        run = trajectory(book, moments)
    ckio(*line, at=at)
    lives = [life for life in run.lives if life.end >= life.work]  # others have no plan yet
    written = [at / "run" / f"schedule-{number}.txt" for number in range(1, len(lives))]
    files = [*written, at / "run" / "schedule.txt"]
    assert not (at / "run" / f"schedule-{len(files)}.txt").exists()
    for life, file in zip(lives, files, strict=True):
        really = loads(file.read_text()).schedule
        assert really.actions == life.schedule.actions
        assert really.stored == life.schedule.stored
    log = (at / "work").read_text()
    assert (log.count("s"), log.count("a")) == steps_of(run, plan.platform)
    return run


@pytest.mark.campaign
@pytest.mark.parametrize("planner", ["hrevolve", "mixed"])
def test_a_run_that_is_really_killed_does_what_the_simulated_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planner: str
) -> None:
    kills = [("step", 30, False), ("adjoint", 17, False), ("born", 1, False), ("step", 25, True)]
    kills += [("born", 1, True), ("adjoint", 3, False)]
    run = check_killed(place_for(tmp_path, planner), monkeypatch, planner, kills)
    assert run.failures == len(kills)
    assert run.redone > 0
    platform = plan_at(tmp_path, planner).platform
    forward, back = steps_of(run, platform)
    assert back > STEPS
    assert forward > makespan(run.lives[0].schedule, platform) - back


@pytest.mark.slow
def test_however_a_run_is_killed_it_does_what_the_simulated_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(25):
        draw = random.Random(seed)
        kills = [
            (draw.choice(["step", "adjoint"]), draw.randint(1, 40), draw.random() < 0.2)
            for _ in range(draw.randint(1, 5))
        ]
        for at_kill in draw.sample(range(1, len(kills) + 1), draw.randint(0, 1)):
            kills.insert(at_kill, ("born", 1, draw.random() < 0.2))
        planner = draw.choice(["hrevolve", "mixed"])
        at = place_for(tmp_path / f"{seed}", planner)
        check_killed(at, monkeypatch, planner, kills)


def test_the_range_of_earlier_runs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKIO_HISTORY", str(tmp_path / "history.jsonl"))
    for ratio in (1.0, 1.1, 1.2):
        history.append(PastRun("ocean", host.node(), False, predicted=50.0, measured=50.0 * ratio))
    costs = {name: getattr(CHAIN, name) for name in COST_NAMES}
    lines = "\n".join(f"{name} = {value}" for name, value in costs.items())
    (tmp_path / "node.toml").write_text(f"{NODE}\n[models.ocean]\n{lines}\n")
    asked = "--platform node.toml --model ocean --steps 16 --planner hrevolve --mtbf 1h"
    figures = answer("failures", *asked.split(), "--trajectories", "2", at=tmp_path)
    assert figures["earlier"] == {"low": 1.0, "high": pytest.approx(1.2), "runs": 3}
