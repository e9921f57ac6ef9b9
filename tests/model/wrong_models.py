"""A right model of two coupled fields, and the same with one mistake each.

    u' = u + h (k lap(u) + u v)        v' = v + (u - v) / 10 + force        J = Σ |u|² / 2 + Σ v_n³

The initial u is a control, and v_0 = u_0² / 2. `WRONG` lists the models with what `check_model` has
to say: the kind of fault, the array, and the steps where it may be seen.
"""

import runpy
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ckio.actions import Field, Kind
from ckio.model import ArrayModel, as_bytes

N, H = 12, 0.05
SOLVER = Path(__file__).parents[2] / "examples" / "c_solver"


def lap(u):
    return np.roll(u, 1) - 2 * u + np.roll(u, -1)


class Right(ArrayModel):
    dtype = float

    def __init__(self, *, tape=("u", "v"), **sum_in):
        turn = 1 + 0.3j if self.dtype is complex else 1
        u = np.asarray(turn * np.linspace(0.5, 1.5, N), self.dtype)
        force = 0.1 * np.cos(np.arange(N)).astype(self.dtype)
        super().__init__(
            {"u": u, "v": u, "J": 0.0} | sum_in,
            control={"u": u, "k": np.array(0.3 * turn, self.dtype), "force": force},
            tape=tape,
        )

    def start(self, state):
        super().start(state)
        state["v"][...] = 0.5 * self.control["u"] ** 2

    def adjoint_start(self, adjoint):
        super().adjoint_start(adjoint)
        self.gradient["u"] += np.conj(self.control["u"]) * adjoint["v"]

    def step(self, state, i):
        u, v = state["u"], state["v"]
        state["J"] += 0.5 * (np.abs(u) ** 2).sum()
        change = H * (self.control["k"] * lap(u) + u * v)
        v += 0.1 * (u - v) + self.control["force"]
        u += change

    def adjoint_step(self, adjoint, tape, i):
        u, v, k = np.conj(tape["u"]), np.conj(tape["v"]), np.conj(self.control["k"])
        of_u, of_v = adjoint["u"], adjoint["v"]
        self.gradient["k"] += H * (lap(u) * of_u).sum()
        self.gradient["force"] += of_v
        through = H * u * of_u
        of_u += H * (k * lap(of_u) + v * of_u) + 0.1 * of_v + tape["u"] * adjoint["J"]
        of_v *= 0.9
        of_v += through

    def adjoint_seed(self, state, adjoint, n):
        v = state["v"]
        adjoint["v"][...] = np.conj(3 * v**2)
        return float((v**3).sum().real)


class Single(Right):
    dtype = np.float32


class Complex(Right):
    dtype = complex


class NotInPlace(Right):
    def step(self, state, i):
        u = state["u"]
        u = u + H * u


class Forgotten(Right):
    """v has a tendency of its own, which is not in the state."""

    memory = 0.0

    def step(self, state, i):
        state["v"] += self.memory
        super().step(state, i)
        self.memory = 0.1 * state["u"]


class Random(Right):
    def step(self, state, i):
        super().step(state, i)
        state["u"] += 1e-9 * np.random.standard_normal(N)


class Generator(Right):
    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(1)

    def step(self, state, i):
        super().step(state, i)
        state["v"] *= 1 + 1e-9 * self.rng.random()


class Counting(Right):
    calls = 0

    def step(self, state, i):
        self.calls += 1
        super().step(state, i)
        if self.calls % 2:
            state["v"] *= 1.001


COUNT = [0]


class GlobalCount(Right):
    def step(self, state, i):
        COUNT[0] += 1
        super().step(state, i)
        state["v"] += 1e-6 * COUNT[0]


class ControlInStep(Right):
    def step(self, state, i):
        super().step(state, i)
        self.control["k"] *= 1 + 1e-12


class ControlInAdjoint(Right):
    def adjoint_step(self, adjoint, tape, i):
        super().adjoint_step(adjoint, tape, i)
        self.control["force"][0] += 1e-12


class NotOnTape(Right):
    def __init__(self):
        super().__init__(tape=["u"])


class TapeInAttribute(Right):
    def __init__(self):
        super().__init__(tape=["u"])

    def step(self, state, i):
        self.v = state["v"].copy()
        super().step(state, i)

    def adjoint_step(self, adjoint, tape, i):
        super().adjoint_step(adjoint, {**tape, "v": self.v}, i)


class Sign(Right):
    def adjoint_step(self, adjoint, tape, i):
        of_v = adjoint["v"].copy()
        super().adjoint_step(adjoint, tape, i)
        adjoint["u"] -= 2 * 0.1 * of_v


