"""The kernels of heat.c on arrays of NumPy; the same with `library=` compiled from heat.f90."""

from ctypes import CDLL, c_double, c_int

import numpy as np
from numpy.ctypeslib import ndpointer
from solver import LIBRARY

from ckio import ArrayModel

MEMORY = ndpointer(np.float64, flags="C_CONTIGUOUS")
GRID = c_int, c_int, c_double, c_double


class Heat(ArrayModel):
    """The equation of heat.c, with its memory allocated by NumPy."""

    def __init__(self, *, ny=24, nx=32, k=0.2, dt=0.02, library=LIBRARY):
        u = np.random.default_rng(0).standard_normal((ny, nx)) / 10
        super().__init__({"u": u, "J": 0.0}, control={"u": u, "k": k}, tape=["u"])
        self._lib, self._work = CDLL(str(library)), np.empty_like(u)
        self._lib.heat_step.argtypes = *GRID, MEMORY, MEMORY, MEMORY
        self._lib.heat_adjoint.argtypes = *GRID, MEMORY, MEMORY, c_double, MEMORY, MEMORY
        self._lib.heat_step.restype = self._lib.heat_adjoint.restype = None
        self._shape, self._dt = (ny, nx), dt

    def step(self, state, i):
        k = self.control["k"].item()
        self._lib.heat_step(*self._shape, k, self._dt, state["u"], state["J"], self._work)

    def adjoint_step(self, adjoint, tape, i):
        k, of_j, of_k = self.control["k"].item(), adjoint["J"].item(), self.gradient["k"]
        memory = tape["u"], adjoint["u"], of_j, of_k, self._work
        self._lib.heat_adjoint(*self._shape, k, self._dt, *memory)
