"""How good are plans for overlapped storage, beside a bound and other planners?

    python bench/overlap_planning.py machines [STEPS ...]
    python bench/overlap_planning.py random [SEED ...]
    python bench/overlap_planning.py states

Each table can be taken alone; without a name, all are. Each is kept in bench/results.

machines    ten machines as clusters have them: a state of 8 GB, steps of a second. Each planner
            that ckio has by name is simulated with each of eight policies, and its best value is
            shown. `before` is the planner of states only, at the revision that
            results/overlap_planning_before.txt says.
random      machines drawn at random, twenty a seed: one to four far levels, some on one channel,
            tapes of 0.05 to 5 states. Seeds 1, 2 and 3 are for development.
states      states only: memory for 20 checkpoints and 200 far ones, then machines drawn from seven
            seeds, in the sense of H-Revolve's paper: steps of a second, forward and back.

Every plan is validated and simulated, and the makespan that it promises is held to what the
simulator says, to the last bit; a row that breaks a promise says so in the last column.
"""

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import record

from ckio.actions import Key, Kind
from ckio.adapters.registry import find
from ckio.errors import BadInput, NoSchedule
from ckio.planners import compiled
from ckio.planners.base import without_notes
from ckio.planners.compared import Plan
from ckio.planners.overlap import overlapped
from ckio.planners.overlap.engine import Replayed
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.sim.engine import simulate

GB = 10**9
LENGTHS = (200, 500, 2000, 10_000)
NAMED = ("store-all", "periodic", "mixed", "hrevolve", "multistage", "two-level")
HORIZONS = (2, 5, 10, 20)
DEVELOPMENT = (1, 2, 3)
DRAWN = 20
SEEDS = (2020, 2021, 2100, 2101, 2102, 2103, 2104)
BEFORE = record.RESULTS / "overlap_planning_before.txt"


@dataclass(frozen=True)
class Case:
    """A chain, a platform, and what they are called."""

    name: str
    chain: Chain
    platform: Platform


def planned(case: Case, *, tapes: bool) -> tuple[Plan, float]:
    """The plan that is measured, and seconds of the processor for it."""
    start = time.process_time()
    with without_notes():
        made = overlapped(case.chain, case.platform, tapes=tapes)
    return made, time.process_time() - start


def policies(case: Case) -> list[Overlap]:
    """No overlap, all of it with several horizons, writes only, reads only."""
    sizes = [case.chain.largest(name) for name in ("restart", "tape")]
    far = case.platform.levels[1:]
    slowest = max(cost(n) for level in far for cost in (level.write, level.read) for n in sizes)
    horizons = [*(times * slowest for times in HORIZONS), math.inf]
    both = [Overlap(None, None, horizon) for horizon in horizons]
    return [Overlap(), *both, Overlap(None, 0), Overlap(0, None)]


def named(case: Case) -> dict[str, float]:
    """The least makespan of each planner that applies, over all policies."""
    found = dict[str, float]()
    for name in NAMED:
        try:
            with without_notes():
                schedule: Schedule = find("planners", name)(case.chain, case.platform)
        except (BadInput, NoSchedule):
            continue
        none, *others = policies(case)
        assert not none
        seconds = [makespan(schedule, case.platform)]
        found[name] = min([*seconds, *map(Replayed(schedule, case.platform).seconds, others)])
    return found


def broken(case: Case, made: Plan, least: float = math.inf) -> str:
    """The first promise that a plan breaks; nothing if it keeps them all.

    It is never above `least`, which others reach.
    """
    end = validate(made, case.platform)
    if end.adjoint or any(end.stored):
        return "does not come to the end"
    seconds = simulate(made, case.platform).makespan
    if seconds != made.makespan:
        return f"takes {seconds!r}, not {made.makespan!r}"
    if made.bound > made.makespan:
        return "bound above the plan"
    if made.makespan > least * (1 + 1e-9):
        return f"{made.makespan / least - 1:.2%} above the best"
    return ""


@dataclass(frozen=True)
class Measured:
    """A case, its plan, and what other planners reach."""

    case: Case
    made: Plan
    named: dict[str, float]
    seconds: float

    @property
    def best(self) -> str:
        """The name of the best of the other planners."""
        return min(self.named, key=self.named.__getitem__)

    @property
    def gain(self) -> float:
        """The part of the best other makespan that the plan saves."""
        return 1 - self.made.makespan / self.named[self.best]

    @property
    def broken(self) -> str:
        return broken(self.case, self.made, self.named[self.best])


