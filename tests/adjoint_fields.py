"""What a program on pyadjoint is made of: fields, functions of them, and files for upstream.

For tests that need such programs, and for `bench/peers/adjoint_tapes.py`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pyadjoint import AdjFloat
from pyadjoint.block import Block
from pyadjoint.overloaded_type import OverloadedType
from pyadjoint.tape import TapePackageData, annotate_tape, get_working_tape, stop_annotating

from ckio.adapters.pyadjoint import register

Array = NDArray[np.float64]


class Field(OverloadedType):
    """A state of a model: an array with what pyadjoint asks of the type of a variable."""

    def __init__(self, data: object) -> None:
        super().__init__()
        self.data: Array = np.array(data.data if isinstance(data, Field) else data, np.float64)

    def _ad_create_checkpoint(self) -> "Field":
        return Field(self.data)

    def _ad_restore_at_checkpoint(self, checkpoint: "Field") -> "Field":
        return checkpoint

    def _ad_convert_riesz(self, value: object, riesz_map: object = None) -> "Field":
        return Field(value)

    def _ad_init_zero(self, dual: bool = False) -> "Field":
        return Field(np.zeros_like(self.data))

    def _ad_mul(self, other: float) -> "Field":
        return Field(self.data * other)

    def _ad_add(self, other: "Field") -> "Field":
        return Field(self.data + other.data)

    def _ad_dot(self, other: "Field") -> float:
        return float(self.data @ other.data)

    def _ad_copy(self) -> "Field":
        return Field(self.data)

    def __mul__(self, other: float) -> "Field":
        return Field(self.data * other)

    def __iadd__(self, other: "Field") -> "Field":
        return Field(self.data + other.data)


register(Field, lambda u: {"u": u.data}, lambda like, arrays: type(like)(arrays["u"]))


class Function(Block):
    """A function of arrays, of which the adjoint is known; its value is an array or a number."""

    evaluated = 0
    """How often any of them has been evaluated."""

    def __init__(self, value: Callable[..., Any], adjoint: Callable[..., Any], inputs: Any) -> None:
        super().__init__()
        self.value, self.adjoint = value, adjoint
        for it in inputs:
            self.add_dependency(it)

    def recompute_component(self, inputs: Any, *_: object) -> Any:
        Function.evaluated += 1
        value = self.value(*(it.data for it in inputs))
        kind = type(self._dependencies[0].output)
        return kind(value) if isinstance(value, np.ndarray) else AdjFloat(value)

    def prepare_evaluate_adj(self, inputs: Any, adj_inputs: Any, _: object) -> Any:
        bar = adj_inputs[0]
        given = bar.data if isinstance(bar, Field) else float(bar)
        return self.adjoint(given, *(it.data for it in inputs))

    def evaluate_adj_component(
        self, inputs: Any, adj_inputs: Any, variable: Any, number: int, prepared: Any = None
    ) -> Field:
        return Field(prepared[number])


def apply(
    value: Callable[..., Any], adjoint: Callable[..., Any], *inputs: Field, out: Field | None = None
) -> Any:
    """Call a function, and annotate it; into `out`, where that is given, as solvers do it."""
    block = Function(value, adjoint, inputs) if annotate_tape() else None
    with stop_annotating():
        Function.evaluated += 1
        got = value(*(it.data for it in inputs))
        if out is not None:
            out.data[...] = got
            result = out
        else:
            result = type(inputs[0])(got) if isinstance(got, np.ndarray) else AdjFloat(got)
    if block is not None:
        get_working_tape().add_block(block)
        block.add_output(result.create_block_variable())
    return result


NU, DT = 0.2, 0.01


def diffused(u: Array) -> Array:
    return u + NU * (np.roll(u, 1) - 2 * u + np.roll(u, -1)) + DT * (u - u**3)


def diffused_adjoint(bar: Array, u: Array) -> tuple[Array]:
    back = bar + NU * (np.roll(bar, -1) - 2 * bar + np.roll(bar, 1)) + DT * (1 - 3 * u**2) * bar
    return (back,)


def half_square(u: Array) -> float:
    return float(0.5 * u @ u)


def half_square_adjoint(bar: float, u: Array) -> tuple[Array]:
    return (bar * u,)


class InFiles(OverloadedType):
    """What upstream is given where it wants a value on disk; the file goes with the last of it."""

    def __init__(self, files: "Files", data: Array) -> None:
        super().__init__()
        self.files, self.name = files, files.put(data)

    def _ad_restore_at_checkpoint(self, checkpoint: "InFiles") -> Field:
        return State(checkpoint.files.get(checkpoint.name))

    def __del__(self) -> None:
        self.files.drop(self.name)


class Files(TapePackageData):
    """The least that upstream's manager needs for checkpoints on disk: a file for each value."""

    def __init__(self, place: Path) -> None:
        self.place, self.on = place, False
        self.writes = self.reads = self.there = self.peak = 0

    def put(self, data: Array) -> Path:
        name = self.place / f"{self.writes}.npy"
        np.save(name, data)
        self.writes += 1
        self.there += 1
        self.peak = max(self.peak, self.there)
        return name

    def get(self, name: Path) -> Array:
        self.reads += 1
        return np.asarray(np.load(name))

    def drop(self, name: Path) -> None:
        self.there -= 1
        name.unlink(missing_ok=True)

    def continue_checkpointing(self) -> None:
        self.on = True

    def pause_checkpointing(self) -> None:
        self.on = False

    def clear(self) -> None: ...
    def reset(self) -> None: ...
    def checkpoint(self) -> None: ...
    def restore_from_checkpoint(self, state: object) -> None: ...
    def copy(self) -> "Files":
        return self


class State(Field):
    """A field that upstream can have on disk too."""

    files: ClassVar[Files | None] = None

    def _ad_create_checkpoint(self) -> Any:
        on_disk = State.files is not None and State.files.on
        return InFiles(State.files, self.data) if on_disk else State(self.data)

    def _ad_restore_at_checkpoint(self, checkpoint: Any) -> Any:
        if isinstance(checkpoint, InFiles):
            return State(checkpoint.files.get(checkpoint.name))
        return checkpoint
