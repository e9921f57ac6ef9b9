"""Adjoint runs to kill: chains, platforms, planners, and what a kill leaves behind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from random import Random

from hypothesis import currently_in_test_context, note
from hypothesis import strategies as st

from ckio.actions import Key, Kind, Record, Write
from ckio.adapters.registry import find, names
from ckio.errors import BadInput
from ckio.planners.base import Planner, without_notes
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.recovery import aside, recover, with_adjoint_checkpoints
from ckio.planners.trivial import store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import SECONDS, Chain
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine

RESTART_ONLY: dict[str, Planner] = {"hrevolve": hrevolve, "revolve": revolve}
WITH_TAPES: dict[str, Planner] = {"mixed": mixed, "store-all": store_all}
ALL: dict[str, Planner] = {name: find("planners", name) for name in names("planners")}

Stored = tuple[frozenset[Key], ...]

RANDOMS = st.randoms(use_true_random=False)
"""What a property draws; it makes a case of it by `drawn_case`."""


def x(step: int) -> Key:
    return Key(Kind.RESTART, step)


def t(step: int) -> Key:
    return Key(Kind.TAPE, step)


def a(step: int) -> Key:
    return Key(Kind.ADJOINT, step)


def adjoints(keys: object) -> set[Key]:
    return {key for key in keys if key.kind is Kind.ADJOINT}  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Case:
    """A run with adjoint checkpoints on `level`, and how to go on with it after a kill."""

    chain: Chain
    platform: Platform
    planner: str
    level: int
    every: float
    durable: frozenset[int]

    @property
    def planned(self) -> Schedule:
        planner = ALL[self.planner]
        with without_notes():
            return planner(self.chain, aside(self.platform, self.chain, self.level))

    @property
    def schedule(self) -> Schedule:
        return with_adjoint_checkpoints(self.planned, self.platform, self.every, level=self.level)

    @property
    def tapes(self) -> bool:
        """Whether the run stores tapes, or holds several: it may have no other way."""
        if self.planner in WITH_TAPES:
            return True
        for action in self.planned.actions:
            match action:
                case Write(Key(Kind.TAPE)):
                    return True
                case Record(begin, end) if end > begin + 1:
                    return True
        return False

    def recovering(self) -> Callable[[Stored], Schedule]:
        """The schedule for the rest, made once for each set of survivors."""

        @cache
        def rest(survivors: Stored) -> Schedule:
            return recover(
                self.chain,
                self.platform,
                survivors,
                level=self.level,
                every=self.every,
                tapes=self.tapes,
            )

        return rest

    def kills(self, schedule: Schedule) -> Iterator[Stored]:
        """What lies on durable levels before each action."""
        machine = Machine(self.chain, self.platform, schedule.stored)
        for action in schedule.actions:
            yield tuple(
                frozenset(keys if number in self.durable else ())
                for number, keys in enumerate(machine.stored)
            )
            machine.apply(action)


def random_case(random: Random, planners: dict[str, Planner], *, most_steps: int) -> Case:
    """Whole costs in any order, room for a few checkpoints, steps that differ in one of three."""
    steps, dear = random.randint(1, most_steps), random.choice([2, 4, 9])
    chain = Chain(
        steps=steps,
        advance=random.randint(1, 4),
        record=random.randint(0, 5),
        reverse=random.randint(0, 3),
        restart=random.randint(1, 3),
        tape=random.randint(1, 3),
        adjoint=random.randint(1, 3),
    )
    levels = tuple(
        Level(
            name=f"level{number}",
            capacity=random.choice([None, random.randint(1, 9), 3 * random.randint(0, 3) + 1]),
            write=Affine(random.randint(0, dear)),
            read=Affine(random.randint(0, dear)),
            discard=Affine(random.choice([0, 0, 1])),
            ratio=random.choice([1.0, 1.0, 1.5]),
        )
        for number in range(random.choice([1, 2, 2]))
    )
    number = random.randrange(len(levels))
    return Case(
        chain=chain,
        platform=with_working_memory(
            Platform(levels, working_memory=random.randint(1, 4) * chain.tape), chain, number
        ),
        planner=random.choice(list(planners)),
        level=number,
        every=random.choice([0, 1, 3, 8, 20, inf]),
        durable=frozenset({number, *(k for k in range(len(levels)) if random.random() < 0.5)}),
    )


def with_working_memory(platform: Platform, chain: Chain, number: int) -> Platform:
    """The platform with room for two more adjoints on a level."""
    levels, level = list(platform.levels), platform.levels[number]
    if level.capacity is not None:
        more = 2 * level.stored(chain.largest("adjoint"))
        levels[number] = replace(level, capacity=level.capacity + more)
    return replace(platform, levels=tuple(levels))


def with_differing_steps(random: Random, case: Case) -> Case:
    """The same with seconds that differ from step to step."""
    costs = {
        name: [random.randint(0, 5) for _ in range(case.chain.length)]
        for name in random.sample(SECONDS, 2)
    }
    return replace(case, chain=replace(case.chain, **costs))


def drawn_case(
    random: Random, planners: dict[str, Planner], *, most_steps: int = 9, differing: bool = True
) -> Case:
    """A case that can be planned at all.

    It plans, and a planner may have to be compiled first: a test calls it, never a strategy.
    """
    for _ in range(100):
        case = random_case(random, planners, most_steps=most_steps)
        if differing and random.random() < 0.3:
            case = with_differing_steps(random, case)
        try:
            assert case.planned is not None
        except BadInput:
            continue
        if currently_in_test_context():
            note(repr(case))
        return case
    raise AssertionError("hardly a case can be planned")