def measured(case: Case, *, tapes: bool = True) -> Measured:
    print(case.name, file=sys.stderr)
    made, seconds = planned(case, tapes=tapes)
    return Measured(case, made, named(case), seconds)


COLUMNS = [*NAMED, "plan", "bound", "gap", "less than the best", "planning s", "broken"]


def columns(found: Measured) -> list[str]:
    made = found.made
    return [
        *(f"{found.named[name]:.1f}" if name in found.named else "-" for name in NAMED),
        f"{made.makespan:.1f}",
        f"{made.bound:.1f}",
        f"{made.gap:.2%}",
        f"{found.gain:.2%} ({found.best})",
        f"{found.seconds:.1f}",
        found.broken,
    ]


def distribution(values: Sequence[float], form: Callable[[float], str]) -> str:
    """Least, quartiles, nine tenths and most of some numbers, in words."""
    ordered = sorted(values)
    at = [ordered[round(part * (len(ordered) - 1))] for part in (0, 0.25, 0.5, 0.75, 0.9, 1)]
    names = ("least", "quartiles", "", "", "nine in ten below", "most")
    return ", ".join(f"{name} {form(value)}".strip() for name, value in zip(names, at, strict=True))


def percent(value: float) -> str:
    return f"{value:.2%}"


def duration(seconds: float) -> str:
    return f"{seconds:.1f} s"


def summary(all_found: Sequence[Measured]) -> str:
    """Gaps, what the plans save, and how many of them break a promise."""
    wrong = sum(bool(found.broken) for found in all_found)
    return (
        f"gaps: {distribution([found.made.gap for found in all_found], percent)}\n"
        f"less than the best named planner:"
        f" {distribution([found.gain for found in all_found], percent)}\n"
        f"planning: {distribution([found.seconds for found in all_found], duration)}\n"
        f"plans that break a promise: {wrong} of {len(all_found)}"
    )


# The planner before.


def before() -> dict[tuple[str, str], float]:
    """The overlapped makespans of the planner before, by table and row."""
    known, table = dict[tuple[str, str], float](), ""
    for line in BEFORE.read_text().splitlines():
        name, _, rest = line.partition("  ")
        numbers = rest.split()
        if "overlapped" in numbers:
            table = name
        elif table and numbers:
            known[table, name] = float(numbers[1])
    return known


# Ten machines.


@dataclass(frozen=True)
class Far:
    """A far level: its capacity in TB (unlimited if None), and what it writes and reads in GB/s."""

    name: str
    capacity: int | None
    write: float
    read: float

    def __str__(self) -> str:
        size = "" if self.capacity is None else f" {self.capacity} TB"
        return f"{self.name}{size} at {self.write:g}/{self.read:g} GB/s"

    def level(self) -> Level:
        return Level(
            name=self.name.lower(),
            capacity=None if self.capacity is None else self.capacity * 1000 * GB,
            write=Affine(latency=0.01, per_byte=1 / (self.write * 1e9)),
            read=Affine(latency=0.01, per_byte=1 / (self.read * 1e9)),
            backend="directory",
        )


@dataclass(frozen=True)
class Machine:
    """Memory in GB, far levels, and the tape of a step in GB."""

    memory: int
    far: tuple[Far, ...]
    tape: int

    def case(self, steps: int) -> Case:
        copy = Affine(per_byte=1 / 20e9)
        ram = Level(name="ram", capacity=self.memory * GB, write=copy, read=copy)
        chain = Chain(
            steps=steps,
            advance=1.0,
            record=1.1,
            reverse=2.0,
            restart=8 * GB,
            tape=self.tape * GB,
            adjoint=8 * GB,
        )
        levels = (ram, *(far.level() for far in self.far))
        name = f"RAM {self.memory} GB, {', '.join(map(str, self.far))}, tape {self.tape} GB"
        return Case(name, chain, Platform(levels, working_memory=self.tape * GB))


