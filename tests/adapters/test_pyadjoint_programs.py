"""Programs as odd as pyadjoint lets them be, on ckio's levels; minimizers, memory, interrupts."""

import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyadjoint")

import checkpoint_schedules as upstream
from adapters.adjoint_programs import (
    AFTER,
    BEFORE,
    CELLS,
    CHAIN,
    COPY,
    FIELD,
    PLUS,
    SQUARE,
    STEP,
    STEPS,
    TIMES,
    TWO,
    Program,
    files,
    in_place,
    plain,
    platform,
    record,
    right,
    summed,
)
from adjoint_fields import Array, Field, Function, apply, diffused
from pyadjoint import (
    AdjFloat,
    Control,
    ReducedFunctional,
    Tape,
    continue_annotation,
    get_working_tape,
    minimize,
    pause_annotation,
    set_working_tape,
    stop_annotating,
)
from pyadjoint.block import Block

from ckio.adapters import registry
from ckio.adapters.checkpoint_schedules import as_checkpoint_schedule
from ckio.adapters.pyadjoint import enable
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain


def two_loops(times: Iterable[int], u: Field) -> Any:
    """A loop that is left, something between, and one that goes on with the same time steps."""
    times = iter(times)
    for i in times:
        u = apply(*STEP, u)
        if i == 14:
            break
    u = apply(*STEP, u)
    for _ in times:
        u = apply(*STEP, u)
    return apply(*SQUARE, u)


def control_everywhere(times: Iterable[int], control: Field) -> Any:
    u = control
    for _ in times:
        u = apply(*STEP, apply(*PLUS, u, control))
    return apply(*SQUARE, u)


def looked_at(times: Iterable[int], u: Field) -> Any:
    """Some of it is not annotated, and some of what is annotated is used by nobody."""
    for _ in times:
        with stop_annotating():
            apply(*STEP, u)
        apply(*STEP, apply(*STEP, u))
        u = apply(*STEP, u)
    return apply(*SQUARE, u)


def accumulated(times: Iterable[int], control: Field) -> Any:
    """One object, overwritten twice in a step, and a sum of numbers that depend on each other."""
    u, total = apply(*COPY, control), AdjFloat(0.0)
    for i in times:
        apply(*STEP, u, out=u)
        apply(*TIMES, u, control, out=u)
        if i % 4 == 0:
            total += apply(*SQUARE, u) * (1 + 0.5 * total if i % 8 else 1)
    return total


def swapped(times: Iterable[int], control: Field) -> Any:
    """Two objects that change places."""
    a, b = apply(*COPY, control), apply(*COPY, control)
    for _ in times:
        apply(*TWO, a, b, out=b)
        a, b = b, a
    return apply(*SQUARE, apply(*PLUS, a, b))


def late(times: Iterable[int], u: Field) -> Any:
    """Nothing is done in the first steps, and then in every third."""
    for i in times:
        if i > 9 and i % 3 == 0:
            u = apply(*STEP, u)
    return apply(*SQUARE, u)


def before_the_loop(times: Iterable[int], u: Field) -> Any:
    u = apply(*STEP, u)
    for _ in times:
        pass
    return apply(*SQUARE, u)


def new_inputs(times: Iterable[int], u: Field) -> Any:
    for i in times:
        u = apply(*PLUS, apply(*STEP, u), Field(np.full(CELLS, i / 10)))
    return apply(*SQUARE, u)


class Halves(Block):
    """One block with two outputs, of which a program may use one."""

    def __init__(self, u: Field) -> None:
        super().__init__()
        self.add_dependency(u)

    def recompute_component(self, inputs: Any, variable: Any, number: int, _: object) -> Field:
        return Field(inputs[0].data * (0.9 if number else np.cos(inputs[0].data)))

    def evaluate_adj_component(
        self, inputs: Any, bars: Any, variable: Any, number: int, _: object = None
    ) -> Field:
        u = inputs[0].data
        slopes = np.cos(u) - u * np.sin(u), 0.9
        given = zip(bars, slopes, strict=True)
        return Field(sum(bar.data * slope for bar, slope in given if bar is not None))


def several_outputs(times: Iterable[int], u: Field) -> Any:
    for i in times:
        block = Halves(u)
        values = [block.recompute_component([u], None, number, None) for number in range(2)]
        get_working_tape().add_block(block)
        for value in values:
            block.add_output(value.create_block_variable())
        u = apply(*TIMES, *values) if i % 3 else values[1]
    return apply(*SQUARE, u)


ODD = (
    two_loops,
    control_everywhere,
    looked_at,
    accumulated,
    swapped,
    late,
    before_the_loop,
    new_inputs,
    several_outputs,
)


def check(program: Program, use: Callable[[Tape], Any]) -> None:
    """Values and gradients are those of a tape that stores all, in whatever order asked for."""
    ours, _ = record(program, BEFORE, use)
    stored, _ = record(program, BEFORE)
    assert np.array_equal(ours.derivative().data, stored.derivative().data)
    for there, times in (AFTER, 1), (BEFORE, 2), (BEFORE, 1):
        for _ in range(times):
            assert float(ours(Field(there))) == float(stored(Field(there)))
        for _ in range(2):
            assert np.array_equal(ours.derivative().data, stored.derivative().data)


@pytest.mark.campaign
@pytest.mark.parametrize("program", ODD)
@pytest.mark.parametrize(
    ("planner", "steps"), [("hrevolve", STEPS), ("mixed", STEPS), ("multistage", None)]
)
def test_odd_programs(program: Program, planner: str, steps: int | None, tmp_path: Path) -> None:
    check(
        program,
        lambda tape: enable(tape, platform(tmp_path), steps=steps, planner=planner, chain=CHAIN),
    )


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
