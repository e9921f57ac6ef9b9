"""Eager, lazy or cheapest snapshots: which stores least, and where?

In the style of Table 1 of [Dauvergne & Hascoet 2006], on the models of ckio. `successive` are ten
parts of a run, all but the last with a checkpoint before it; `nested` are the checkpoints of a
binomial schedule in ten slots, as the paper nests them: what is popped for C is pushed again for
the checkpoints in C. Tapes are what is put back for the code before, beside what every tape holds.
Seconds are by the rates of NVMe for all, and with the tapes in memory; `cheapest` chooses by them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from itertools import pairwise

from example_models.ocean import Ocean
from example_models.permafrost import Permafrost
from example_models.shallow_water import ShallowWater
from oracles.snapshots import SnapshotRates, cheapest

from bench import record
from bench.papers.step_tape import NVME, RAM
from ckio.actions.columns import ADVANCE
from ckio.actions.variables import Flow, Names, Step, Variables
from ckio.analysis.recorded import observe
from ckio.analysis.snapshots import (
    Checkpointed,
    Code,
    Plain,
    Snapshot,
    eager,
    lazy,
    plan,
    successive,
)
from ckio.model.arraymodel import ArrayModel
from ckio.models.burgers import Burgers
from ckio.planners.binomial import revolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

STEPS, SLOTS, PARTS = 100, 10, 10


@dataclass(frozen=True)
class Case:
    """A program, and how many steps it has.

    Attributes
    ----------
    again : bool
        Whether tapes hold an array as often as it is overwritten, not only for the first time.
    """

    name: str
    variables: Variables
    steps: int = STEPS
    again: bool = False

    def part(self, begin: int, end: int) -> Plain:
        """Some steps, whose adjoint records all of them and then reverses them."""
        over = self.variables.over(self.steps)
        each = [over[i] for i in range(begin, end)]
        forward = reduce(Flow.then, (step.forward for step in each))
        adjoint = reduce(Flow.then, (*map(_recorded, each[:-1]), each[-1].adjoint))
        often = Counter(name for step in each for name in step.record.out)
        nbytes = self.variables.nbytes
        pushed = {name: often[name] * nbytes[name] for name in often} if self.again else {}
        return Plain(forward, adjoint, pushed)

    @cached_property
    def chain(self) -> Chain:
        """With whole checkpoints."""
        nbytes = self.variables.nbytes
        restart, tape = (sum(nbytes[x] for x in names) for names in (nbytes, self.variables.tape))
        return Chain(
            steps=self.steps,
            advance=1,
            record=1,
            reverse=1,
            restart=restart,
            tape=tape,
            adjoint=0,
        )

    @cached_property
    def platform(self) -> Platform:
        """Room for so many whole checkpoints, at the price of NVMe."""
        capacity = SLOTS * self.chain.restart
        return Platform((Level(name="nvme", capacity=capacity, write=NVME.write, read=NVME.read),))

    @cached_property
    def binomial(self) -> Schedule:
        """Of whole checkpoints."""
        return revolve(self.chain, self.platform)

    @cached_property
    def codes(self) -> dict[str, Code]:
        """Checkpoints one after the other, and nested as in the binomial schedule."""
        at = [self.steps * k // PARTS for k in range(PARTS + 1)]
        parts = [self.part(begin, end) for begin, end in pairwise(at)]
        return {"successive": successive(parts), "nested": self._nested()}

    def _nested(self) -> Code:
        actions = self.binomial.actions
        ends = iter(actions.end[actions.op == ADVANCE].tolist())

        def of(begin: int, end: int) -> Code:
            if end - begin == 1:
                return self.part(begin, end)
            middle = next(ends)
            rest = of(middle, end)  # which the schedule reverses first
            return Checkpointed(of(begin, middle), rest)

        return of(0, self.steps)


def _recorded(step: Step) -> Flow:
    """A step that is recorded, with others behind it: both what its tape and what they need."""
    return Flow(step.forward.use | step.record.use, step.record.out, step.record.kill)


def cases(*, small: bool = False) -> Iterator[Case]:
    """The models, at their own size or small."""
    grid, steps = (8, 20) if small else (128, STEPS)
    yield Case("ocean", observe(partial(Ocean, grid=grid)), steps)
    yield Case("shallow water", _known(ShallowWater(grid=grid)), steps)
    adaptive = Burgers(grid=grid if small else 256)
    taken = adaptive.advance(0, 10**6)
    yield Case(f"burgers, {taken} steps", _known(adaptive), taken)
    long, short = (
        _known(Permafrost(grid=grid, steps=steps, change=change, thaw=thaw))
        for change, thaw in ((3 * steps // 4, steps // 8), (7 * steps // 10, -(-steps // 25)))
    )
    yield Case("permafrost, long thaw within a part", long, steps)
    yield Case("permafrost, short thaw as one begins", short, steps)
    yield Case("permafrost, short, tapes push again", short, steps, again=True)


def _known(model: ArrayModel) -> Variables:
    if model.variables is None:
        raise AssertionError(f"{type(model).__name__} declares no flow")
    return model.variables


@dataclass
class Stored:
    """What snapshots and tapes hold: bytes in all, most at a time, seconds, and which arrays."""

    snapshots: int = 0
    tapes: int = 0
    peak: int = 0
    seconds: float = 0.0
    places: Counter[tuple[str, str]] = field(default_factory=Counter)


def stored(code: Code, snapshots: Sequence[Snapshot], rates: SnapshotRates) -> Stored:
    """All that these snapshots of the code take, and what they leave to its tapes."""
    total, left, nbytes = Stored(), iter(snapshots), rates.nbytes

    def walk(code: Code, required: Names) -> int:
        """The most bytes at a time."""
        if isinstance(code, Plain):
            taped = required & code.adjoint.out
            here = sum(code.pushed.get(name, nbytes[name]) for name in taped)
            total.tapes += here
            total.seconds += sum(rates.taped(name, code) for name in taped)
            total.places.update((name, "tape") for name in taped)
            return here
        snapshot = next(left)
        here, back = (sum(map(nbytes.__getitem__, x)) for x in (snapshot.stored, snapshot.sbk))
        total.snapshots += here
        total.seconds += sum(rates.of(name, snapshot) for name in snapshot.stored)
        total.places.update((name, _where(name, snapshot)) for name in snapshot.stored)
        in_d = walk(code.rest, snapshot.req_d)
        return max(here + in_d, back + walk(code.first, snapshot.req_c))

    total.peak = walk(code, frozenset())
    return total


def whole(code: Code, rates: SnapshotRates) -> Sequence[Snapshot]:
    """All of the state in every snapshot."""
    every = Snapshot(snp=frozenset(rates.nbytes))
    return [every] * len(plan(code))


POLICIES: dict[str, Callable[[Code, SnapshotRates], Sequence[Snapshot]]] = {
    "whole": whole,
    "eager": lambda code, _: plan(code, policy=eager),
    "lazy": lambda code, _: plan(code, policy=lazy),
    "cheapest": lambda code, rates: cheapest(code, rates=rates)[0],
}

HEADER = ["", "", "snapshots", "tapes", "both", "peak", "seconds", "tapes in memory"]


def by_policy(case: Case, name: str, code: Code) -> tuple[list[list[str]], str]:
    """A row for each policy, and a sentence."""
    nbytes = case.variables.nbytes
    one, apart = (SnapshotRates(nbytes=nbytes, snapshots=NVME, tape=tape) for tape in (NVME, RAM))
    here, there = (
        {policy: stored(code, choose(code, rates), rates) for policy, choose in POLICIES.items()}
        for rates in (one, apart)
    )
    rows = []
    for policy, found in here.items():
        amounts = found.snapshots, found.tapes, found.snapshots + found.tapes, found.peak
        first = f"{case.name}, {name}" if policy == "whole" else ""
        seconds = (f"{each.seconds * 1e3:.4g} ms" for each in (found, there[policy]))
        rows.append([first, policy, *map(size, amounts), *seconds])
    return rows, f"{case.name}, {name}: {verdict(here, there)}"


def verdict(here: dict[str, Stored], there: dict[str, Stored]) -> str:
    """Who takes least, with tapes here and there, and where the arrays are that tell them apart."""
    places = {policy: here[policy].places for policy in here if policy != "whole"}
    wheres = {
        name: {policy: _told(name, counted) for policy, counted in places.items()}
        for name in sorted({name for counted in places.values() for name, _ in counted})
    }
    differ = {name: told for name, told in wheres.items() if len(set(told.values())) > 1}
    if not differ:
        return "no choice: what a later part overwrites, each part overwrites by itself"
    why = [
        f"{name} is in {'; '.join(f'{where} ({policy})' for policy, where in told.items())}"
        for name, told in differ.items()
    ]
    return f"least by {_least(here)}, with tapes in memory by {_least(there)}; {', '.join(why)}"


def _where(name: str, snapshot: Snapshot) -> str:
    """What is in both is stored once and read twice."""
    return "+".join(which for which in ("snp", "sbk") if name in getattr(snapshot, which))


def _told(name: str, places: Counter[tuple[str, str]]) -> str:
    found = [f"{count} {where}" for (known, where), count in places.items() if known == name]
    return ", ".join(sorted(found)) or "none"


def _least(found: dict[str, Stored]) -> str:
    least = min(each.seconds for each in found.values())
    best = [policy for policy, each in found.items() if each.seconds <= least * (1 + 1e-12)]
    return " and ".join(best)


def table(*, small: bool = False) -> str:
    """By policy, and what that says in a sentence for each model."""
    rows: list[list[str]] = []
    said: list[str] = []
    for case in cases(small=small):
        for name, code in case.codes.items():
            more, sentence = by_policy(case, name, code)
            rows += more
            said.append(sentence)
    return (
        f"snapshots of {PARTS} parts one after the other, and nested as by revolve in {SLOTS}"
        f" slots; bytes in MB\n\n{record.columns(HEADER, rows)}\n\n" + "\n".join(said)
    )


def size(nbytes: float) -> str:
    """In MB, with four digits."""
    return f"{nbytes / 1e6:.4g}"


if __name__ == "__main__":
    record.main("snapshots", table, small=False)
