"""Schedules of checkpoint_schedules here, and ckio's there, by the rules of both."""

import logging
from collections import Counter
from dataclasses import replace

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from planners.cases import (
    PLANNERS,
    RESTART_ONLY,
    WITH_TAPES,
    chain,
    chains,
    platform,
    platforms,
)
from small_models import Growth

from ckio import Affine, Chain, Directory, Hdf5, Level, Platform, Ram, run, sizes_of
from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.errors import BadInput, IllegalAction, NoSchedule
from ckio.planners.dp import hrevolve
from ckio.planners.literature import multistage
from ckio.schedule import Schedule, counts, makespan

_jit = numba.config.DISABLE_JIT
numba.config.DISABLE_JIT = True  # theirs compile for longer than these short schedules take
cs = pytest.importorskip("checkpoint_schedules")
numba.config.DISABLE_JIT = _jit
from ckio.adapters.checkpoint_schedules import (  # noqa: E402
    as_checkpoint_schedule,
    from_checkpoint_schedule,
)

pytestmark = pytest.mark.filterwarnings("ignore:Numba not available:RuntimeWarning")
RAM, DISK, WORK = cs.StorageType.RAM, cs.StorageType.DISK, cs.StorageType.WORK
X0, X3 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 3)


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("ckio").setLevel(logging.ERROR)
    yield
    logging.getLogger("ckio").setLevel(logging.NOTSET)


def legal(schedule, n):  # noqa: PLR0915  # a rule a line
    """Hold a schedule to the rules of their machine; what it does, counted.

    A snapshot has the steps that its restart data reaches over, and those whose tape it has.
    """
    stored = {RAM: {}, DISK: {}}
    at, back, held, restart = 0, n, set(), set()
    did, turned = Counter(), False
    assert (schedule.n, schedule.r, schedule.max_n) == (0, 0, n)
    for action in schedule:
        name = type(action).__name__
        if name == "Forward":
            end = min(action.n1, n)
            assert action.n0 == at < end <= back
            span = set(range(at, end))
            held, restart = set(), set()
            if action.storage in stored:
                assert action.write_ics or action.write_adj_deps
                assert at not in stored[action.storage]
                stored[action.storage][at] = (
                    span if action.write_ics else set(),
                    span if action.write_adj_deps else set(),
                )
                did["write", action.storage] += 1
            elif action.write_adj_deps:
                held = span
            did["forward"] += len(span)
            at = end
            if end == n:
                schedule.finalize(n)
        elif name == "Reverse":
            assert turned
            assert action.n1 == back
            assert held >= set(range(action.n0, back))
            assert action.n0 < back
            back = action.n0
            held = set() if action.clear_adj_deps else held
        elif name in {"Copy", "Move"}:
            assert not held
            assert not restart
            assert action.n < back
            reach, tape = stored[action.from_storage][action.n]
            did["read", action.from_storage] += 1
            if name == "Move":
                del stored[action.from_storage][action.n]
            if action.to_storage is WORK:
                at = action.n if reach else None
                assert at is None or reach >= set(range(at, back))
                restart, held = set(reach), set(tape)
            else:
                assert action.n not in stored[action.to_storage]
                stored[action.to_storage][action.n] = reach, tape
                did["write", action.to_storage] += 1
        elif name == "EndForward":
            assert at == n
            assert not turned
            turned = True
        else:
            assert name == "EndReverse"
            assert back == 0
            assert schedule.is_exhausted
        assert at in {None, schedule.n}
        assert schedule.r == n - back
    assert back == 0
    return did


def two(platform, first="ram"):
    """The nearest two levels, of which the first is RAM, or both are DISK."""
    levels = zip(platform.levels, (first, "directory"), strict=False)
    return replace(platform, levels=tuple(replace(it, backend=name) for it, name in levels))


@pytest.mark.campaign
@pytest.mark.parametrize("name", RESTART_ONLY | WITH_TAPES)
@settings(max_examples=5)
@given(chains(), platforms())
def test_there_and_back_again_is_the_same(name, chain, platform):
    platform = two(platform)
    try:
        schedule = PLANNERS[name](chain, platform)
    except NoSchedule:
        return
    theirs = as_checkpoint_schedule(schedule, platform)
    did = legal(theirs, chain.steps)
    assert did["forward"] == counts(schedule).forward
    for storage, level in zip((RAM, DISK), counts(schedule).levels, strict=False):
        assert (did["write", storage], did["read", storage]) == (level.writes, level.reads)
    again = as_checkpoint_schedule(schedule, platform)
    assert from_checkpoint_schedule(again, chain, platform) == schedule


