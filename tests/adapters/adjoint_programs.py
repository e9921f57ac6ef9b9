"""Programs whose tapes are recorded, and what their functionals and gradients are."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from adjoint_fields import (
    Array,
    Field,
    apply,
    diffused,
    diffused_adjoint,
    half_square,
    half_square_adjoint,
)
from pyadjoint import (
    AdjFloat,
    Control,
    ReducedFunctional,
    Tape,
    continue_annotation,
    get_working_tape,
    pause_annotation,
    set_working_tape,
    stop_annotating,
)
from pyadjoint.block import Block
from pyadjoint.overloaded_type import FloatingType, OverloadedType

from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain

STEPS, CELLS = 30, 16
FIELD = 8 * CELLS
BEFORE, AFTER = (np.random.default_rng(seed).normal(scale=0.4, size=CELLS) for seed in (1, 2))

STEP = diffused, diffused_adjoint
SQUARE = half_square, half_square_adjoint
COPY = (lambda u: u.copy(), lambda bar, u: (bar,))
TIMES = (lambda u, k: u * (1 + 0.1 * k), lambda bar, u, k: (bar * (1 + 0.1 * k), bar * u * 0.1))
PLUS = (lambda u, f: u + 0.1 * f, lambda bar, u, f: (bar, 0.1 * bar))
TWO = (
    lambda u, v: 0.6 * u + 0.4 * np.roll(v, 1) + 0.01 * u * v * v,
    lambda bar, u, v: (
        0.6 * bar + 0.01 * bar * v * v,
        np.roll(0.4 * bar, -1) + 0.02 * bar * u * v,
    ),
)

Program = Callable[[Iterable[int], Field], Any]


def plain(times: Iterable[int], u: Field) -> Any:
    for _ in times:
        u = apply(*STEP, u)
    return apply(*SQUARE, u)


def in_place(times: Iterable[int], control: Field) -> Any:
    """As solvers do it: one object, which each step overwrites."""
    u = apply(*COPY, control)
    for _ in times:
        apply(*STEP, u, out=u)
    return apply(*SQUARE, u)


def two_steps(times: Iterable[int], u: Field) -> Any:
    """A scheme of second order: a step starts from two states."""
    before = u
    for _ in times:
        u, before = apply(*TWO, u, before), u
    return apply(*SQUARE, u)


def seldom(times: Iterable[int], u: Field) -> Any:
    """What step 2 makes is used at every seventh step, long after checkpoints were written."""
    kept = u
    for i in times:
        if i == 2:
            kept = apply(*STEP, u)
        u = apply(*STEP, u)
        if i % 7 == 6:
            u = apply(*TIMES, u, kept)
    return apply(*SQUARE, u)


def forced(times: Iterable[int], control: Field) -> Any:
    """The program changes an input of its own before every step."""
    u, force = apply(*COPY, control), Field(np.zeros(CELLS))
    for i in times:
        with stop_annotating(modifies=force):
            force.data[...] = np.sin(i + np.arange(CELLS))
        u = apply(*STEP, apply(*PLUS, u, force))
    return apply(*SQUARE, u)


def summed(times: Iterable[int], u: Field) -> Any:
    """The functional is a sum over all steps."""
    total = AdjFloat(0.0)
    for _ in times:
        u = apply(*STEP, u)
        total = total + apply(*SQUARE, u)
    return total


def coefficient(times: Iterable[int], u: Field) -> Any:
    """What is made before the loop is used in every step."""
    k = apply(*STEP, u)
    for _ in times:
        u = apply(*STEP, apply(*TIMES, u, k))
    return apply(*SQUARE, u)


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


class Solve(Block):
    """An implicit step v + v**3 / 10 = u, by two Newton iterations from the value of its output."""

    def __init__(self, u: Field) -> None:
        super().__init__()
        self.add_dependency(u)

    def solution(self, u: Array, v: Array) -> Array:
        for _ in range(2):
            v = v - (v + v**3 / 10 - u) / (1 + 0.3 * v**2)
        return v

    def recompute_component(self, inputs: Any, variable: Any, *_: object) -> Field:
        return Field(self.solution(inputs[0].data, variable.saved_output.data))

    def evaluate_adj_component(self, inputs: Any, bars: Any, *_: object) -> Field:
        v = self.get_outputs()[0].saved_output.data
        return Field(bars[0].data / (1 + 0.3 * v**2))


def implicit(times: Iterable[int], control: Field) -> Any:
    """Each step is solved for, from the state before it as initial guess, into one object."""
    u, v = apply(*COPY, control), Field(control)
    for _ in times:
        block = Solve(u)
        v.data[...] = block.solution(u.data, v.data)
        get_working_tape().add_block(block)
        block.add_output(v.create_block_variable())
        apply(*COPY, v, out=u)
    return apply(*SQUARE, u)


class Walls(OverloadedType):
    """Something that never changes, for example boundary conditions."""

    data = 0.9

    def _ad_create_checkpoint(self) -> "Walls":
        return self

    def _ad_restore_at_checkpoint(self, checkpoint: "Walls") -> "Walls":
        return checkpoint


class Build(Block):
    """A block that returns such a thing, as frameworks record it."""

    def recompute_component(self, *_: object) -> Walls:
        return Walls()

    def evaluate_adj_component(self, *_: object) -> None:
        return None


def walled(times: Iterable[int], u: Field) -> Any:
    """Each step makes its own boundary condition, and uses it."""
    for _ in times:
        block, walls = Build(), Walls()
        block.add_dependency(u)
        get_working_tape().add_block(block)
        block.add_output(walls.create_block_variable())
        u = apply(lambda u, wall: u * wall, lambda bar, u, wall: (bar * wall, 0), u, walls)
    return apply(*SQUARE, u)


class Reference(OverloadedType):
    """A checkpoint that is the value of another variable, as Firedrake's `assign` stores it."""

    def __init__(self, other: Any) -> None:
        super().__init__()
        self.other = other

    def restore(self) -> Field:
        return Field(self.other.saved_output)


