"""Does a run take what `simulate` says?

Calibrates once, on memory, a directory and an HDF5 archive with the checkpoints of the model, plans
five schedules, says what each will take, with and without overlap, and then runs them: in rounds,
each of which runs all, so that a slow moment of the machine does not fall on one schedule alone.
What a schedule took is the median of the rounds.

The noise of the machine is measured beside: in every round the same steps of the model, without any
checkpoint. Where that varies by more than a few per cent, nothing is said of the targets.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import record

from ckio.backends.base import Backend
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.calibrate import calibrate
from ckio.models.vorticity import Vorticity
from ckio.overlap import Overlap
from ckio.platforms import Platform
from ckio.registry import find
from ckio.report import compare
from ckio.runner import run
from ckio.schedule import Schedule
from ckio.sim.engine import simulate
from ckio.timeline import Timeline

ROUNDS = 3
MOST_IN_THE_MEDIAN, MOST = 0.05, 0.10
"""Of what was measured: how far predictions may be off, over all schedules and at the worst."""
NOISY = 0.03
"""Of the time of the same steps, from round to round: a machine on which nothing can be said."""

PLANNERS: Mapping[str, Mapping[str, str]] = {
    "hrevolve": {},
    "mixed": {},
    "multistage": {},
    "two-level": {"near": "ram", "far": "archive"},
    "revolve": {"on": "nvme"},
}
POLICIES = {"synchronous": Overlap(), "overlapped": Overlap(None, None)}


@dataclass(frozen=True)
class Subject:
    """A model with so many steps, and the slots of its levels."""

    name: str
    grid: int
    steps: int
    slots: tuple[int, int, int]

    def model(self) -> Vorticity:
        """A fresh one."""
        return Vorticity(grid=self.grid)


SUBJECTS = (
    Subject("the demo's model", 128, 300, (6, 60, 60)),
    Subject("a state of 64 MiB", 1448, 10, (2, 8, 8)),
)


@dataclass(frozen=True)
class Case:
    """One schedule and one policy: what was said, and what came of it."""

    planner: str
    policy: str
    schedule: Schedule
    predicted: Timeline
    measured: list[Timeline]

    @property
    def median(self) -> Timeline:
        """The run whose makespan is the median of all."""
        by_makespan = sorted(self.measured, key=lambda timeline: timeline.makespan)
        return by_makespan[len(by_makespan) // 2]

    @property
    def error(self) -> float:
        """How far the prediction is off, as a part of what was measured."""
        return compare(self.predicted, self.median).error

    @property
    def spread(self) -> float:
        """The distance between the slowest run and the fastest, as a part of the median."""
        spans = [timeline.makespan for timeline in self.measured]
        return (max(spans) - min(spans)) / self.median.makespan


def levels(place: Path, platform: Platform | None = None) -> dict[str, Backend]:
    """Memory, a directory and an archive, open and empty."""
    place.mkdir()
    capacities = [None] * 3 if platform is None else [it.capacity for it in platform.levels]
    ram, nvme, archive = capacities
    return {
        "ram": Ram(capacity=ram),
        "nvme": Directory(place / "nvme", capacity=nvme),
        "archive": Hdf5(place / "archive.h5", capacity=archive),
    }


def measured(
    schedule: Schedule, platform: Platform, subject: Subject, overlap: Overlap
) -> Timeline:
    """One run, on fresh levels."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        backends = levels(Path(folder) / "levels", platform)
        for backend in backends.values():
            ends.enter_context(closing(backend))
        return run(schedule, platform, subject.model(), [*backends.values()], overlap=overlap)


