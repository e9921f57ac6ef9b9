"""How far are predictions from runs, on a machine whose load changes?

    python -m bench.intervals run FILE [--hours 2] [--runs 160]
    python -m bench.intervals record FILE      bench/results/intervals.txt

Calibrates two models once, and then runs each of them with three planners, synchronous and
overlapped, at moments that are spread over some hours. In every third run another process
computes, too. Each run adds a line to FILE, which is a history as ckio keeps it, so that a bench
that was stopped goes on.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import record
from ckio.jobs import history
from ckio.jobs.job import Job
from ckio.jobs.models import identity, maker, measured
from ckio.model import sizes_of
from ckio.platform import Level, Platform

MODELS = {"vorticity": ({"grid": 96}, 200), "wave": ({"grid": 96}, 200)}
PLANNERS = ("hrevolve", "mixed", "revolve")
POLICIES = ("none", "all")
SLOTS = (8, 40)
BURSTS = 20.0


def platform_of(model: str, place: Path) -> Platform:
    """Calibrate memory and a directory for a model."""
    settings, _ = MODELS[model]
    make = maker(model, settings)
    nbytes = sizes_of(make())["restart"]
    levels = (
        Level(name="ram", backend="ram", capacity=SLOTS[0] * nbytes),
        Level(
            name="disk",
            backend="directory",
            capacity=SLOTS[1] * nbytes,
            options={"path": str(place / model)},
        ),
    )
    return measured(levels, models={identity(model, settings): make}, seconds=BURSTS)


def run(file: Path, hours: float, count: int) -> None:
    """Run all cases in turns, at even distances in time."""
    os.environ["CKIO_HISTORY"] = str(file)
    done = len(history.read())
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        platforms = {model: platform_of(model, place) for model in MODELS}
        (file.with_suffix(".platforms")).mkdir(exist_ok=True)
        for model, platform in platforms.items():
            (file.with_suffix(".platforms") / f"{model}.toml").write_text(platform.dumps())
        cases = itertools.cycle(itertools.product(MODELS, PLANNERS, POLICIES))
        begun = time.monotonic()
        for number, (model, planner, policy) in zip(range(done, count), cases, strict=False):
            time.sleep(max(0.0, begun + (number - done) * hours * 3600 / count - time.monotonic()))
            settings, steps = MODELS[model]
            with _load(number % 3 == 0):
                Job(
                    place / f"run{number}",
                    model=model,
                    settings=settings,
                    steps=steps,
                    planner=planner,
                    overlap=policy,
                    platform=platforms[model],
                ).run()


@contextmanager
def _load(wanted: bool) -> Iterator[None]:
    """Let another process compute, for as long as the block lasts."""
    if not wanted:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            yield
        finally:
            child.kill()


def table(file: Path) -> str:
    """Return the errors of predictions, and how many runs are in the range of those before."""
    os.environ["CKIO_HISTORY"] = str(file)
    runs = history.read()
    errors = [abs(run.measured / run.predicted - 1) for run in runs]
    inside = []
    for number in range(len(runs) // 2, len(runs)):
        now = runs[number]
        kind = (now.model, now.host, now.overlap)
        past = [
            run.measured / run.predicted
            for run in runs[:number]
            if (run.model, run.host, run.overlap) == kind
        ][-history.RECENT :]
        inside.append(min(past) <= now.measured / now.predicted <= max(past))
    return (
        f"{len(runs)} runs in {file_hours(file):.1f} hours; the error of a prediction is"
        f" {statistics.median(errors):.1%} in the median, {max(errors):.0%} at worst; of"
        f" {len(inside)} later runs, {statistics.mean(inside):.0%} are in the range of the last"
        f" {history.RECENT} runs of their kind"
    )


def file_hours(file: Path) -> float:
    """Return the hours between the first run and the last."""
    times = [json.loads(line)["when"] for line in file.read_text().splitlines()]
    return (times[-1] - times[0]) / 3600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "record"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--runs", type=int, default=160)
    given = parser.parse_args()
    if given.command == "run":
        run(given.file, given.hours, given.runs)
    else:
        record.save("intervals", table(given.file))


if __name__ == "__main__":
    main()