class Factor(Right):
    def adjoint_step(self, adjoint, tape, i):
        before = float(self.gradient["k"])
        super().adjoint_step(adjoint, tape, i)
        self.gradient["k"][...] = before + (self.gradient["k"] - before) / H


class Overwritten(Right):
    """of_u is changed before of_v reads it."""

    def adjoint_step(self, adjoint, tape, i):
        before = adjoint["u"].copy()
        super().adjoint_step(adjoint, tape, i)
        adjoint["v"] += H * tape["u"] * (adjoint["u"] - before)


class OneStep(Right):
    """Wrong in a step that is neither of the first two, nor the last."""

    def adjoint_step(self, adjoint, tape, i):
        super().adjoint_step(adjoint, tape, i)
        adjoint["v"] *= 1 + 1e-3 * (i == 3)


class NoAdjointStart(Right):
    def adjoint_start(self, adjoint):
        ArrayModel.adjoint_start(self, adjoint)


class Seed(Right):
    def adjoint_seed(self, state, adjoint, n):
        value = super().adjoint_seed(state, adjoint, n)
        adjoint["v"] /= 3
        return value


class SingleSum(Right):
    def __init__(self):
        super().__init__(J=np.float32(0))


class NotConjugate(Complex):
    def adjoint_step(self, adjoint, tape, i):
        k = self.control["k"]
        wrong = H * (k - np.conj(k)) * lap(adjoint["u"])
        super().adjoint_step(adjoint, tape, i)
        adjoint["u"] += wrong


class ComplexConjugates(Complex):
    """The right adjoint of the other convention, in which a derivative is not conjugated."""

    def _conjugated(self, call, adjoint, *arguments):
        for array in (*adjoint.values(), *self.gradient.values()):
            np.conj(array, out=array)
        result = call(adjoint, *arguments)
        for array in (*adjoint.values(), *self.gradient.values()):
            np.conj(array, out=array)
        return result

    def adjoint_step(self, adjoint, tape, i):
        self._conjugated(super().adjoint_step, adjoint, tape, i)


class ScratchInAdjoint(Right):
    """An array of the adjoint's own that is not set to zero."""

    def __init__(self):
        super().__init__()
        self.scratch = np.zeros(N)

    def adjoint_step(self, adjoint, tape, i):
        self.scratch += adjoint["v"]
        super().adjoint_step(adjoint, tape, i)
        adjoint["u"] += 1e-3 * self.scratch


class Own:
    """A model with its own memory: x' = x + r x (1 - x), J = Σ x²."""

    tape_dtype = float

    def __init__(self, rate=0.3):
        self.x, self.sum = np.linspace(0.1, 0.4, N), np.zeros(())
        self.bar, self.of_rate, self.J = np.zeros(N), np.zeros(()), np.zeros(())
        self.control = {"x": self.x, "rate": np.array(rate)}
        self.tapes, self.last = {}, -1

    def advance(self, begin, end):
        for _ in range(begin, end):
            self.sum += (self.x**2).sum()
            self.x += self.control["rate"] * self.x * (1 - self.x)
        if end > self.last:
            self.last, self.J[...] = end, self.sum
        return end

    def record(self, begin, end):
        self.tapes = {}
        for i in range(begin, end):
            self.tapes[i] = self.x.astype(self.tape_dtype)
            self.advance(i, i + 1)
        return end

    def reverse(self, begin, end):
        for i in reversed(range(begin, end)):
            x = self.tapes.pop(i)
            self.of_rate += (x * (1 - x) * self.bar).sum()
            self.bar *= 1 + self.control["rate"] * (1 - 2 * x)
            self.bar += 2 * x

    def arrays(self, key):
        match key.kind:
            case Kind.RESTART:
                return {"x": self.x, "sum": self.sum}
            case Kind.TAPE:
                return {"x": self.tapes.get(key.step, self.x.astype(self.tape_dtype))}
            case Kind.ADJOINT:
                return {"of_x": self.bar, "of_rate": self.of_rate, "J": self.J}

    def layout(self, key):
        return tuple(Field(name, a.dtype.str, a.shape) for name, a in self.arrays(key).items())

    def dump(self, key):
        return [as_bytes(array) for array in self.arrays(key).values()]

    @contextmanager
    def load(self, key, layout):
        buffers = [np.empty(field.shape, field.dtype) for field in layout]
        yield [as_bytes(buffer) for buffer in buffers]
        if key.kind is Kind.TAPE:
            self.tapes = {key.step: buffers[0]}
            return
        for array, buffer in zip(self.arrays(key).values(), buffers, strict=True):
            array[...] = buffer
        if key.kind is Kind.ADJOINT:
            self.last = key.step

    @property
    def functional(self):
        return float(self.J)

    @property
    def gradient(self):
        return {"x": self.bar, "rate": self.of_rate}