def known(subject: Subject) -> Platform:
    """The platform, calibrated with the model's checkpoints."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        backends = levels(Path(folder) / "levels")
        for backend in backends.values():
            ends.enter_context(closing(backend))
        platform = calibrate(backends, models={subject.name: subject.model})
    nbytes = platform.models[subject.name].restart
    capacities = [count * nbytes for count in subject.slots]
    return replace(
        platform,
        levels=tuple(
            replace(level, capacity=capacity, backend=kind)
            for level, capacity, kind in zip(
                platform.levels, capacities, ("ram", "directory", "hdf5"), strict=True
            )
        ),
    )


def cases(subject: Subject, platform: Platform) -> Iterator[Case]:
    """Every schedule with every policy, before any was run."""
    chain = replace(platform.models[subject.name], steps=subject.steps)
    for planner, options in PLANNERS.items():
        schedule = find("planners", planner)(chain, platform, **options)
        for policy, overlap in POLICIES.items():
            predicted = simulate(schedule, platform, overlap=overlap)
            yield Case(planner, policy, schedule, predicted, [])


def reference(subject: Subject) -> float:
    """Seconds of the same steps of the model, without any checkpoint."""
    model, steps = subject.model(), max(4, subject.steps // 2)
    model.advance(0, 1)
    start = time.perf_counter()
    model.advance(1, 1 + steps)
    return time.perf_counter() - start


def table(subject: Subject, rounds: int) -> str:
    """What was predicted and measured of one model."""
    platform = known(subject)
    given, steps = list(cases(subject, platform)), list[float]()
    for _ in range(rounds):
        for case in given:
            steps.append(reference(subject))
            overlap = POLICIES[case.policy]
            case.measured.append(measured(case.schedule, platform, subject, overlap))
    low, middle, high = statistics.quantiles(steps, n=4)
    nbytes = platform.models[subject.name].restart
    return (
        f"{subject.name}: {subject.steps} steps on {subject.grid} x {subject.grid} cells, restart"
        f" data of {nbytes / 2**20:.3g} MiB, {subject.slots} slots on"
        f" {', '.join(level.name for level in platform.levels)}\n\n"
        + record.columns(_HEADER, [_row(case) for case in given])
        + "\n\n"
        + verdict(given, (high - low) / middle)
    )


_HEADER = ["schedule", "", "predicted s", "measured s", "error", "spread", "explained by"]


def _row(case: Case) -> list[str]:
    report = compare(case.predicted, case.median)
    culprit = report.culprit
    return [
        case.planner,
        case.policy,
        f"{report.predicted:.3f}",
        f"{report.measured:.3f}",
        f"{report.error:+.1%}",
        f"{case.spread:.1%}",
        f"{culprit.name} {culprit.difference:+.3f} s ({report.share:.0%})",
    ]


def verdict(given: Sequence[Case], noise: float) -> str:
    """Whether the targets are met, if the machine is quiet enough to say."""
    lines = []
    runs = statistics.median(case.spread for case in given)
    for policy in POLICIES:
        errors = [abs(case.error) for case in given if case.policy == policy]
        middle, worst = statistics.median(errors), max(errors)
        met = middle <= MOST_IN_THE_MEDIAN and worst <= MOST
        loud = noise > NOISY or runs > NOISY
        lines.append(
            f"{policy}: off by {middle:.1%} in the median (at most {MOST_IN_THE_MEDIAN:.0%}),"
            f" {worst:.1%} at the worst (at most {MOST:.0%}):"
            f" {'no verdict, the machine is too noisy' if loud else 'met' if met else 'missed'}"
        )
    return (
        f"noise: the same steps without checkpoints vary by {noise:.1%} (distance of the"
        f" quartiles), the same run by {runs:.1%} (all of {len(given[0].measured)} rounds, the"
        f" median of all schedules); above {NOISY:.0%} nothing is said\n" + "\n".join(lines)
    )


def tables(subjects: Sequence[Subject] = SUBJECTS, rounds: int = ROUNDS) -> str:
    """The tables of all models."""
    return "\n\n\n".join(table(subject, rounds) for subject in subjects)


if __name__ == "__main__":
    record.save("fidelity", tables())