class Referring(Field):
    """A field whose checkpoint may be a reference."""

    def _ad_restore_at_checkpoint(self, checkpoint: Any) -> Field:
        return checkpoint.restore() if isinstance(checkpoint, Reference) else checkpoint


def referred(times: Iterable[int], control: Field) -> Any:
    """Each step starts from `u` and `v`, overwrites `v`, and assigns it to `u` by a reference."""
    u, v = Referring(control), Field(control)
    apply(*COPY, control, out=u)
    for _ in times:
        apply(*TWO, u, v, out=v)
        apply(*COPY, v, out=u)
        u.block_variable._checkpoint = Reference(v.block_variable)
    return apply(*SQUARE, u)


class Take(Block):
    """A part of a field, as Firedrake records `subfunctions`."""

    def __init__(self, whole: Field) -> None:
        super().__init__()
        self.add_dependency(whole)

    def recompute_component(self, inputs: Any, *_: object) -> Field:
        return Field(inputs[0].data)

    def evaluate_adj_component(self, inputs: Any, bars: Any, *_: object) -> Field:
        return Field(bars[0].data)


class Part(FloatingType, Field):
    """A view of a field, with a new variable each time that a block uses it."""

    def __init__(self, whole: Field) -> None:
        super().__init__(block_class=Take, _ad_args=[whole], _ad_floating_active=True)
        self.data = whole.data


def parted(times: Iterable[int], control: Field) -> Any:
    """Each step overwrites `v`, and assigns a part of it to `u` by a reference."""
    u, v = Referring(control), Field(control)
    apply(*COPY, control, out=u)
    part = Part(v)
    for _ in times:
        apply(*TWO, u, v, out=v)
        apply(lambda u, v: v.copy(), lambda bar, u, v: (0 * bar, bar), u, part, out=u)
        u.block_variable._checkpoint = Reference(part.block_variable)
    return apply(*SQUARE, u)


class Watch(Block):
    """A block that returns nothing, for example one that writes a state to a file."""

    def __init__(self, u: Field) -> None:
        super().__init__()
        self.add_dependency(u)


def watched(times: Iterable[int], u: Field) -> Any:
    """Each step has a block without an output."""
    for _ in times:
        u = apply(*STEP, u)
        get_working_tape().add_block(Watch(u))
    return apply(*SQUARE, u)


PROGRAMS = (
    plain, in_place, two_steps, seldom, forced, summed, coefficient, two_loops,
    control_everywhere, looked_at, accumulated, swapped, late, before_the_loop, new_inputs,
    several_outputs, watched, referred, parted,
)  # fmt: skip

Enable = Callable[[Tape], Any]


def record(
    program: Program, start: Array | Field, use: Enable = lambda _: None, steps: int = STEPS
) -> tuple[ReducedFunctional, Any]:
    """The reduced functional of a program, and what `use` made of its tape."""
    tape = Tape()
    set_working_tape(tape)
    continue_annotation()
    try:
        used = use(tape)
        control = start if isinstance(start, Field) else Field(start)
        functional = program(tape.timestepper(iter(range(steps))), control)
    finally:
        pause_annotation()
    return ReducedFunctional(functional, Control(control)), used


def right(program: Program, start: Array, steps: int = STEPS) -> tuple[float, Array]:
    """Functional and gradient by a tape that stores all."""
    reduced, _ = record(program, start, steps=steps)
    return float(reduced.functional), reduced.derivative().data


def platform(place: Path, slots: int = 3) -> Platform:
    """Two levels with room for so many states of two fields each."""
    cost = Affine(latency=1e-4, per_byte=0)
    return Platform(
        (
            Level(name="memory", capacity=slots * 2 * FIELD),
            Level(
                name="files",
                capacity=slots * 2 * FIELD,
                write=cost,
                read=cost,
                backend="directory",
                options={"path": str(place / "level")},
            ),
        ),
        working_memory=6 * FIELD,
    )


CHAIN = Chain(
    steps=None, advance=1e-4, record=1e-4, reverse=1e-4, restart=2 * FIELD, tape=6 * FIELD,
    adjoint=FIELD,
)  # fmt: skip


def files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]