class LoadsInPlace(Own):
    @contextmanager
    def load(self, key, layout):
        if key.kind is Kind.RESTART:
            yield self.dump(key)
        else:
            with super().load(key, layout) as buffers:
                yield buffers


class KeepsItsBuffer(Own):
    """All tapes are views of one buffer, which the next load overwrites."""

    def __init__(self):
        super().__init__()
        self.buffer = np.zeros(N)

    @contextmanager
    def load(self, key, layout):
        if key.kind is Kind.TAPE:
            yield [as_bytes(self.buffer)]
            self.tapes = {key.step: self.buffer}
            return
        with super().load(key, layout) as buffers:
            yield buffers
        if key.kind is Kind.RESTART:
            self.buffer[...] = self.x


class OldCopy(Own):
    def arrays(self, key):
        if key.kind is not Kind.RESTART:
            return super().arrays(key)
        if not hasattr(self, "copy"):
            self.copy = {name: array.copy() for name, array in super().arrays(key).items()}
        return self.copy


class SingleTape(Own):
    tape_dtype = np.float32


class ReverseMovesState(Own):
    def reverse(self, begin, end):
        super().reverse(begin, end)
        self.x *= 0.5


class RecordsOtherwise(Own):
    def record(self, begin, end):
        super().record(begin, end)
        self.sum += 1e-3
        return end


WRONG = [
    (NotInPlace, "steps", "", "no step changes an array"),
    (Forgotten, "steps", "v", r"self\.memory"),
    (Random, "steps", "u", r"numpy\.random"),
    (Generator, "steps", "v", r"self\.rng"),
    (Counting, "steps", "v", r"self\.calls"),
    (GlobalCount, "steps", "v", "COUNT"),
    (ControlInStep, "controls", "k", "changed by step 0"),
    (ControlInAdjoint, "controls", "force", "changed by the adjoint of step 0"),
    (NotOnTape, "adjoint", "", "there is no array 'v'"),
    (TapeInAttribute, "adjoint", "", "from a stored tape, in another state"),
    (ScratchInAdjoint, "adjoint", "adjoint_u", "reversed twice"),
    (Sign, "derivative", "u", "derivative of v by u is wrong in step 0"),
    (Factor, "derivative", "control k", "derivative of u by control k is wrong in step 0"),
    (Overwritten, "derivative", "v", "derivative of u by v is wrong in step 0"),
    (OneStep, "derivative", "v", "derivative of v by v is wrong in step 3"),
    (NoAdjointStart, "derivative", "control u", "derivative of v by control u is wrong in step 0"),
    (Seed, "gradient", "v", "derivative of J at the end by v is wrong"),
    (SingleSum, "steps", "J", "float32"),
    (NotConjugate, "derivative", "u", "derivative of u by u is wrong"),
    (ComplexConjugates, "derivative", "", "complex conjugate of the right one"),
    (LoadsInPlace, "checkpoints", "x", "if a load fails"),
    (KeepsItsBuffer, "adjoint", "x", "tape of step 1 is not what was loaded"),
    (OldCopy, "steps", "", "`dump` returns an old copy"),
    (SingleTape, "adjoint", "x", "float32 on the tape, float64 in the state"),
    (ReverseMovesState, "adjoint", "x", "changed by the adjoint of step 0"),
    (RecordsOtherwise, "steps", "sum", "after `record` of step 4"),
]
"""Models with one mistake: the kind of fault, its array ("" if none is named), and a pattern."""


IN_C = {
    "swaps pointers": (
        ("    heat_step(s->ny", "    double *u = s->u;\n    heat_step(s->ny"),
        ("    return !isfinite", "    s->u = s->work, s->work = u;\n    return !isfinite"),
        ("    memcpy(u, work,", "    if (0) memcpy(u, work,"),
    ),
    "a static variable": (
        (
            "    double sum = 0;\n",
            "    static double calls = 0;\n    double sum = 1e-9 * calls++;\n",
        ),
    ),
    "a wrong sign": (("(1 - 3 * u[i]", "(1 + 3 * u[i]"),),
}
"""Mistakes in a solver in C, as replacements in its source."""


def in_c(folder: Path, *changes: tuple[str, str]):
    """Copy the example in C with these changes, and return a function that makes its model."""
    text = (SOLVER / "heat.c").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "heat.c").write_text(text)
    example = shutil.copy(SOLVER / "solver.py", folder)  # it compiles the source beside it
    solver = runpy.run_path(example)["solver"]

    def make():
        model = solver(ny=4, nx=5)
        model.control["u"][...] = np.linspace(0.5, 1.5, 20).reshape(4, 5)
        return model

    return make