MACHINES = (
    Machine(64, (Far("NVMe", 1, 2, 3),), 2),
    Machine(128, (Far("NVMe", 2, 4, 6),), 4),
    Machine(256, (Far("NVMe", 4, 7, 7),), 8),
    Machine(512, (Far("NVMe", 2, 3, 5),), 8),
    Machine(64, (Far("PFS", None, 1, 1),), 8),
    Machine(128, (Far("PFS", None, 0.5, 0.5),), 4),
    Machine(256, (Far("PFS", None, 2, 2),), 2),
    Machine(64, (Far("NVMe", 1, 2, 2), Far("PFS", None, 0.5, 0.5)), 4),
    Machine(128, (Far("NVMe", 2, 4, 6), Far("PFS", None, 1, 1)), 8),
    Machine(512, (Far("NVMe", 4, 7, 7), Far("PFS", None, 2, 2)), 2),
)


def machines_table(lengths: Sequence[int], machines: Sequence[Machine] = MACHINES) -> str:
    known, tables, all_found = before(), list[str](), list[Measured]()
    for steps in lengths:
        table, rows = f"ten machines, n = {steps}", list[list[str]]()
        for machine in machines:
            found = measured(machine.case(steps))
            all_found.append(found)
            old = known.get((table, found.case.name))
            rows.append([found.case.name, "-" if old is None else f"{old:.1f}", *columns(found)])
        tables.append(record.columns([table, "before", *COLUMNS], rows))
    return "\n\n".join([*tables, summary(all_found)])


# Machines drawn at random.


def drawn(seed: int, count: int = DRAWN) -> list[Case]:
    """Machines with tight and loose levels, each slower than the one before."""
    random = Random(f"overlap planning {seed}")
    return [_drawn(random, f"seed {seed}, machine {number}") for number in range(count)]


def _between(random: Random, low: float, high: float) -> float:
    """Evenly on a logarithmic scale."""
    return math.exp(random.uniform(math.log(low), math.log(high)))


def _drawn(random: Random, name: str) -> Case:
    state = round(_between(random, 0.5, 16) * GB)
    tape = round(_between(random, 0.05, 5) * state)
    copy = _between(random, 0.02, 0.4) / state  # of a step, for a state
    ram = Level(
        name="ram",
        capacity=round(max(_between(random, 2, 60) * state, state, tape)),
        write=Affine(per_byte=copy),
        read=Affine(per_byte=copy * random.uniform(0.7, 1)),
    )
    levels, seconds = [ram], _between(random, 0.2, 4)
    for number in range(random.randint(1, 4)):
        write, read = seconds / state, seconds / state * random.uniform(0.4, 1.2)
        levels.append(
            Level(
                name=f"far{number}",
                capacity=random.choice([None, *(round(_between(random, 3, 1000) * state),) * 3]),
                write=Affine(latency=random.uniform(0, 0.05), per_byte=write),
                read=Affine(latency=random.uniform(0, 0.05), per_byte=read),
                backend="directory",
                channel=random.choice(["", "", "bus"]),
            )
        )
        seconds *= _between(random, 1.5, 5)
    chain = Chain(
        steps=round(_between(random, 100, 3000)),
        advance=1.0,
        record=random.uniform(1.0, 1.4),
        reverse=random.uniform(1.0, 3.0),
        restart=state,
        tape=tape,
        adjoint=state,
    )
    return Case(
        f"{name}: n = {chain.length}, tape {tape / state:.2f}, {len(levels) - 1} far",
        chain,
        Platform(tuple(levels), working_memory=random.choice([1, 1, 2, 4]) * tape),
    )


def random_table(seeds: Sequence[int], count: int = DRAWN) -> str:
    tables, all_found = list[str](), list[Measured]()
    for seed in seeds:
        found = [measured(case) for case in drawn(seed, count)]
        all_found += found
        rows = [[one.case.name, *columns(one)] for one in found]
        tables.append(record.columns([f"seed {seed}", *COLUMNS], rows))
    worst = sorted(all_found, key=lambda found: -found.made.gap)[:3]
    return "\n\n".join([*tables, summary(all_found), *map(_in_words, worst)])


def _in_words(found: Measured) -> str:
    """A machine, for whoever looks into why its gap is wide."""
    chain, restart = found.case.chain, Key(Kind.RESTART, 0)
    lines = [f"{found.case.name}: {found.made.gap:.2%} above the bound; {found.made.note}"]
    for level in found.case.platform.levels:
        nbytes = chain.nbytes(restart)
        room = "unlimited" if level.capacity is None else f"{level.capacity / nbytes:.1f} states"
        lines.append(
            f"    {level.name} on {level.channel}: {room}, a state is written in"
            f" {level.write(nbytes):.2f} s and read in {level.read(nbytes):.2f} s"
        )
    return "\n".join(lines)


