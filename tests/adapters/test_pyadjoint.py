"""Gradients of pyadjoint's tapes whose values lie on ckio's levels, of programs of every kind."""

import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from shutil import rmtree
from threading import Thread, current_thread, main_thread
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyadjoint")

import checkpoint_schedules as upstream
from adapters.adjoint_programs import (
    AFTER,
    BEFORE,
    CHAIN,
    FIELD,
    PLUS,
    PROGRAMS,
    SQUARE,
    STEP,
    STEPS,
    Program,
    Walls,
    coefficient,
    files,
    forced,
    implicit,
    in_place,
    late,
    plain,
    platform,
    record,
    referred,
    right,
    summed,
    swapped,
    two_steps,
    walled,
)
from adjoint_fields import Array, Field, Function, apply, diffused, diffused_adjoint
from cli.jobs import MPIEXEC, needs_mpi
from pyadjoint import (
    AdjFloat,
    Control,
    ReducedFunctional,
    Tape,
    continue_annotation,
    minimize,
    pause_annotation,
    set_working_tape,
    taylor_test,
)

from ckio.adapters import registry
from ckio.adapters.checkpoint_schedules import as_checkpoint_schedule
from ckio.adapters.pyadjoint import Manager, enable, keep_in_memory
from ckio.adapters.scratch import Scratch
from ckio.errors import BadInput, MissingCheckpoint, StorageError
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import counts
from ckio.schedule.policy import Overlap


def check(program: Program, use: Callable[[Tape], Any]) -> Any:
    """Values and gradients are those of a tape that stores all, in whatever order asked for."""
    ours, used = record(program, BEFORE, use)
    stored, _ = record(program, BEFORE)
    assert np.array_equal(ours.derivative().data, stored.derivative().data)
    for there, times in (AFTER, 1), (BEFORE, 2), (BEFORE, 1):
        for _ in range(times):
            assert float(ours(Field(there))) == float(stored(Field(there)))
        for _ in range(2):
            assert np.array_equal(ours.derivative().data, stored.derivative().data)
    return used