def test_it_is_walked_once_and_says_where_it_is():
    theirs = as_checkpoint_schedule(multistage(chain(9), platform((2, 1, 1), (None, 2, 2))))
    first = [action.args for action in theirs]
    assert theirs.is_exhausted
    assert (theirs.n, theirs.r, theirs.max_n) == (1, 9, 9)
    assert first == [it.args for it in theirs.actions]
    assert not list(theirs)
    assert all(theirs.uses_storage_type(it) for it in (RAM, DISK, WORK))
    assert not theirs.uses_storage_type(cs.StorageType.NONE)


BACK_FROM_3 = [Read(X0, 0), Record(0, 3), Reverse(0, 3)]


@pytest.mark.parametrize(
    ("actions", "why"),
    [
        (
            [Write(X0, 0), Record(0, 4), Reverse(3, 4), *BACK_FROM_3],
            r"#0 Write\(x_0, level 0\): only a Forward without a tape can store the state",
        ),
        (
            [
                Write(X0, 0),
                Advance(0, 2),
                Record(2, 4),
                Reverse(3, 4),
                Read(X0, 0),
                Advance(0, 1),
                Reverse(2, 3),
                Read(X0, 0),
                Record(0, 2),
                Reverse(0, 2),
            ],
            r"#4 Read\(x_0, level 0\): no checkpoint can be loaded while a tape",
        ),
        (
            [
                Write(X0, 0),
                Advance(0, 3),
                Write(X3, 0),
                Read(X0, 0),
                Advance(0, 3),
                Read(X3, 0),
                Record(3, 4),
                Reverse(3, 4),
                *BACK_FROM_3,
            ],
            r"#2 Write\(x_3, level 0\): only a Forward can store the state, and none",
        ),
        (
            [
                Write(X0, 0),
                Advance(0, 3),
                Write(X3, 0),
                Advance(3, 4),
                Read(X3, 0),
                Record(3, 4),
                Reverse(3, 4),
                *BACK_FROM_3,
                Read(X0, 0),
                Advance(0, 1),
            ],
            r"#10 Read\(x_0, level 0\): the step is already reversed",
        ),
        (
            [
                Write(X0, 0),
                Advance(0, 3),
                Write(X3, 0),
                Advance(3, 4),
                Read(X3, 0),
                Record(3, 4),
                Discard(X3, 0),
                Reverse(3, 4),
                *BACK_FROM_3,
            ],
            r"#6 Discard\(x_3, level 0\): a checkpoint is deleted only by its last read",
        ),
        (
            [
                Write(X0, 0),
                Advance(0, 3),
                Write(X3, 0),
                Advance(3, 4),
                Read(X3, 0),
                Record(3, 4),
                Reverse(3, 4),
                Read(X0, 0),
                Write(X0, 1),
                Read(X0, 1),
                Record(0, 3),
                Reverse(0, 3),
            ],
            r"#8 Write\(x_0, level 1\): only a Forward can store",
        ),
    ],
)
def test_what_they_have_no_words_for_is_refused(actions, why):
    with pytest.raises(BadInput, match=why):
        as_checkpoint_schedule(Schedule(chain(4), actions))


def test_what_is_no_whole_adjoint_is_refused():
    with pytest.raises(BadInput, match="reverses every step"):
        as_checkpoint_schedule(Schedule(chain(4), [Advance(0, 4)]))
    with pytest.raises(IllegalAction):
        as_checkpoint_schedule(Schedule(chain(4), [Advance(1, 4)]))
    with pytest.raises(BadInput, match="nothing stored"):
        as_checkpoint_schedule(Schedule(chain(4), [Record(0, 4), Reverse(0, 4)], [[X0]]))


