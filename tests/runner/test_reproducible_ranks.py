"""Steps on two ranks that are not reproducible end the run on both, and others do not."""

import re
from pathlib import Path

from cli.jobs import Job, answer, needs_mpi

from ckio.model import sizes_of

pytestmark = needs_mpi

MODELS = """
import time

import numpy as np

from ckio import ArrayModel
from ckio.model.comm import SOLO, share


class Sorted(ArrayModel):
    "u is divided by its mean over all ranks: u <- c u / m. J is the sum of u² of all steps."

    shared_controls = ()

    def __init__(self, *, points=128, comm=SOLO):
        mine = np.array(share(points, comm))
        u, self.c = np.linspace(1.0, 2.0, points)[mine], np.linspace(0.9, 1.1, points)[mine]
        self.points, self.comm, self.calls = points, comm, 0
        super().__init__({"u": u, "J": 0.0}, control={"u": u}, tape=["u"])

    def add(self, numbers):
        return sum(numbers)

    def mean(self, u):
        return self.add([x for part in self.comm.gather(u.tolist()) for x in part]) / self.points

    def step(self, state, i):
        time.sleep(1e-3)  # so that there is time for the check
        state["J"] += np.sum(state["u"] ** 2)
        state["u"] *= self.c / self.mean(state["u"])

    def adjoint_step(self, adjoint, tape, i):
        u, bar, m = tape["u"], adjoint["u"], self.mean(tape["u"])
        of_mean = -sum(self.comm.gather(np.sum(self.c * u * bar))) / m**2
        bar *= self.c / m
        bar += 2 * u * adjoint["J"] + of_mean / self.points

    @property
    def functional(self):
        return sum(self.comm.gather(super().functional))


class Arriving(Sorted):
    "The numbers are added in the order in which they arrive, which is now and then another one."

    def add(self, numbers):
        self.calls += 1
        return sum(numbers[:: 1 if self.calls % 3 else -1])
"""

PLATFORM = """
[[level]]
name = "ram"
capacity = {capacity}

[models."models.py:{name} on 2 ranks"]
advance = 0.001
record = 0.001
reverse = 0.001
"""


def words(at: Path, name: str) -> tuple[object, ...]:
    """A run of 20 steps with space for three states on each rank."""
    (at / "models.py").write_text(MODELS)
    namespace: dict[str, type] = {}
    exec(MODELS, namespace)
    sizes = sizes_of(namespace[name](points=64))  # as many as a rank has
    lines = [f"{kind} = {nbytes}" for kind, nbytes in sizes.items()]
    text = PLATFORM.format(name=name, capacity=3 * sizes["restart"])
    (at / "node.toml").write_text("\n".join([text, *lines, ""]))
    model = f"models.py:{name}"
    return "run", model, "--steps", 20, "--platform", "node.toml", "--planner", "revolve"


def test_a_sum_over_ranks_in_another_order_ends_both_with_step_and_array(tmp_path: Path) -> None:
    job = Job(2, *words(tmp_path, "Arriving"), "--into", "run", at=tmp_path)
    _, err = job.ended(status=1)
    assert not job.processes()
    found = re.search(r"x_(\d+) is not the same when steps? (\d+)(.*)computed again: (.*)", err)
    assert found is not None, err
    assert int(found[2]) < int(found[1])
    assert re.search(r"'u' by .*reproducible up to rounding only.*--allow-rounding", found[4]), err
    assert not (tmp_path / "run" / "gradient.h5").exists()


def test_a_sum_over_ranks_in_one_order_is_not_accused(tmp_path: Path) -> None:
    found = answer(2, *words(tmp_path, "Sorted"), "--into", "run", "--check-gradient", at=tmp_path)
    assert found["verified"] is True
