"""Does a run take what `simulate` says?

Plans five schedules for memory, a directory and an HDF5 archive. Then, in rounds: calibrates, with
the checkpoints of the model, says what each schedule will take, with and without overlap, and runs
them all; so that a slow moment of the machine falls neither on one schedule alone, nor on the one
calibration by which all are judged. A schedule's row is its middle round: half of the others were
more optimistic.

The noise of the machine is measured beside: in every round the same steps of the model, without any
checkpoint. Where that varies by more than a few per cent, nothing is said of the targets.

A processor that others share is faster in one second than in the next, and no prediction can know.
So each run is also held against the same prediction at the pace of its moment: with the seconds of
steps that were probed right before it and right after, and all other prices as they are. What is
left of the error is what `simulate` itself does not know, and how sure that is follows from how
much it varies from round to round: `--times 4` says more. `--brief` compares the calibration of a
run with one at length.
"""

import math
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import record
from ckio.actions.columns import Actions
from ckio.adapters.registry import find
from ckio.backends.base import Backend
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.calibrate import calibrate, measure_model
from ckio.models.vorticity import Vorticity
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.report import Report, compare
from ckio.runner import run
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

MOST_IN_THE_MEDIAN, MOST = 0.05, 0.10
"""Of what was measured: how far predictions may be off, over all schedules and at the worst."""
NOISY = 0.03
"""Of the time of the same steps, from round to round: a machine on which nothing can be said."""

PLANNERS: Mapping[str, Mapping[str, str]] = {
    "hrevolve": {},
    "mixed": {},
    "multistage": {},
    "two-level": {},
    "revolve": {"on": "nvme"},
}
POLICIES = {"synchronous": Overlap(), "overlapped": Overlap(None, None)}


@dataclass(frozen=True)
class Subject:
    """A model with so many steps, the slots of its levels, and how many rounds there are."""

    name: str
    grid: int
    steps: int
    slots: tuple[int, int, int]
    rounds: int = 1

    def model(self) -> Vorticity:
        """A fresh one."""
        return Vorticity(grid=self.grid)


SUBJECTS = (
    Subject("the demo's model", 128, 300, (6, 60, 60), 15),
    Subject("a state of 64 MiB", 1448, 10, (2, 8, 8), 3),
)


