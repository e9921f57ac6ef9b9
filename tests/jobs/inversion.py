"""A model for jobs: its settings are no controls, it can be killed, and its misfit can fall."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

MODEL = '''\
import os
import signal

import numpy as np

from ckio import ArrayModel

kill, at, after = (os.environ.get("KILL", "never:0:.").split(":") + ["."])[:3]
counts = {}


def moment(name):
    """Kill this process at the so manyeth step forward or back once a file is there."""
    if name != kill or not os.path.exists(after):
        return
    counts[name] = counts.get(name, 0) + 1
    if counts[name] == int(at):
        os.kill(os.getpid(), signal.SIGKILL)


class Heat(ArrayModel):
    """Diffusion of a line of cells, observed at its end; the controls are x_0 and the source."""

    def __init__(self, cells: int = 64, viscosity: float = 0.2):
        grid = np.linspace(0.0, 1.0, cells)
        self.viscosity, self.target = viscosity, np.sin(3 * grid)
        super().__init__(
            {"x": np.zeros(cells), "J": 0.0},
            control={"x": np.zeros(cells), "source": np.zeros(cells)},
            tape=["x"],
            units={"x": "K", "source": "K s-1", "J": "K2"},
        )

    def step(self, state, i):
        moment("step")
        x = state["x"]
        x += self.viscosity * (np.roll(x, 1) - 2 * x + np.roll(x, -1)) - 0.01 * x**3
        x += 0.1 * self.control["source"]
        state["J"] += ((x - self.target) ** 2).sum()

    def adjoint_step(self, adjoint, tape, i):
        moment("adjoint")
        x, a = tape["x"], adjoint["x"]
        after = x + self.viscosity * (np.roll(x, 1) - 2 * x + np.roll(x, -1)) - 0.01 * x**3
        after += 0.1 * self.control["source"]
        a += 2 * (after - self.target) * adjoint["J"]
        self.gradient["source"] += 0.1 * a
        spread = np.roll(a, 1) - 2 * a + np.roll(a, -1)
        a += self.viscosity * spread - 0.03 * x**2 * adjoint["x"]
'''

STEPS = 60

PLATFORM = """
[[level]]
name = "ram"
capacity = 2000
[[level]]
name = "far"
backend = "directory"
options = {path = "ck"}
capacity = 40000
write = {latency = 0.01}
read = {latency = 0.01}

[models."heat.py:Heat"]
advance = 1.0
record = 1.0
reverse = 1.0
restart = 520
tape = 512
adjoint = 1552
"""

LINE = ("run", "heat.py:Heat", "--steps", STEPS, "--platform", "node.toml", "--planner", "hrevolve")
LINE = (*LINE, "--every", "8s", "--into", "run", "--resume")


def place(at: Path) -> Path:
    """A directory with the model and a platform file."""
    at.mkdir(exist_ok=True, parents=True)
    (at / "heat.py").write_text(MODEL)
    (at / "node.toml").write_text(PLATFORM)
    return at


def arrays(path: Path) -> dict[str, Any]:
    """All datasets of a file, read with plain h5py."""
    found: dict[str, Any] = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def equal(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two sets of arrays are the same to the last bit."""
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name]) and first[name].dtype == second[name].dtype
        for name in first
    )
