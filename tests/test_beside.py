"""The changes of docs/beside.md: the program before and the one after have the same gradient."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs/beside.md").read_text(encoding="utf-8")
SECTION = re.compile(
    r"^## ([\w.]+)[^\n]*\n(?:(?!^## ).)*?```diff\n(.*?)```", re.MULTILINE | re.DOTALL
)
CHANGES = dict(SECTION.findall(PAGE))

LEVELS = """
from ckio import Affine, Chain, Level, Platform
def platform_of(nbytes):
    cost = Affine(latency=1.0)
    disk = Level(name="disk", capacity=20 * nbytes, options={"path": "far"}, write=cost, read=cost)
    return Platform((Level(name="ram", capacity=5 * nbytes), disk), working_memory=nbytes)
"""
JAX = """
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
x0, n = jnp.linspace(0.1, 0.4, 12), 40
def step(x, params, i):
    return x + params * x * (1 - x) + 1e-3 * i
def J(params):
{change}
    return (x**2).sum()
print(f"{jax.grad(J)(0.3):.9f}")
"""
PROGRAMS = {
    "checkpoint_schedules": LEVELS
    + """
n = 30
platform = platform_of(1)
chain = Chain(steps=n, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
{change}
reversed_steps = []
for action in schedule:
    if type(action).__name__ == "Reverse":
        reversed_steps += range(action.n1 - 1, action.n0 - 1, -1)
    if type(action).__name__ == "EndReverse":
        break
print(reversed_steps)
""",
    "pyrevolve": LEVELS
    + """
import numpy as np
from pyrevolve import Checkpoint, MultiLevelRevolver, Operator
u, bar = np.linspace(0.1, 0.4, 12), np.zeros(12)
class All(Checkpoint):
    dtype, size = np.float64, 12
    def get_data(self, timestep):
        return [u]
    get_data_location = get_data
class Forward(Operator):
    def apply(self, t_start, t_end, **kwargs):
        for _ in range(t_start, t_end):
            u[:] += 0.3 * u * (1 - u)
class Reverse(Operator):
    def apply(self, t_start, t_end, **kwargs):
        if t_end == n:
            bar[:] = 2 * u * 0 + 1
        bar[:] *= 1 + 0.3 * (1 - 2 * u)
n, size, dtype, checkpoint, forward, reverse = 60, 12, np.float64, All(), Forward(), Reverse()
platform = platform_of(checkpoint.nbytes)
{change}
revolver.apply_forward()
revolver.apply_reverse()
print(bar)
""",
    "jax.checkpoint": JAX,
    "equinox": JAX,
    "torch.utils.checkpoint": """
import torch
n = 40
k = torch.full((12,), 0.3, dtype=torch.float64, requires_grad=True)
x = torch.linspace(0.1, 0.4, 12, dtype=torch.float64)
def step(x, i):
    return x + k * x * (1 - x) + 1e-3 * i
def segment(x, begin, end):
    for i in range(begin, end):
        x = step(x, i)
    return x
{change}
x.square().sum().backward()
print(k.grad)
""",
}
"""What is around the change; that of PETSc is the program of tests/examples/test_petsc.py."""
NEEDS = {"jax.checkpoint": "jax", "torch.utils.checkpoint": "torch"}


def printed(name: str, dropped: str, at: Path) -> str:
    """What the program prints without the lines that begin with a sign."""
    lines = [line[2:] for line in CHANGES[name].splitlines() if not line.startswith(dropped)]
    indent = re.findall(r"(?m)^( *)\{change\}", PROGRAMS[name])[0] or (
        "    " if "def J" in PROGRAMS[name] else ""
    )
    change = "\n".join(indent + line for line in lines)
    code = PROGRAMS[name].replace("{change}", change)
    at.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=at, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_gradient_is_the_same_before_and_after(name: str, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS.get(name, name))
    assert printed(name, "+", tmp_path / "before") == printed(name, "-", tmp_path / "after")


def test_every_section_has_a_change_that_is_tested() -> None:
    assert set(CHANGES) == {*PROGRAMS, "TSTrajectory"}