@pytest.mark.parametrize(
    ("planner", "steps"),
    [
        ("hrevolve", STEPS),
        pytest.param("hrevolve", None, marks=pytest.mark.slow),
        pytest.param("mixed", STEPS, marks=pytest.mark.slow),
        pytest.param("mixed", None, marks=pytest.mark.slow),
        pytest.param("multistage", None, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda it: str(it.__name__))
def test_gradients_are_those_of_a_tape_that_stores_all(
    program: Program, planner: str, steps: int | None, tmp_path: Path
) -> None:
    manager = check(
        program,
        lambda t: enable(t, platform(tmp_path), steps=steps, planner=planner, chain=CHAIN),
    )
    assert manager.storage.stored == [set(), set()]
    manager.close()
    assert files(tmp_path) == []


@pytest.mark.parametrize("overlap", [Overlap(1, 1), Overlap(write_behind=4), Overlap(0, 3)])
@pytest.mark.parametrize("steps", [STEPS, None])
@pytest.mark.parametrize("program", [plain, referred, late])
def test_transfers_in_the_background_change_no_gradient(
    program: Program, steps: int | None, overlap: Overlap, tmp_path: Path
) -> None:
    def use(tape: Tape) -> Manager:
        return enable(tape, platform(tmp_path), steps=steps, chain=CHAIN, overlap=overlap)

    manager = check(program, use)
    manager.close()
    assert files(tmp_path) == []


class Slow:
    """The writes and reads of a level, each of which waits until a step has ended."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch, self.ended, self.hidden = scratch, 0, {"put": 0, "get": 0}
        for name in self.hidden:
            setattr(scratch, name, partial(self._wait, name, getattr(scratch, name)))

    def _wait(self, name: str, do: Callable[..., Any], level: int, *rest: Any) -> Any:
        if level and current_thread() is not main_thread():
            before, until = self.ended, time.monotonic() + 0.05
            while self.ended == before and time.monotonic() < until:
                time.sleep(1e-4)
            self.hidden[name] += self.ended > before
        return do(level, *rest)


def test_steps_are_computed_while_checkpoints_are_written_and_read(tmp_path: Path) -> None:
    def step(u: Array) -> Array:
        time.sleep(0.005)  # so that a thread begins before the step ends
        slow[-1].ended += 1
        return diffused(u)

    def program(times: Iterable[int], u: Field) -> Any:
        for _ in times:
            u = apply(step, diffused_adjoint, u)
        return apply(*SQUARE, u)

    def use(tape: Tape) -> Manager:
        overlap = Overlap(write_behind=1, read_ahead=1)
        manager = enable(tape, platform(tmp_path), steps=STEPS, chain=CHAIN, overlap=overlap)
        slow.append(Slow(manager.storage.scratch))
        return manager

    slow = list[Slow]()
    reduced, manager = record(program, BEFORE, use)
    with manager:
        assert np.array_equal(reduced.derivative().data, right(plain, BEFORE)[1])
        assert slow[0].hidden["put"] > 0
        assert slow[0].hidden["get"] > 0


def test_a_write_that_fails_in_the_background_is_an_error_of_a_later_step(tmp_path: Path) -> None:
    def use(tape: Tape) -> Manager:
        manager = enable(
            tape, platform(tmp_path), steps=STEPS, chain=CHAIN, overlap=Overlap(write_behind=9)
        )
        rmtree(tmp_path / "level")
        return manager

    with pytest.raises(StorageError, match="level"):
        record(plain, BEFORE, use)[0].derivative()
    with pytest.raises(BadInput, match="give numbers of checkpoints"):
        record(plain, BEFORE, lambda t: enable(t, steps=STEPS, overlap=Overlap(None, 1)))


def test_a_solver_reads_an_initial_guess_which_is_the_same_each_time(tmp_path: Path) -> None:
    """The first evaluation is that of the program; later ones give its bits, whatever is stored."""
    stored, _ = record(implicit, BEFORE)
    for planner in ("hrevolve", "mixed", "bisection"):
        ours, manager = record(
            implicit,
            BEFORE,
            lambda t, p=planner: enable(t, platform(tmp_path), steps=STEPS, planner=p, chain=CHAIN),
        )
        with manager:
            expected = float(stored.functional), stored.derivative().data.tolist()
            assert (float(ours.functional), ours.derivative().data.tolist()) == expected
            ours(Field(AFTER))
            assert ours.derivative().data.tolist() != expected[1]
            found = float(ours(Field(BEFORE))), ours.derivative().data.tolist()
            assert found == expected, planner
            assert taylor_test(ours, Field(BEFORE), Field(AFTER)) > 1.9


@pytest.mark.parametrize("steps", [3, 5])
def test_a_checkpoint_that_refers_to_another_variable_outlives_it(
    steps: int, tmp_path: Path
) -> None:
    """Few steps stay in memory until the last one, and then leave it in any order."""
    reduced, _ = record(
        referred,
        BEFORE,
        lambda t: enable(t, platform(tmp_path), steps=steps, chain=CHAIN),
        steps,
    )
    assert np.array_equal(reduced.derivative().data, right(referred, BEFORE, steps)[1])


def test_values_of_a_type_may_be_kept_in_memory(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"Walls, a type that ckio does not know.*keep_in_memory"):
        record(walled, BEFORE, lambda t: enable(t, platform(tmp_path), steps=STEPS))
    keep_in_memory(Walls)
    check(walled, lambda t: enable(t, platform(tmp_path), steps=STEPS, chain=CHAIN)).close()


RANKS = """
import sys, time
from pathlib import Path
import numpy as np
from mpi4py import MPI
from adapters.adjoint_programs import BEFORE, SQUARE, platform, record, right
from adjoint_fields import apply
from ckio.adapters.pyadjoint import enable
from ckio.errors import BadInput
from ckio.model.comm import SOLO

WORLD = MPI.COMM_WORLD
START = np.concatenate([BEFORE] * (1 + WORLD.rank))
CALLS = []

def step(u):
    CALLS.append(WORLD.allreduce(1))  # waits for ever if the other rank does something else
    time.sleep(0.004 * WORLD.rank)
    return 0.9 * u + 0.01 * WORLD.allreduce(u.sum())

def back(bar, u):
    return (0.9 * bar + 0.01 * WORLD.allreduce(bar.sum()),)

def program(times, u):
    for _ in times:
        u = apply(step, back, u)
    return apply(*SQUARE, u)

here, planner = Path(sys.argv[1], str(WORLD.rank)), sys.argv[2]
here.mkdir()
wanted = right(program, START, 20)[1]
CALLS.clear()
steps = None if planner == "online" else 20
reduced, manager = record(
    program, START, lambda tape: enable(tape, platform(here), steps=steps, planner="hrevolve"), 20
)
for _ in range(2):
    assert np.array_equal(reduced.derivative().data, wanted)
    reduced(reduced.controls[0].control)
told = [len(set(WORLD.allgather(len(CALLS)))), len(CALLS) > 60]
if steps:
    assert WORLD.allgather(manager.schedule.chain)[0] == manager.schedule.chain
try:
    record(program, START, lambda tape: enable(tape, platform(here), steps=20 + WORLD.rank), 20)
except BadInput as error:
    told.append("tapes of 20, 21 steps" in str(error))
alone = lambda u: 0.9 * u, lambda bar, u: (0.9 * bar,)
if WORLD.rank:  # a tape of its own
    record(
        lambda times, u: apply(*SQUARE, [u := apply(*alone, u) for _ in times][-1]),
        START, lambda tape: enable(tape, platform(here), steps=20, comm=SOLO), 20,
    )
common = Path(sys.argv[1], "common")
reduced, manager = record(
    program, START, lambda tape: enable(tape, steps=steps, disk=common), 20
)
assert np.array_equal(reduced.derivative().data, wanted)
assert len(set(WORLD.allgather(manager.storage.scratch.platform.levels[0].capacity))) == 1
assert len(list(common.iterdir())) == 2  # the ranks have the directory in common
WORLD.barrier()
manager.close()
every = WORLD.gather(told)
if not WORLD.rank:
    print(every)
"""


@needs_mpi
@pytest.mark.parametrize("planner", ["hrevolve", pytest.param("online", marks=pytest.mark.slow)])
def test_ranks_that_measure_different_steps_follow_one_plan(planner: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [MPIEXEC, "-n", "2", sys.executable, "-c", RANKS, tmp_path, planner],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[[1, True, True], [1, True, True]]"


FAILING = """
import sys
from pathlib import Path
import numpy as np
from mpi4py import MPI
from adapters.adjoint_programs import BEFORE, CHAIN, SQUARE, platform, record
from adjoint_fields import apply
from ckio.adapters import mpi
from ckio.adapters.pyadjoint import enable
from ckio.errors import CkioError

mpi.world.__kwdefaults__["grace"] = 1
WORLD = MPI.COMM_WORLD
here, how = Path(sys.argv[1], str(WORLD.rank)), sys.argv[2]
steps = -99 if how == "block" else 0  # then it fails when it is computed again

def fail(where):
    global steps
    steps += 1
    if WORLD.rank == 1 and how == where and steps >= 12:
        raise OSError("no luck")

def step(u):
    fail("block")
    WORLD.allreduce(1)
    return 0.9 * u

def program(times, u):
    for _ in times:
        u = apply(step, lambda bar, u: (0.9 * bar,), u)
        fail("program")
    return apply(*SQUARE, u)

def use(tape):
    here.mkdir()
    manager = enable(
        tape, platform(here, 1 if how == "full" and WORLD.rank else 3), steps=20,
        chain=CHAIN,
    )
    if how == "write" and WORLD.rank:
        manager.storage.scratch.put = lambda *_: fail("write")
    return manager

manager = None
try:
    if how == "program":
        from pyadjoint import Tape, continue_annotation, set_working_tape
        from adjoint_fields import Field
        tape = Tape()
        set_working_tape(tape)
        continue_annotation()
        with use(tape):
            program(tape.timestepper(iter(range(20))), Field(BEFORE))
    else:
        reduced, manager = record(program, BEFORE, use, 20)
        steps = 0
        reduced(reduced.controls[0].control)
        reduced.derivative()
        manager.close()
    print("done", flush=True)
except CkioError as error:
    print(f"{type(error).__name__}: {error}", flush=True)
"""


@pytest.mark.slow
@needs_mpi
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("write", ["RankFailed: rank 1: OSError: no luck"] * 2),
        ("full", ["done"] * 2),  # the plan fits the least capacity of all ranks
        ("program", ["RankFailed: rank 1: OSError: no luck"] * 2),
        ("block", ["rank 1: OSError: no luck; the other ranks wait"]),
    ],
)
def test_an_error_on_one_rank_ends_all(how: str, words: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [MPIEXEC, "-n", "2", sys.executable, "-c", FAILING, tmp_path, how],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if len(words) == 2:
        assert done.stdout.splitlines() == words
        assert files(tmp_path) == []
    else:  # the other rank waits in a call of MPI
        assert done.returncode != 0
        assert words[0] in done.stderr


SEARCHING = pytest.param("overlapped", marks=pytest.mark.slow)  # it takes seconds to plan


@pytest.mark.parametrize(
    "planner",
    [SEARCHING if name == "overlapped" else name for name in registry.names("planners")],
)
def test_every_planner(planner: str, tmp_path: Path) -> None:
    room = platform(tmp_path, 50 if planner in {"store-all", "periodic"} else 3)
    for steps in (1, 2, 6, 13):
        reduced, _ = record(
            in_place,
            BEFORE,
            lambda tape, n=steps: enable(tape, room, steps=n, planner=planner, chain=CHAIN),
            steps,
        )
        assert np.array_equal(reduced.derivative().data, right(in_place, BEFORE, steps)[1])
        reduced(Field(AFTER))
        assert np.array_equal(reduced.derivative().data, right(in_place, AFTER, steps)[1])


@pytest.mark.parametrize(
    ("program", "fields"), [(two_steps, 2), (coefficient, 1), (forced, 1), (referred, 1)]
)
def test_sizes_are_found_out(program: Program, fields: int, tmp_path: Path) -> None:
    reduced, manager = record(program, BEFORE, lambda t: enable(t, platform(tmp_path), steps=STEPS))
    assert manager.schedule.chain.restart == fields * FIELD
    assert np.array_equal(reduced.derivative().data, right(program, BEFORE)[1])


def test_the_schedule_is_what_is_done(tmp_path: Path) -> None:
    """Steps, writes and reads on each level; and at no time is there more than it says."""
    peak = [0, 0]
    done = [[0, 0], [0, 0]]

    def use(tape: Tape) -> Manager:
        room = platform(tmp_path)
        manager = enable(tape, room, steps=STEPS, planner="multistage", chain=CHAIN)
        scratch = manager.storage.scratch
        put, get = scratch.put, scratch.get

        def counted_put(level: int, arrays: Any) -> Any:
            key = put(level, arrays)
            done[level][0] += 1
            peak[level] = max(peak[level], len(list(scratch.backends[level].keys())))
            return key

        def counted_get(level: int, key: Any) -> Any:
            done[level][1] += 1
            return get(level, key)

        scratch.put, scratch.get = counted_put, counted_get
        return manager

    Function.evaluated = 0
    reduced, manager = record(plain, BEFORE, use)
    reduced.derivative()
    said = counts(manager.schedule)
    assert Function.evaluated == said.forward + 1  # that is the functional
    # x_0 and x_1 take nothing: what no step makes, or the first, is in memory anyway.
    for level in range(2):
        assert done[level][0] <= said.levels[level].writes
        assert done[level][0] >= said.levels[level].writes - 3
        assert done[level][1] <= said.levels[level].reads
        assert 0 < peak[level] <= said.levels[level].peak


def test_values_of_steps_leave_memory(tmp_path: Path) -> None:
    """pyadjoint's own hold on a value is its variable's checkpoint: few of them have one."""
    reduced, _ = record(in_place, BEFORE, lambda t: enable(t, platform(tmp_path), steps=STEPS))
    reduced.derivative()
    outputs = [it for block in reduced.tape.get_blocks() for it in block.get_outputs()]
    there = [it for it in outputs if isinstance(it.checkpoint, Field)]
    assert len(outputs) == STEPS + 2
    assert len(there) == 2  # what step 0 makes
    with pytest.raises(MissingCheckpoint, match="on a level, or must be computed again"):
        _ = outputs[9].saved_output.data


def test_a_taylor_test_converges(tmp_path: Path) -> None:
    reduced, _ = record(two_steps, BEFORE, lambda t: enable(t, platform(tmp_path), steps=None))
    assert taylor_test(reduced, Field(AFTER), Field(0.01 * BEFORE)) > 1.99


def test_several_functionals_of_one_tape(tmp_path: Path) -> None:
    def both(times: Iterable[int], u: Field) -> Any:
        for _ in times:
            u = apply(*STEP, u)
        pair.extend([apply(*SQUARE, u), apply(*STEP, u)])
        return pair[0]

    pair: list[Any] = []
    reduced, _ = record(both, BEFORE, lambda t: enable(t, platform(tmp_path), steps=STEPS))
    other = ReducedFunctional(pair[1], reduced.controls[0], tape=reduced.tape)
    pair = []
    stored, _ = record(both, BEFORE)
    expected = ReducedFunctional(pair[1], stored.controls[0], tape=stored.tape)
    seed = Field(AFTER)
    for _ in range(2):
        assert np.array_equal(
            other.derivative(adj_input=seed).data, expected.derivative(adj_input=seed).data
        )
        assert np.array_equal(reduced.derivative().data, stored.derivative().data)
        value = other(Field(AFTER))  # is a field, and stays although the tape is gone through
        assert np.array_equal(value.data, expected(Field(AFTER)).data)


def test_several_controls(tmp_path: Path) -> None:
    """The start, and a force that every step takes."""

    def recorded(use: Callable[[Tape], Any]) -> ReducedFunctional:
        tape = Tape()
        set_working_tape(tape)
        continue_annotation()
        use(tape)
        start, force = Field(BEFORE), Field(AFTER)
        u = start
        for _ in tape.timestepper(iter(range(STEPS))):
            u = apply(*STEP, apply(*PLUS, u, force))
        functional = apply(*SQUARE, u)
        pause_annotation()
        return ReducedFunctional(functional, [Control(start), Control(force)])

    stored = recorded(lambda _: None)
    ours = recorded(lambda t: enable(t, platform(tmp_path), steps=STEPS, chain=CHAIN))
    for values in ([BEFORE, AFTER], [AFTER, BEFORE]):
        both = [reduced([Field(it) for it in values]) for reduced in (ours, stored)]
        assert float(both[0]) == float(both[1])
        for mine, theirs in zip(ours.derivative(), stored.derivative(), strict=True):
            assert np.array_equal(mine.data, theirs.data)


def test_a_control_that_a_step_makes(tmp_path: Path) -> None:
    made: list[Any] = []

    def program(times: Iterable[int], u: Field) -> Any:
        for i in times:
            u = apply(*STEP, u)
            made.extend([u] if i == 11 else [])
        return apply(*SQUARE, u)

    reduced, _ = record(program, BEFORE, lambda t: enable(t, platform(tmp_path), steps=STEPS))
    stored, _ = record(program, BEFORE)
    ours, theirs = (
        ReducedFunctional(it.functional, Control(u), tape=it.tape)
        for it, u in zip((reduced, stored), made, strict=True)
    )
    assert np.array_equal(ours.derivative().data, theirs.derivative().data)
    assert float(ours(Field(AFTER))) == float(theirs(Field(AFTER)))
    assert np.array_equal(ours.derivative().data, theirs.derivative().data)


def test_numbers_stay_in_memory(tmp_path: Path) -> None:
    def program(times: Iterable[int], u: Any) -> Any:
        for _ in times:
            u = u + 0.1 * (u - u**3)
        return u * u

    tape = Tape()
    with set_working_tape(tape):
        continue_annotation()
        manager = enable(tape, platform(tmp_path), steps=STEPS)
        control = AdjFloat(0.3)
        functional = program(tape.timestepper(iter(range(STEPS))), control)
        pause_annotation()
        reduced = ReducedFunctional(functional, Control(control))
        assert manager.schedule.chain.restart == 0
        assert taylor_test(reduced, AdjFloat(0.4), AdjFloat(0.1)) > 1.95
        assert files(tmp_path) == []


@pytest.mark.parametrize("more", [{}, {"codec": "zstd"}], ids=["plain", "compressed"])
def test_an_archive(more: dict[str, Any], tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "a.h5")} | more
    level = Level(name="archive", capacity=8 * FIELD, backend="hdf5", options=options)
    room = Platform((level,), working_memory=6 * FIELD)
    check(swapped, lambda tape: enable(tape, room, steps=STEPS, chain=CHAIN))


class Listed(Field):
    """What scipy needs of a control beside."""

    @staticmethod
    def _ad_to_list(value: Any) -> list[float]:
        return list(value.data)

    @staticmethod
    def _ad_assign_numpy(target: Any, source: Array, offset: int) -> tuple[Any, int]:
        size = target.data.size
        target.data[...] = source[offset : offset + size]
        return target, offset + size

    def _ad_dim(self) -> int:
        return self.data.size

    def _ad_copy(self) -> Field:
        return Listed(self.data)

    _ad_create_checkpoint = _ad_copy

    def _ad_convert_riesz(self, value: Any, riesz_map: object = None) -> Field:
        return Listed(value)


def test_a_minimizer_goes_the_same_way(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    ours, _ = record(summed, Listed(BEFORE), lambda t: enable(t, platform(tmp_path), steps=STEPS))
    stored, _ = record(summed, Listed(BEFORE))
    options = {"ftol": 1e-3}  # it raises where it stops before it converges
    found = minimize(ours, method="L-BFGS-B", options=options)
    expected = minimize(stored, method="L-BFGS-B", options=options)
    assert np.array_equal(found.data, expected.data)
    assert not np.array_equal(found.data, BEFORE)


def test_a_cleared_tape_is_recorded_again(tmp_path: Path) -> None:
    """With checkpoints and without, whatever it had before."""
    tape = Tape()
    expected = right(plain, BEFORE)[1]
    for managed in (True, True, False, True):
        with set_working_tape(tape):
            continue_annotation()
            manager = enable(tape, platform(tmp_path), steps=STEPS) if managed else None
            control = Field(BEFORE)
            functional = plain(tape.timestepper(iter(range(STEPS))), control)
            pause_annotation()
            if manager is None:  # what ckio refuses is no matter of a tape that it left
                tape.restore_block_vars(tape.checkpoint_block_vars())
                tape.copy()
            reduced = ReducedFunctional(functional, Control(control), tape=tape)
            assert np.array_equal(reduced.derivative().data, expected)
            tape.clear_tape()
            assert files(tmp_path) == []


def test_an_interrupt_while_a_functional_is_evaluated(tmp_path: Path) -> None:
    """In the middle of a step: the next evaluation is right, and so is its gradient."""
    armed = False

    def step(u: Any) -> Any:
        if armed and Function.evaluated == 17:
            raise KeyboardInterrupt
        return diffused(u)

    def program(times: Iterable[int], u: Field) -> Any:
        for _ in times:
            u = apply(step, STEP[1], u)
        return apply(*SQUARE, u)

    reduced, _ = record(program, BEFORE, lambda tape: enable(tape, platform(tmp_path), steps=STEPS))
    for begin in (lambda: reduced(Field(AFTER)), reduced.derivative):
        reduced(Field(AFTER))
        armed, Function.evaluated = True, 0
        with pytest.raises(KeyboardInterrupt):
            begin()
        armed = False
        assert np.array_equal(reduced.derivative().data, right(plain, AFTER)[1])
        assert float(reduced(Field(BEFORE))) == right(plain, BEFORE)[0]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_steps(tmp_path: Path) -> None:
    """One object is overwritten 150 times: what is in memory are the slots and a tape or two."""
    cells, slots = 20_000, 8
    level = Level(name="memory", capacity=slots * 8 * cells)
    room = Platform((level,), working_memory=2 * 8 * cells)
    start = np.random.default_rng(3).normal(scale=0.4, size=cells)
    tracemalloc.start()
    try:
        reduced, _ = record(
            in_place, start, lambda t: enable(t, room, steps=150, planner="revolve"), 150
        )
        reduced.derivative()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (slots + 20) * 8 * cells


def test_tapes_in_threads(tmp_path: Path) -> None:
    """Recorded one after the other, as pyadjoint demands; evaluated at once, on one directory."""
    tapes = [
        record(plain, start, lambda tape: enable(tape, platform(tmp_path), steps=STEPS))[0]
        for start in (BEFORE, AFTER, BEFORE + AFTER)
    ]
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        for _ in range(3):
            found[number] = tapes[number].derivative().data

    threads = [Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, start in enumerate((BEFORE, AFTER, BEFORE + AFTER)):
        assert np.array_equal(found[number], right(plain, start)[1])


# What upstream's own manager does. Where these fail, it has become right: say so on the page.


@pytest.mark.parametrize(
    "schedule", [lambda: upstream.Revolve(STEPS, 4), lambda: upstream.HRevolve(STEPS, 4, 0)]
)
def test_upstream_takes_steps_back_at_the_wrong_states(schedule: Callable[[], Any]) -> None:
    """Inputs of a step that is computed again are dropped before its adjoint asks for them."""
    gradients = {}
    for program in (plain, in_place):
        reduced, _ = record(program, BEFORE, lambda tape: tape.enable_checkpointing(schedule()))
        gradients[program] = reduced.derivative().data
        assert float(reduced(Field(AFTER))) == right(program, AFTER)[0]
        there = right(program, AFTER)[1]
        wrong = reduced.derivative().data
        assert np.linalg.norm(wrong - there) > 1e-4 * np.linalg.norm(there)
    here = right(plain, BEFORE)[1]
    assert np.array_equal(gradients[plain], here)
    assert np.linalg.norm(gradients[in_place] - here) > 1e-4 * np.linalg.norm(here)


@pytest.mark.parametrize("planner", ["hrevolve", "mixed", "multistage", "revolve", "store-all"])
def test_upstreams_own_manager_takes_a_schedule_of_ckio(planner: str) -> None:
    """Its first gradient is right; the second never is, as in the tests of `enable`."""
    one = Chain(steps=STEPS, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    slots = STEPS if planner == "store-all" else 4
    room = Platform((Level(name="memory", capacity=slots),), working_memory=1)
    schedule = registry.find("planners", planner)(one, room)
    assert isinstance(as_checkpoint_schedule(schedule, room), upstream.CheckpointSchedule)
    reduced, _ = record(
        plain,
        BEFORE,
        lambda tape: tape.enable_checkpointing(as_checkpoint_schedule(schedule, room)),
    )
    assert np.array_equal(reduced.derivative().data, right(plain, BEFORE)[1])
