"""Gradients of pyadjoint's tapes whose values lie on ckio's levels."""

from collections.abc import Callable, Iterable
from pathlib import Path
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
    PROGRAMS,
    SQUARE,
    STEP,
    STEPS,
    Program,
    coefficient,
    files,
    forced,
    in_place,
    plain,
    platform,
    record,
    right,
    two_steps,
)
from adjoint_fields import Field, Function, apply
from pyadjoint import (
    AdjFloat,
    Control,
    ReducedFunctional,
    Tape,
    continue_annotation,
    pause_annotation,
    set_working_tape,
    taylor_test,
)

from ckio.adapters import registry
from ckio.adapters.pyadjoint import Manager, enable
from ckio.errors import MissingCheckpoint
from ckio.schedule import counts


@pytest.mark.campaign
@pytest.mark.parametrize("steps", [STEPS, None], ids=["known", "not known"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("planner", ["hrevolve", "mixed"])
def test_gradients_are_those_of_a_tape_that_stores_all(
    program: Program, planner: str, steps: int | None, tmp_path: Path
) -> None:
    reduced, manager = record(
        program,
        BEFORE,
        lambda tape: enable(tape, platform(tmp_path), steps=steps, planner=planner, chain=CHAIN),
    )
    functional, gradient = right(program, BEFORE)
    other, gradient_there = right(program, AFTER)
    assert np.array_equal(reduced.derivative().data, gradient)
    assert float(reduced(Field(AFTER))) == other
    for _ in range(2):
        assert np.array_equal(reduced.derivative().data, gradient_there)
    assert float(reduced(Field(BEFORE))) == functional
    assert np.array_equal(reduced.derivative().data, gradient)
    assert manager.storage.stored == [set(), set()]
    manager.close()
    assert files(tmp_path) == []


SEARCHING = pytest.param("overlapped", marks=pytest.mark.slow)  # it takes seconds to plan


@pytest.mark.parametrize(
    "planner",
    [SEARCHING if name == "overlapped" else name for name in registry.names("planners")],
)
@pytest.mark.parametrize("steps", [1, 2, 6, 13])
def test_every_planner(planner: str, steps: int, tmp_path: Path) -> None:
    room = platform(tmp_path, 50 if planner in {"store-all", "periodic"} else 3)
    reduced, _ = record(
        in_place,
        BEFORE,
        lambda tape: enable(tape, room, steps=steps, planner=planner, chain=CHAIN),
        steps,
    )
    assert np.array_equal(reduced.derivative().data, right(in_place, BEFORE, steps)[1])
    reduced(Field(AFTER))
    assert np.array_equal(reduced.derivative().data, right(in_place, AFTER, steps)[1])


@pytest.mark.parametrize("program", [two_steps, coefficient, forced])
def test_sizes_are_found_out(program: Program, tmp_path: Path) -> None:
    reduced, manager = record(program, BEFORE, lambda t: enable(t, platform(tmp_path), steps=STEPS))
    fields = {two_steps: 2, coefficient: 1, forced: 1}[program]
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
    with pytest.raises(MissingCheckpoint, match="on a level, or to be computed again"):
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
