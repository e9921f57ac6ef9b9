"""Runs that are killed and resumed: a model that kills its own process where it is told to."""

import contextlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli.commands import answer, ckio

from ckio.actions import Kind
from ckio.backends.contents import Stored
from ckio.jobs import leftovers
from ckio.schedule import makespan
from ckio.schedule.text import loads

MODEL = '''\
import os
import signal
import threading
import time
import numpy as np
from ckio import ArrayModel

told = os.environ.get("KILL", "never:0").split(":")
what, at, number, delay = told + ["9", "0"][len(told) - 2 :]
log = os.environ.get("WORK")
counts = {}


def kill():
    os.kill(os.getpid(), int(number))
    if then := os.environ.get("THEN"):  # and a second one, while the first is seen to
        threading.Timer(float(then), os.kill, (os.getpid(), 9)).start()


def moment(name):
    """A moment of the run: so many steps forward, adjoint steps, dumps, looks at the gradient."""
    counts[name] = counts.get(name, 0) + 1
    if name == what and counts[name] == int(at):
        threading.Timer(float(delay), kill).start() if float(delay) else kill()


class Growth(ArrayModel):
    def step(self, state, i):
        self.work("step")
        x, rate = state["x"], self.control["rate"]
        state["J"] += (x**2).sum()
        x *= 1 + rate * (1 - x)

    def adjoint_step(self, adjoint, tape, i):
        self.work("adjoint")
        x, rate = tape["x"], self.control["rate"]
        self.gradient["rate"] += (x * (1 - x) * adjoint["x"]).sum()
        adjoint["x"] *= 1 + rate * (1 - 2 * x)
        adjoint["x"] += 2 * x * adjoint["J"]

    def work(self, name):
        if name == "step" and "first" not in counts:
            counts["first"] = 1  # the step of a model that is only compared with that of the run
            return
        moment(name)
        time.sleep(float(os.environ.get("PAUSE", 0)))
        if log:
            with open(log, "a") as file:
                file.write(name[0])

    def dump(self, key):
        moment("dump")
        return super().dump(key)

    @property
    def functional(self):
        moment("functional")
        return super().functional


def growth(rate=float(os.environ.get("RATE", 0.3))):
    moment("born")
    x = np.linspace(0.1, 0.4, 512)
    return Growth({"x": x, "J": 0.0}, control={"x": x, "rate": rate}, tape=["x"])
'''

STEPS = 40
RESUME = ("run", "ocean:growth", "--resume", "--into", "run")

COSTS = """
[models."ocean:growth"]
advance = 1.0
record = 1.0
reverse = 1.0
restart = 4104
tape = 4096
adjoint = 8216
"""

FAR = {
    "directory": 'backend = "directory"\noptions = {path = "ck"}',
    "hdf5": 'backend = "hdf5"\noptions = {path = "ck/a.h5"}',
    "zstd": 'backend = "directory"\nratio = 1.1\noptions = {path = "ck", codec = "zstd"}',
}


def place(
    at: Path, far: str = "directory", *, capacity: int = 48_000, tapes: int | None = None
) -> Path:
    """A place to run in: with the model, and a machine of memory and one durable level.

    The working memory has room for so many steps' tapes, or for all.
    """
    at.mkdir(exist_ok=True)
    (at / "ocean.py").write_text(MODEL)
    working = "" if tapes is None else f"working_memory = {4096 * tapes}\n"
    (at / "node.toml").write_text(
        f"{working}"
        '[[level]]\nname = "ram"\ncapacity = 9000\n'
        f'[[level]]\nname = "far"\ncapacity = {capacity}\nwrite = {{latency = 0.01}}\n'
        f"read = {{latency = 0.01}}\n{FAR[far]}\n{COSTS}"
    )
    return at


def words(*more: object, into: str = "run", steps: int | None = STEPS) -> tuple[object, ...]:
    """The line that begins a run, by hrevolve where nothing else says how it is planned."""
    begun = ["run", "ocean:growth", "--platform", "node.toml", "--into", into]
    if steps is not None:
        begun += ["--steps", str(steps)]
        begun += [] if {"--planner", "auto"} & {*map(str, more)} else ["--planner", "hrevolve"]
    return (*begun, "--every", "8s", *more)


def reference(tmp_path: Path, far: str = "directory") -> dict[str, Any]:
    """What an uninterrupted run says."""
    return answer(*words(), at=place(tmp_path / "reference", far))


def killed(
    patch: pytest.MonkeyPatch, at: Path, kill: str, *line: object, status: int = -9
) -> "str":
    """Run until the model kills its process; returns what was printed."""
    with patch.context() as here:
        here.setenv("KILL", kill)
        return ckio(*line, at=at, status=status).stdout


def work(at: Path) -> int:
    """Steps that were done by all processes that logged to the file `work` there."""
    path = at / "work"
    return path.stat().st_size if path.exists() else 0


def left(at: Path) -> list[Path]:
    """Files of levels."""
    return (
        [path for path in (at / "ck").rglob("*") if path.is_file()] if (at / "ck").exists() else []
    )


def planned(at: Path) -> float:
    """Seconds that the whole run was to take as it was first planned.

    A process that was killed before it had a plan has left none: then the next one made the first.
    """
    first, only = (at / "run" / name for name in ("schedule-1.txt", "schedule.txt"))
    found = loads((first if first.exists() else only).read_text())
    assert found.platform is not None
    return makespan(found.schedule, found.platform)


def bound(told: str) -> float:
    """Seconds that a kill costs at most, as the run said itself; 0 where it had nothing to say."""
    match = re.search(r"a kill costs about ([\d.]+) (s|ms) of work", told)
    return float(match[1]) * {"s": 1, "ms": 1e-3}[match[2]] if match else 0.0


def stored_in(at: Path) -> list[Stored]:
    """What lies on the durable level of the run there; all of it is to be sound."""
    with contextlib.chdir(at):
        (level,) = leftovers.find(at / "run")
    assert not level.damaged
    return [replace(it.stored, path=at / it.stored.path) for it in level.checkpoints]


def adjoints(at: Path) -> list[str]:
    """The adjoint checkpoints there."""
    return [str(item.key) for item in stored_in(at) if item.key.kind is Kind.ADJOINT]
