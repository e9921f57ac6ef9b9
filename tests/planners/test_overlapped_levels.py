"""Overlapped plans on memory and several far levels: never worse, and they say what they are."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckio.chain import Chain
from ckio.planners.hrevolve import hrevolve
from ckio.planners.overlapped import Overlapped, plan
from ckio.platforms import Affine, Level, Platform
from ckio.replay import validate
from ckio.schedule import makespan
from ckio.sim.engine import simulate

from .cases import RESTART, TAPE, chain

seconds = st.sampled_from([0.0, 0.25, 1.0, 3.0, 9.0])


def node(near: int, *far: tuple[str, int | None, float, float], channel: str = "") -> Platform:
    """Memory of so many slots, and far levels: backend, slots, seconds to write and to read."""
    levels = [
        Level(
            name=backend,
            capacity=None if slots is None else slots * RESTART,
            write=Affine(latency=write),
            read=Affine(latency=read),
            backend=backend,
            channel=channel,
        )
        for backend, slots, write, read in far
    ]
    return Platform((Level(name="ram", capacity=near * RESTART), *levels), working_memory=TAPE)


def checked(work: Chain, platform: Platform) -> Overlapped:
    """A plan that is legal, takes what it says, and no longer than the best without overlap."""
    made = plan(work, platform)
    assert validate(made.schedule, platform).adjoint == 0
    assert simulate(made.schedule, platform, overlap=made.overlap).makespan == made.makespan
    assert made.synchronous == makespan(hrevolve(work, platform), platform)
    assert made.makespan <= made.synchronous
    assert made.bound <= made.makespan * (1 + 1e-12)
    return made


def used(made: Overlapped) -> set[int]:
    """The levels on which anything is stored."""
    actions = made.schedule.actions
    return set(actions.level[actions.op >= 3].tolist())


@settings(max_examples=12, deadline=None)
@given(
    st.integers(2, 40),
    st.integers(1, 6),
    st.tuples(st.sampled_from([1, 4, 20]), seconds, seconds),
    st.tuples(st.sampled_from([None, 1, 30]), seconds, seconds),
    st.sampled_from(["", "shared"]),
)
def test_it_is_never_worse_than_without_overlap(
    steps: int,
    near: int,
    directory: tuple[int, float, float],
    archive: tuple[int | None, float, float],
    channel: str,
) -> None:
    platform = node(near, ("directory", *directory), ("hdf5", *archive), channel=channel)
    made = checked(chain(steps, reverse=2.0), platform)
    how = {
        "made for ram and directory": {0, 1},
        "made for ram and hdf5": {0, 2},
        "H-Revolve's schedule": {0, 1, 2},
    }
    assert used(made) <= how[made.schedule.note.rpartition("; ")[2]]


def test_a_pair_is_taken_where_its_plan_is_the_best() -> None:
    work = chain(121, reverse=1.0)
    good, bad = ("directory", 200, 2.0, 2.0), ("hdf5", None, 90.0, 90.0)
    made = checked(work, node(8, good, bad))
    assert made.schedule.note.endswith("; made for ram and directory")
    assert used(made) == {0, 1}
    alone = plan(work, node(8, good))
    assert made.makespan == alone.makespan < made.synchronous


def test_all_levels_are_taken_where_each_alone_is_too_small() -> None:
    few = ("directory", 3, 1.0, 1.0), ("hdf5", 3, 1.0, 1.0)
    made = checked(chain(60, reverse=1.0), node(2, *few))
    assert made.schedule.note.endswith("; H-Revolve's schedule")
    assert used(made) == {0, 1, 2}
    assert made.overlap
    assert made.makespan < made.synchronous


@pytest.mark.parametrize(
    ("work", "platform", "reason"),
    [
        (
            replace(chain(9), advance=[1.0, 2.0, 1.0] * 3),
            node(3, ("directory", 9, 2.0, 2.0)),
            "steps differ",
        ),
        (chain(1), node(3, ("directory", 9, 2.0, 2.0)), "one step needs no checkpoint"),
        (chain(9), node(0, ("directory", 9, 2.0, 2.0)), "memory has no room for a checkpoint"),
        (chain(9), node(3, ("hdf5", 0, 2.0, 2.0)), "no far level has room for a checkpoint"),
        (
            replace(chain(9), advance=0.0),
            node(3, ("directory", 9, 2.0, 2.0)),
            "steps take no time",
        ),
        (
            chain(1300, reverse=1.0),
            node(3, ("directory", 1, 2.0, 2.0)),
            "the chain is too long to be searched",
        ),
    ],
)
def test_the_note_says_why_it_is_hrevolves(work: Chain, platform: Platform, reason: str) -> None:
    note = checked(work, platform).schedule.note
    assert note.endswith(f"; H-Revolve's schedule, as {reason}")
