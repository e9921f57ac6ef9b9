"""What goes wrong with a pyadjoint tape on ckio's levels is said, and leaves nothing behind."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyadjoint")

from adjoint_fields import (
    Array,
    Field,
    Function,
    apply,
    diffused,
    diffused_adjoint,
    half_square,
    half_square_adjoint,
)
from pyadjoint import (
    Control,
    ReducedFunctional,
    Tape,
    continue_annotation,
    pause_annotation,
    set_working_tape,
)

from ckio.adapters.pyadjoint import Manager, enable
from ckio.errors import BadInput, LevelFull, MissingCheckpoint
from ckio.platform import Level, Platform

STEPS, CELLS = 12, 16
FIELD = 8 * CELLS


@pytest.fixture(autouse=True)
def _annotating() -> Iterator[None]:
    continue_annotation()
    yield
    pause_annotation()


@pytest.fixture
def tape() -> Iterator[Tape]:
    with set_working_tape(Tape()) as fresh:
        yield fresh


def on_disk(place: Path, slots: int = 4, **more: Any) -> Platform:
    options = {"path": str(place / "level")}
    level = Level(name="files", capacity=slots * FIELD, backend="directory", options=options)
    return Platform((level,), working_memory=4 * FIELD, **more)


def loop(tape: Tape, steps: int, step: Callable[..., Array] = diffused) -> ReducedFunctional:
    control = u = Field(np.linspace(0, 1, CELLS))
    for _ in tape.timestepper(iter(range(steps))):
        u = apply(step, diffused_adjoint, u)
    functional = apply(half_square, half_square_adjoint, u)
    return ReducedFunctional(functional, Control(control), tape=tape)


def files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


def test_another_number_of_steps_than_planned(tmp_path: Path) -> None:
    with set_working_tape(Tape()) as tape:
        enable(tape, on_disk(tmp_path), steps=STEPS)
        with pytest.raises(BadInput, match="more than the 12 steps"):
            loop(tape, STEPS + 1)
    for made in (1, 3, STEPS - 1):
        with set_working_tape(Tape()) as tape:
            enable(tape, on_disk(tmp_path), steps=STEPS)
            reduced = loop(tape, made)
            with pytest.raises(BadInput, match=f"made {made} steps.* steps = 12"):
                reduced.derivative()


def test_a_tape_that_cannot_be_managed(tape: Tape, tmp_path: Path) -> None:
    for steps in (0, -1, 2.5):
        with pytest.raises(BadInput, match="whole number of at least 1"):
            enable(tape, on_disk(tmp_path), steps=steps)
    enable(tape, on_disk(tmp_path), steps=STEPS)
    with pytest.raises(BadInput, match="managed already"):
        enable(tape, on_disk(tmp_path), steps=STEPS)
    with set_working_tape(Tape()) as begun:
        apply(diffused, diffused_adjoint, Field(np.ones(CELLS)))
        with pytest.raises(BadInput, match="annotated already"):
            enable(begun, on_disk(tmp_path), steps=STEPS)


def test_a_type_that_nobody_has_registered(tape: Tape, tmp_path: Path) -> None:
    from pyadjoint.overloaded_type import OverloadedType

    class Unknown(OverloadedType):
        data = np.ones(CELLS)

        def _ad_create_checkpoint(self) -> "Unknown":
            return self

    def run(u: Any) -> None:
        for _ in tape.timestepper(iter(range(STEPS))):
            block = Function(diffused, diffused_adjoint, [u])
            tape.add_block(block)
            u = Unknown()
            block.add_output(u.create_block_variable())

    enable(tape, on_disk(tmp_path), steps=STEPS)
    with pytest.raises(BadInput, match=r"Unknown, a type that ckio does not know.*register"):
        run(Field(np.ones(CELLS)))


def growing(tape: Tape) -> None:
    """From the eighth step on, each starts from all states since then."""
    u, kept = Field(np.ones(CELLS)), []
    for i in tape.timestepper(iter(range(30))):
        u = apply(diffused, diffused_adjoint, u)
        for old in kept:
            u = apply(lambda a, b: a + 0 * b, lambda bar, _a, _b: (bar, 0 * bar), u, old)
        kept += [u] if i > 7 else []


def test_states_that_grow_fill_a_level(tape: Tape, tmp_path: Path) -> None:
    manager = enable(tape, on_disk(tmp_path), steps=30, planner="revolve")
    with pytest.raises(LevelFull, match=r"planned for 128 bytes of restart data.*`chain`"):
        growing(tape)
    with pytest.raises(BadInput, match=r"levels of this tape were closed.*record a new tape"):
        manager.recompute()
    assert files(tmp_path) == []


def test_a_tape_that_changes_after_it_was_evaluated(tape: Tape, tmp_path: Path) -> None:
    enable(tape, on_disk(tmp_path), steps=STEPS)
    reduced = loop(tape, STEPS)
    reduced.derivative()
    apply(diffused, diffused_adjoint, Field(np.ones(CELLS)))
    with pytest.raises(BadInput, match="the tape has changed"):
        reduced.derivative()


def test_what_a_recorded_tape_refuses(tape: Tape, tmp_path: Path) -> None:
    enable(tape, on_disk(tmp_path), steps=STEPS)
    reduced = loop(tape, STEPS)
    with pytest.raises(BadInput, match="cannot be saved"):
        tape.checkpoint_block_vars()
    with pytest.raises(BadInput, match="cannot be copied"):
        tape.copy()
    reduced.derivative()
    # pyadjoint goes through the whole tape for second derivatives, and asks no manager
    with pytest.raises((MissingCheckpoint, NotImplementedError)):
        reduced.hessian(Field(np.ones(CELLS)))
    reduced.optimize_tape()
    with pytest.raises(BadInput, match="do not optimize"):
        reduced.derivative()


def test_levels_are_closed_with_the_manager(tape: Tape, tmp_path: Path) -> None:
    with enable(tape, on_disk(tmp_path), steps=STEPS) as manager:
        reduced = loop(tape, STEPS)
        assert files(tmp_path) != []
    assert files(tmp_path) == []
    with pytest.raises(BadInput, match="levels of this tape were closed"):
        reduced.derivative()
    assert isinstance(manager, Manager)