@dataclass(frozen=True)
class Case:
    """One schedule and one policy: of each round what was said, and what came of it.

    `paced` has for each run what is said of it at the pace of its moment, over what it took.
    """

    planner: str
    policy: str
    actions: Actions
    predicted: list[Timeline] = field(default_factory=list)
    measured: list[Timeline] = field(default_factory=list)
    paced: list[float] = field(default_factory=list)

    @property
    def middle(self) -> Report:
        """The round whose prediction was off by the median of all."""
        reports = list(map(compare, self.predicted, self.measured))
        return sorted(reports, key=lambda report: report.error)[len(reports) // 2]

    @property
    def at_pace(self) -> float:
        """How far off it is at the pace of each run's moment: the geometric mean of all rounds."""
        return math.exp(statistics.fmean(map(math.log, self.paced))) - 1

    @property
    def spread(self) -> float:
        """The distance between the slowest run and the fastest, as a part of the median."""
        spans = [timeline.makespan for timeline in self.measured]
        return (max(spans) - min(spans)) / statistics.median(spans)


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


def known(subject: Subject, *, brief: bool = False) -> Platform:
    """The platform, calibrated with the model's checkpoints: at length, or as a run does it."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        backends = levels(Path(folder) / "levels")
        for backend in backends.values():
            ends.enter_context(closing(backend))
        steps = subject.steps if brief else None
        platform = calibrate(backends, models={subject.name: subject.model}, run_steps=steps)
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


def cases(subject: Subject, platform: Platform) -> list[Case]:
    """Every schedule with every policy."""
    chain = replace(platform.models[subject.name], steps=subject.steps)
    found = []
    for planner, options in PLANNERS.items():
        schedule = find("planners", planner)(chain, platform, **options)
        found += [Case(planner, policy, schedule.actions) for policy in POLICIES]
    return found


def reference(subject: Subject) -> float:
    """Seconds of the same steps of the model, without any checkpoint."""
    model, steps = subject.model(), max(4, subject.steps // 2)
    model.advance(0, 1)
    start = time.perf_counter()
    model.advance(1, 1 + steps)
    return time.perf_counter() - start


def pace(subject: Subject) -> Chain:
    """What the steps of the model take just now."""
    return measure_model(subject.model, repeats=1, steps=max(5, min(24, subject.steps // 3)))


def at_pace(
    schedule: Schedule, platform: Platform, overlap: Overlap, before: Chain, after: Chain
) -> float:
    """What `simulate` says between two moments, in seconds."""
    # with the tape alone as well, because record is its seconds and those of an Advance
    seconds = ("advance", "record", "reverse", *(["record_only"] if before.record_only else []))
    now = {name: (getattr(before, name) + getattr(after, name)) / 2 for name in seconds}
    paced = Schedule(replace(schedule.chain, **now), schedule.actions)
    return simulate(paced, platform, overlap=overlap).makespan


def perform(case: Case, subject: Subject, platform: Platform) -> None:
    """One round of a case: what is said of it by this calibration, and a run."""
    overlap = POLICIES[case.policy]
    chain = replace(platform.models[subject.name], steps=subject.steps)
    schedule = Schedule(chain, case.actions)
    before = pace(subject)
    took = measured(schedule, platform, subject, overlap)
    said = at_pace(schedule, platform, overlap, before, pace(subject))
    case.predicted.append(simulate(schedule, platform, overlap=overlap))
    case.measured.append(took)
    case.paced.append(said / took.makespan)


def table(subject: Subject) -> str:
    """What was predicted and measured of one model."""
    platform = known(subject)
    given, steps = cases(subject, platform), list[float]()
    for number in range(subject.rounds):
        platform = known(subject) if number else platform
        for case in given:
            steps.append(reference(subject))
            perform(case, subject, platform)
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


_HEADER = [
    "schedule",
    "",
    "predicted s",
    "measured s",
    "error",
    "spread",
    "at pace",
    "explained by",
]


def _row(case: Case) -> list[str]:
    report = case.middle
    culprit = report.culprit
    return [
        case.planner,
        case.policy,
        f"{report.predicted:.3f}",
        f"{report.measured:.3f}",
        f"{report.error:+.1%}",
        f"{case.spread:.1%}",
        f"{case.at_pace:+.1%}",
        f"{culprit.name} {culprit.difference:+.3f} s ({report.share:.0%})",
    ]


def verdict(given: Sequence[Case], noise: float) -> str:
    """Whether the targets are met, if the machine is quiet enough to say."""
    runs = statistics.median(case.spread for case in given)
    lines = [
        f"noise: the same steps without checkpoints vary by {noise:.1%} (distance of the"
        f" quartiles), the same run by {runs:.1%} (all of {len(given[0].measured)} rounds, the"
        f" median of all schedules); above {NOISY:.0%} nothing is said"
    ]
    for policy in POLICIES:
        cases = [case for case in given if case.policy == policy]
        loud = "the machine is too noisy" if max(noise, runs) > NOISY else ""
        lines.append(f"{policy}: {_judged([case.middle.error for case in cases], loud)}")
    for policy in POLICIES:
        cases = [case for case in given if case.policy == policy]
        mean, sure = unsure(cases)
        loud = "too few rounds for so much noise" if sure > NOISY else ""
        lines.append(
            f"{policy}, at pace: {_judged([case.at_pace for case in cases], loud)}; all runs"
            f" together {mean:+.1%}, give or take {sure:.1%}"
        )
    return "\n".join(lines)


def _judged(errors: Sequence[float], loud: str) -> str:
    """How far off, and what follows, but where there is a reason to say nothing."""
    middle, worst = statistics.median(map(abs, errors)), max(map(abs, errors))
    met = middle <= MOST_IN_THE_MEDIAN and worst <= MOST
    said = f"no verdict, {loud}" if loud else "met" if met else "missed"
    return (
        f"off by {middle:.1%} in the median (at most {MOST_IN_THE_MEDIAN:.0%}), {worst:.1%} at the"
        f" worst (at most {MOST:.0%}): {said}"
    )


def unsure(cases: Sequence[Case]) -> tuple[float, float]:
    """The mean error at pace of all runs, and its standard error, by the means of the rounds."""
    rounds = [
        statistics.fmean(map(math.log, ratios))
        for ratios in zip(*(case.paced for case in cases), strict=True)
    ]
    spread = statistics.stdev(rounds) if len(rounds) > 1 else math.inf
    return math.exp(statistics.fmean(rounds)) - 1, spread / math.sqrt(len(rounds))


def brief_beside_long(subject: Subject) -> str:
    """How far predictions are off by the calibration of a run, and by one at length, in turns.

    The plan of each calibration is run, and the seconds of both are compared, too.
    """
    off: dict[bool, list[float]] = {True: [], False: []}
    slower, calibrating = list[float](), dict[bool, float]()
    for _ in range(subject.rounds):
        took = {}
        for brief, errors in off.items():
            start = time.perf_counter()
            platform = known(subject, brief=brief)
            calibrating[brief] = time.perf_counter() - start
            chain = replace(platform.models[subject.name], steps=subject.steps)
            schedule = find("planners", "mixed")(chain, platform)
            took[brief] = measured(schedule, platform, subject, Overlap()).makespan
            errors.append(abs(simulate(schedule, platform).makespan / took[brief] - 1))
        slower.append(took[True] / took[False] - 1)
    lines = [
        f"{'brief' if brief else 'long'}: {calibrating[brief]:.1f} s, predictions off by"
        f" {statistics.median(errors):.1%} in the median of {len(errors)}"
        for brief, errors in off.items()
    ]
    change = statistics.median(slower)
    return "\n".join((subject.name, *lines, f"runs by the brief one take {change:+.1%} longer"))


def tables(subjects: Sequence[Subject] = SUBJECTS) -> str:
    """The tables of all models."""
    return "\n\n\n".join(map(table, subjects))


def text(*, times: int, brief: bool) -> str:
    """The tables with so many times the rounds, or both calibrations side by side."""
    if brief:
        return "\n\n".join(map(brief_beside_long, SUBJECTS))
    return tables([replace(it, rounds=it.rounds * times) for it in SUBJECTS])


if __name__ == "__main__":
    record.main("fidelity", text, times=1, brief=False)
