"""Every planner, and chains and platforms to hold them to, with costs that all differ."""

from functools import partial
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from ckio.planners.base import Planner
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve, hrevolve_2020, mixed
from ckio.planners.fastest import auto
from ckio.planners.literature import (
    disk_revolve,
    multistage,
    per_rev_revolve,
    periodic_disk_revolve,
    revolve_1d,
    two_level,
)
from ckio.planners.midpoint import bisection
from ckio.planners.trivial import periodic, recompute_all, store_all
from ckio.planners.unknown import online
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.schedule.replay import validate

GOLDEN = Path(__file__).parents[1] / "golden"

RESTART_ONLY: dict[str, Planner] = {
    "recompute-all": recompute_all,
    "revolve": revolve,
    "multistage": multistage,
    "two-level": two_level,
    "1d-revolve": revolve_1d,
    "disk-revolve": disk_revolve,
    "periodic-disk-revolve": periodic_disk_revolve,
    "per-rev-revolve": per_rev_revolve,
    "hrevolve-2020": hrevolve_2020,
    "hrevolve": hrevolve,
    "bisection": bisection,
}
"""Planners that move with Advance and record one step before they reverse it."""

ONLINE: dict[str, Planner] = {"online": online}
"""Restart only too; it does not know the end, and discards what turns out to be of no use."""

WITH_TAPES: dict[str, Planner] = {"store-all": store_all, "periodic": periodic}

BEST: dict[str, Planner] = {"mixed": mixed, "auto": auto}
"""Those that weigh tapes against restart data, so that the cost of recording counts."""

PLANNERS = RESTART_ONLY | WITH_TAPES | BEST | ONLINE

ONE_LEVEL = {"recompute-all": recompute_all, "revolve": revolve} | {
    "store-all": store_all,
    "periodic": periodic,
    "periodic, period 3": partial(periodic, period=3),
}

RESTART, TAPE = 3, 2


def chain(
    steps: int,
    *,
    advance: float = 1,
    record: float = 0,
    reverse: float = 0,
    restart: int = RESTART,
    tape: int = TAPE,
) -> Chain:
    return Chain(
        steps=steps,
        advance=advance,
        record=record,
        reverse=reverse,
        restart=restart,
        tape=tape,
        adjoint=5,
    )


unit_chain = partial(chain, restart=1, tape=1)
"""A chain whose checkpoints are one byte."""


def completed(schedule: Schedule, platform: Platform) -> float:
    """The makespan of a schedule that is legal, reverses every step and leaves nothing stored."""
    end = validate(schedule, platform)
    assert end.adjoint == 0
    assert not any(end.stored)
    return makespan(schedule, platform)


def level(
    name: str,
    slots: int | None,
    write: float,
    read: float,
    *,
    discard: float = 0,
    spare: int = 0,
) -> Level:
    """A level with room for `slots` restart checkpoints and `spare` bytes, too few for another."""
    return Level(
        name=name,
        capacity=None if slots is None else slots * RESTART + spare,
        write=Affine(per_byte=write / 4, latency=write / 4),
        read=Affine(per_byte=read / 4, latency=read / 4),
        discard=Affine(per_byte=discard / 4, latency=discard / 4),
    )


def platform(*levels: tuple[int | None, float, float], tapes: int = 1) -> Platform:
    """Levels of (slots, write seconds, read seconds), and a register for so many steps' tape."""
    return Platform(
        tuple(level(f"level{number}", *row) for number, row in enumerate(levels)),
        working_memory=tapes * TAPE,
    )


def paper_chain(length: int, *, u_f: float = 1, u_b: float = 0) -> Chain:
    """Herrmann and Pallez's chain of size l, which has l + 1 steps here."""
    return unit_chain(length + 1, advance=u_f, reverse=u_b)


def small_case(random: Random, *, levels: int, most_steps: int) -> tuple[Chain, Platform]:
    """A case that the search can solve: whole costs, in any order from level to level."""
    costs = random.choice([2, 4, 7, 12])
    return (
        chain(
            random.randint(1, most_steps),
            advance=random.randint(1, 3),
            record=random.randint(0, 3),
            reverse=random.randint(0, 5),
        ),
        Platform(
            tuple(
                level(
                    f"level{number}",
                    random.randint(number == 0, 3 - levels // 2),
                    random.randint(0, costs),
                    random.randint(0, costs),
                    discard=random.choice([0, 0, 1]),
                    spare=random.randint(0, RESTART - 1),
                )
                for number in range(levels)
            ),
            working_memory=TAPE,
        ),
    )


_seconds = st.integers(0, 9).map(float)


@st.composite
def chains(draw: st.DrawFn, *, most_steps: int = 40) -> Chain:
    return chain(
        draw(st.integers(1, most_steps)),
        advance=draw(_seconds),
        record=draw(_seconds),
        reverse=draw(_seconds),
    )


@st.composite
def platforms(draw: st.DrawFn, *, most_slots: int = 20) -> Platform:
    """Up to three levels in any order of cost; the last never fills, so that every planner can."""
    slots = draw(st.lists(st.integers(0, most_slots), max_size=2))
    return Platform(
        tuple(
            level(
                f"level{number}",
                held,
                draw(_seconds),
                draw(_seconds),
                discard=draw(_seconds),
                spare=draw(st.integers(0, RESTART - 1)),
            )
            for number, held in enumerate([*slots, None])
        ),
        working_memory=draw(st.integers(1, 12)) * TAPE,
    )