N = 24
THEIRS = {
    "Revolve": lambda: cs.Revolve(N, 4),
    "Multistage": lambda: cs.MultistageCheckpointSchedule(N, 2, 3),
    "Mixed": lambda: cs.MixedCheckpointSchedule(N, 5),
    "TwoLevel": lambda: cs.TwoLevelCheckpointSchedule(7, 3, binomial_storage=RAM),
    "TwoLevel, all on disk": lambda: cs.TwoLevelCheckpointSchedule(7, 3),
    "SingleMemory": cs.SingleMemoryStorageSchedule,
    "SingleDisk": cs.SingleDiskStorageSchedule,
    "SingleDisk, moved": lambda: cs.SingleDiskStorageSchedule(move_data=True),
    "HRevolve": lambda: cs.HRevolve(N, 2, 3),
    "DiskRevolve": lambda: cs.DiskRevolve(N, 3),
    "PeriodicDiskRevolve": lambda: cs.PeriodicDiskRevolve(N, 3),
}


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("name", "archive"),
    [*((name, "directory") for name in THEIRS), ("Mixed", "hdf5"), ("HRevolve", "hdf5")],
)
def test_theirs_run_here_and_give_the_gradient(tmp_path, name, archive):
    reference = Growth()
    reference.record(0, N)
    reference.reverse(0, N)
    model = Growth()
    it = Chain(steps=N, advance=1, record=1, reverse=1, **sizes_of(model))
    levels = Platform((Level(name="ram"), Level(name="disk", backend=archive)))
    schedule = from_checkpoint_schedule(THEIRS[name](), it, levels)
    disk = Hdf5(tmp_path / "a.h5") if archive == "hdf5" else Directory(tmp_path / "d")
    run(schedule, levels, model, [Ram(), disk])
    assert not list(disk.keys())
    disk.close()
    for control, right in reference.gradient.items():
        assert np.array_equal(model.gradient[control], right)
    assert model.functional == reference.functional
    again = as_checkpoint_schedule(schedule, levels)
    legal(again, N)
    assert from_checkpoint_schedule(again, it, levels) == schedule


def test_theirs_are_refused_for_a_reason():
    two = Platform((Level(name="ram"), Level(name="disk", backend="directory")))
    with pytest.raises(BadInput, match="without an EndReverse; give a schedule with an adjoint"):
        from_checkpoint_schedule(cs.NoneCheckpointSchedule(), chain(9), two)
    with pytest.raises(BadInput, match=r"Revolve has 8 steps, but the chain has 9"):
        from_checkpoint_schedule(cs.Revolve(8, 2), chain(9), two)
    begun = cs.Revolve(9, 2)
    next(begun)
    with pytest.raises(BadInput, match="was begun before"):
        from_checkpoint_schedule(begun, chain(9), two)
    one, small = Platform((Level(name="ram"),)), replace(two, working_memory=17)
    with pytest.raises(BadInput, match="stores checkpoints in DISK, but no level"):
        from_checkpoint_schedule(cs.SingleDiskStorageSchedule(), chain(9), one)
    with pytest.raises(BadInput, match="needs 18 bytes of working memory"):
        from_checkpoint_schedule(cs.SingleMemoryStorageSchedule(), chain(9), small)
    with pytest.raises(BadInput, match="Revolve does not fit: #2 Write"):
        from_checkpoint_schedule(cs.Revolve(9, 2), chain(9), platform((1, 0, 0)))


@pytest.mark.parametrize(
    ("u_b", "steps", "seconds", "best"),
    [(0, 465, 435, 80), (1, 94, 110, 110), (10, 92, 400, 380), (100, 92, 3100, 3080)],
)
def test_their_hrevolve_changes_with_the_cost_of_the_adjoint_and_ours_does_not(
    u_b, steps, seconds, best
):
    it = Chain(steps=30, advance=1, record=0, reverse=u_b, restart=1, tape=1, adjoint=1)
    two = Affine(latency=2.0)
    levels = Platform(
        (Level(name="ram", capacity=2), Level(name="disk", capacity=6, write=two, read=two)),
        working_memory=1,
    )
    theirs = from_checkpoint_schedule(cs.HRevolve(30, 2, 6, uf=1, ub=u_b, wd=2, rd=2), it, levels)
    ours = hrevolve(it, levels)
    assert (counts(theirs).forward, makespan(theirs, levels)) == (steps, seconds)
    assert (counts(ours).forward, makespan(ours, levels)) == (86, best)