# States only.


@dataclass(frozen=True)
class Slots:
    """A chain of l + 1 steps, near and far slots, seconds to write and read a far checkpoint."""

    length: int
    near: int
    far: int
    write: float
    read: float

    def __str__(self) -> str:
        return (
            f"l = {self.length}, {self.near} + {self.far} slots,"
            f" w = {self.write:g}, r = {self.read:g}"
        )

    @property
    def case(self) -> Case:
        chain = Chain(
            steps=self.length + 1, advance=1, record=0, reverse=1, restart=1, tape=1, adjoint=1
        )
        near = Level(name="ram", capacity=self.near)
        far = Level(
            name="nvme",
            capacity=self.far,
            write=Affine(latency=self.write),
            read=Affine(latency=self.read),
            backend="directory",
        )
        return Case(str(self), chain, Platform((near, far), working_memory=1))


def grid() -> list[Slots]:
    return [
        Slots(length, 20, 200, seconds, seconds)
        for length in (1000, 5000, 20_000)
        for seconds in (0.5, 1.0, 2.0, 5.0, 20.0)
    ]


def slots(seed: int, count: int = DRAWN) -> list[Slots]:
    """Machines with 3 to 50 near slots and 10 to 1000 far ones, evenly on a logarithmic scale."""
    random = Random(seed)
    return [
        Slots(
            length=round(_between(random, 500, 10_000)),
            near=round(_between(random, 3, 50)),
            far=round(_between(random, 10, 1000)),
            write=round(_between(random, 0.4, 40), 1),
            read=round(_between(random, 0.4, 40), 1),
        )
        for _ in range(count)
    ]


def states_table(groups: dict[str, list[Slots]]) -> str:
    known, tables, ratios, took = before(), list[str](), dict[str, float](), list[float]()
    wrong = 0
    for name, machines in groups.items():
        rows = list[list[str]]()
        for machine in machines:
            case, old = machine.case, known.get((name, str(machine)))
            made, seconds = planned(case, tapes=False)
            complaint = broken(case, made)
            took.append(seconds)
            wrong += bool(complaint)
            if old is not None:
                ratios[str(machine)] = made.makespan / old
            rows.append(
                [
                    str(machine),
                    f"{made.synchronous:.0f}",
                    "-" if old is None else f"{old:.0f}",
                    f"{made.makespan:.1f}",
                    "-" if old is None else f"{made.makespan / old - 1:+.2%}",
                    f"{made.bound:.1f}",
                    f"{made.gap:.2%}",
                    f"{seconds:.1f}",
                    complaint,
                ]
            )
        header = [name, "synchronous", "before", "plan", "more", "bound", "gap", "planning s", ""]
        tables.append(record.columns(header, rows))
    lines = [f"planning: {distribution(took, duration)}, {sum(took):.0f} s in all"]
    if ratios:
        worst = max(ratios, key=ratios.__getitem__)
        lines += [
            f"plan / before: mean {statistics.mean(ratios.values()):.4f},"
            f" {distribution(list(ratios.values()), lambda r: f'{r:.4f}')}",
            f"worst: {worst}",
        ]
    lines.append(f"plans that break a promise: {wrong}")
    return "\n\n".join([*tables, "\n".join(lines)])


def warm() -> None:
    """Load or compile all kernels, so that no row pays for them."""
    compiled.prepare()
    planned(Slots(100, 5, 10, 2, 3).case, tapes=False)
    planned(MACHINES[0].case(100), tapes=True)


def tables(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The tables that are asked for, by name."""
    which, *numbers = arguments or ["all"]
    given = [int(number) for number in numbers]
    warm()
    if which in ("machines", "all"):
        yield "machines", machines_table(given or LENGTHS)
    if which in ("random", "all"):
        yield "random", random_table(given or DEVELOPMENT)
    if which in ("states", "all"):
        groups = {"the grid": grid()} | {f"seed {seed}": slots(seed) for seed in SEEDS}
        yield "states", states_table(groups)


def main() -> None:
    for name, table in tables(sys.argv[1:]):
        record.save(f"overlap_planning_{name}", table)


if __name__ == "__main__":
    main()
