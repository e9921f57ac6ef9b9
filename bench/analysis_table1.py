"""Eager, lazy or cheapest snapshots, or each array by itself: which stores least, and where?

In the style of Table 1 of [Dauvergne & Hascoet 2006], on the models of ckio. `successive` are ten
parts of a run, all but the last with a checkpoint before it; `nested` are the checkpoints of a
binomial schedule in ten slots, as the paper nests them: what is popped for C is pushed again for
the checkpoints in C. Tapes are what is put back for the code before, beside what every tape holds.
Seconds are by the price of NVMe for all, and with the tapes in memory.

The second table is of the same binomial schedule, its arrays planned each by itself, and of what
the same memory allows when it is planned with what checkpoints really take.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import pairwise

import record
from analysis_traced import NVME, RAM

from ckio.actions import Read, Write
from ckio.analysis.dataflow import (
    Checkpointed,
    Code,
    Plain,
    Prices,
    Snapshot,
    cheapest,
    eager,
    lazy,
    plan,
    plan_schedule,
    successive,
)
from ckio.analysis.lowering import lower
from ckio.analysis.recorded import observe
from ckio.analysis.reduced import ByVariable, reduced
from ckio.arraymodel import ArrayModel
from ckio.chain import Chain
from ckio.columns import ADVANCE, READ, WRITE
from ckio.flows import Flow, Names, Step
from ckio.models.burgers import Burgers
from ckio.models.ocean import Ocean
from ckio.models.permafrost import Permafrost
from ckio.models.shallowwater import ShallowWater
from ckio.planners.binomial import revolve
from ckio.platforms import Level, Platform
from ckio.schedule import Schedule, bytes_moved, counts
from ckio.variables import Variables

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
        sizes = {"restart": restart, "tape": tape, "adjoint": 0}
        return Chain(steps=self.steps, advance=1, record=1, reverse=1, **sizes)

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


def stored(code: Code, snapshots: Sequence[Snapshot], prices: Prices) -> Stored:
    """All that these snapshots of the code take, and what they leave to its tapes."""
    total, left, nbytes = Stored(), iter(snapshots), prices.nbytes

    def walk(code: Code, required: Names) -> int:
        """The most bytes at a time."""
        if isinstance(code, Plain):
            taped = required & code.adjoint.out
            here = sum(code.pushed.get(name, nbytes[name]) for name in taped)
            total.tapes += here
            total.seconds += sum(prices.taped(name, code, True) for name in taped)
            total.places.update((name, "tapes") for name in taped)
            return here
        snapshot = next(left)
        here, back = (sum(map(nbytes.__getitem__, x)) for x in (snapshot.stored, snapshot.sbk))
        total.snapshots += here
        total.seconds += sum(prices.of(name, snapshot) for name in snapshot.stored)
        total.places.update((name, "snapshots") for name in snapshot.stored)
        in_d = walk(code.rest, snapshot.req_d)
        return max(here + in_d, back + walk(code.first, snapshot.req_c))

    total.peak = walk(code, frozenset())
    return total


def whole(code: Code, prices: Prices) -> Sequence[Snapshot]:
    """All of the state in every snapshot."""
    every = Snapshot(snp=frozenset(prices.nbytes))
    return [every] * len(plan(code))


POLICIES: dict[str, Callable[[Code, Prices], Sequence[Snapshot]]] = {
    "whole": whole,
    "eager": lambda code, _: plan(code, policy=eager),
    "lazy": lambda code, _: plan(code, policy=lazy),
    "cheapest": lambda code, prices: cheapest(code, prices=prices)[0],
}

HEADER = ["", "", "snapshots", "tapes", "both", "peak", "seconds", "tapes in memory"]


def by_policy(case: Case, name: str, code: Code) -> tuple[list[list[str]], str]:
    """A row for each policy, and a sentence."""
    nbytes = case.variables.nbytes
    one, apart = (Prices(nbytes=nbytes, snapshots=NVME, tape=tape) for tape in (NVME, RAM))
    found = {}
    rows = []
    for policy, choose in POLICIES.items():
        here = found[policy] = stored(code, choose(code, one), one)
        there = stored(code, choose(code, apart), apart)
        amounts = here.snapshots, here.tapes, here.snapshots + here.tapes, here.peak
        first = f"{case.name}, {name}" if policy == "whole" else ""
        seconds = (f"{each.seconds * 1e3:.4g} ms" for each in (here, there))
        rows.append([first, policy, *map(size, amounts), *seconds])
    del found["whole"]
    return rows, f"{case.name}, {name}: {verdict(found)}"


def verdict(found: dict[str, Stored]) -> str:
    """Who stores least, and the arrays that make the difference."""
    all_places = [each.places for each in found.values()]
    arrays = sorted({name for places in all_places for name, _ in places})
    differ = [
        name
        for name in arrays
        if len({(it[name, "snapshots"], it[name, "tapes"]) for it in all_places}) > 1
    ]
    if not differ:
        return "no choice: each part overwrites by itself all that a later one could spoil"
    told = [
        f"{name} is in "
        + ", ".join(
            f"{each.places[name, 'snapshots']} snapshots and {each.places[name, 'tapes']} tapes"
            f" ({policy})"
            for policy, each in found.items()
        )
        for name in differ
    ]
    least = min(each.seconds for each in found.values())
    best = [policy for policy, each in found.items() if each.seconds <= least * (1 + 1e-12)]
    return f"{' and '.join(best)} best; {'; '.join(told)}"


ARRAYS = ["", "", "slots", "forward", "writes", "written", "read", "peak"]


def by_array(case: Case) -> Iterator[list[str]]:
    """What the binomial schedule stores, and what is planned in the same room by variable."""
    variables, platform, whole = case.variables, case.platform, case.binomial
    chain = replace(case.chain, restart=variables.restart)
    less = reduced(case.chain, platform, variables)
    rows = {
        "whole": _done(whole, platform),
        "needed": _done(Schedule(chain, whole.actions), platform),
        "arrays, once": _planned(case),
        "arrays, in the slots": _done(lower(whole, variables, platform=platform), platform),
        "needed, anew": _done(revolve(chain, platform), platform),
        "arrays, anew": _done(ByVariable(revolve, variables)(case.chain, platform), platform),
    }
    slots = {"needed, anew": _slots(chain, platform), "arrays, anew": _slots(*less)}
    for name, (forward, writes, *amounts) in rows.items():
        yield [
            case.name if name == "whole" else "",
            name,
            *map(str, (slots.get(name, SLOTS), forward, writes)),
            *map(size, amounts),
        ]


def _slots(chain: Chain, platform: Platform) -> int:
    return platform.levels[0].slots(chain.restart, chain.length - 1)


def _done(schedule: Schedule, platform: Platform) -> tuple[int, ...]:
    """Forward steps; writes; bytes that are written, read, and there at most."""
    done, moved = counts(schedule), bytes_moved(schedule, platform)
    written, read = (int(moved[schedule.actions.op == op].sum()) for op in (WRITE, READ))
    return done.forward, done.levels[0].writes, written, read, done.levels[0].peak_bytes


def _planned(case: Case) -> tuple[int, ...]:
    """The same of the binomial schedule, each of its arrays written once."""
    variables, nbytes = case.variables, case.variables.nbytes
    arrays = plan_schedule(case.binomial, variables.steps, seed=variables.seed)
    moved = Counter[type]()
    for access in arrays.accesses:
        if isinstance(access, Read | Write):
            moved[type(access)] += nbytes[access.key.name]
    forward = counts(case.binomial).forward
    return forward, arrays.writes, moved[Write], moved[Read], *arrays.peaks(nbytes)


def table(*, small: bool = False) -> str:
    """Both tables, and what the first says in a sentence for each model."""
    rows: list[list[str]] = []
    arrays: list[list[str]] = []
    said: list[str] = []
    for case in cases(small=small):
        for name, code in case.codes.items():
            more, sentence = by_policy(case, name, code)
            rows += more
            said.append(sentence)
        arrays += by_array(case) if not case.again else ()
    return (
        f"snapshots of {PARTS} parts one after the other, and nested as by revolve in {SLOTS}"
        " slots; bytes in MB\n\n"
        + record.columns(HEADER, rows)
        + "\n\n"
        + "\n".join(said)
        + f"\n\n\nrevolve in the room of {SLOTS} whole states, its checkpoints and its arrays;"
        " bytes in MB\n\n" + record.columns(ARRAYS, arrays)
    )


def size(nbytes: float) -> str:
    """In MB, with four digits."""
    return f"{nbytes / 1e6:.4g}"
