"""The solver of heat.c as a model of ckio. The library is compiled when this file is first used."""

import subprocess
from ctypes import CDLL, c_double, c_int, c_long, c_void_p
from functools import partial
from pathlib import Path

import numpy as np

from ckio import Field
from ckio.adapters.native import Memory, NativeModel

HERE = Path(__file__).parent
LIBRARY = HERE / "libheat.so"
if not LIBRARY.exists():
    cc = ["cc", "-O2", "-shared", "-fPIC", "-o", LIBRARY, HERE / "heat.c"]
    subprocess.run(cc, check=True)

LIB = CDLL(str(LIBRARY))
for name, result, *arguments in (
    ("new", c_void_p, c_int, c_int, c_double, c_double),
    ("free", None, c_void_p),
    ("memory", c_void_p, c_void_p, c_int),
    ("step", c_int, c_void_p, c_long, c_void_p),
    ("tape", c_int, c_void_p, c_long, c_void_p),
    ("reverse", c_int, c_void_p, c_long, c_void_p),
    ("seed", c_double, c_void_p, c_long),
):
    function = getattr(LIB, f"solver_{name}")
    function.restype, function.argtypes = result, arguments


def solver(*, ny=24, nx=32, k=0.2, dt=0.02):
    """Return a model of ny x nx points, with the diffusivity k and the time step dt."""
    s, grid = LIB.solver_new(ny, nx, k, dt), (ny, nx)
    u, j, k, of_u, of_j, of_k = (LIB.solver_memory(s, which) for which in range(6))
    model = NativeModel(
        state={"u": Memory(u, grid), "J": Memory(j)},
        adjoint={"u": Memory(of_u, grid), "J": Memory(of_j)},
        control={"u": Memory(u, grid), "k": Memory(k)},
        gradient={"k": Memory(of_k)},
        tape=(Field("u", "<f8", grid),),
        step=lambda i: LIB.solver_step(s, i, None),
        record=partial(LIB.solver_step, s),
        record_only=partial(LIB.solver_tape, s),
        reverse=partial(LIB.solver_reverse, s),
        seed=partial(LIB.solver_seed, s),
        free=partial(LIB.solver_free, s),
    )
    model.control["u"][...] = np.random.default_rng(0).standard_normal(grid) / 10
    return model


if __name__ == "__main__":
    from ckio import Chain, Platform, run, sizes_of
    from ckio.planners import hrevolve

    model = solver()
    chain = Chain(steps=200, advance=1e-4, record=1e-4, reverse=2e-4, **sizes_of(model))
    platform = Platform.of(ram=5 * chain.restart, disk="checkpoints:1MB")
    run(hrevolve(chain, platform), platform, model)
    print(f"J = {model.functional:.6f}, dJ/dk = {float(model.gradient['k']):.6f}")
