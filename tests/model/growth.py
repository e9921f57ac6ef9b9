"""A raw `Model`, which docs/own_model.md explains: a growing population."""

from contextlib import contextmanager

import numpy as np

from ckio import Field, Kind
from ckio.model import as_bytes


class Growth:
    def __init__(self, rate=0.3):
        self.x, self.sum = np.linspace(0.1, 0.4, 12), np.zeros(())
        self.bar, self.of_rate, self.J = np.zeros(12), np.zeros(()), np.zeros(())
        self.control = {"x": self.x, "rate": np.array(rate)}  # x: writing to it sets x_0
        self.tapes = {}  # x before each recorded step
        self.last = -1  # the step at which J was taken

    # Stepping

    def advance(self, begin, end):
        for _ in range(begin, end):
            self.sum += (self.x**2).sum()
            self.x += self.control["rate"] * self.x * (1 - self.x)
        if end > self.last:  # later than ever before: J is that of the last state
            self.last, self.J[...] = end, self.sum
        return end

    def record(self, begin, end):
        self.tapes = {}
        for i in range(begin, end):
            self.tapes[i] = self.x.copy()
            self.advance(i, i + 1)
        return end

    def reverse(self, begin, end):
        for i in reversed(range(begin, end)):
            x = self.tapes.pop(i)
            self.of_rate += (x * (1 - x) * self.bar).sum()
            self.bar *= 1 + self.control["rate"] * (1 - 2 * x)
            self.bar += 2 * x

    # Checkpoints

    def arrays(self, key):
        match key.kind:
            case Kind.RESTART:
                return {"x": self.x, "sum": self.sum}
            case Kind.TAPE:
                return {"x": self.tapes.get(key.step, self.x)}  # any x has the layout of a tape
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
            self.last = key.step  # J was read, and is not that of a state before this step

    # Results

    @property
    def functional(self):
        return float(self.J)

    @property
    def gradient(self):
        return {"x": self.bar, "rate": self.of_rate}
