"""Jobs of many ranks: killed and resumed, with one gradient in which the parts fit together."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from cli.jobs import MPIEXEC, needs_mpi

pytestmark = needs_mpi

MODELS = """
import numpy as np

from ckio import ArrayModel
from ckio.model.comm import SOLO, share


class Parts(ArrayModel):
    "Ranks that need nothing of each other, with parts of different size; nobody gathers them."

    def __init__(self, *, comm=SOLO):
        u = np.linspace(1.0, 2.0, 11)[np.array(share(11, comm))]
        self.comm = comm
        super().__init__({"u": u, "J": 0.0}, control={"u": u}, tape=["u"], units={"u": "m"})

    def step(self, state, i):
        state["J"] += np.sum(state["u"] ** 2)
        state["u"] *= 0.9

    def adjoint_step(self, adjoint, tape, i):
        adjoint["u"] *= 0.9
        adjoint["u"] += 2 * tape["u"] * adjoint["J"]

    @property
    def functional(self):
        return sum(self.comm.gather(super().functional))
"""


SCRIPT = """
import sys
import ckio
from ckio.adapters.mpi import world
from models import Parts

comm = world()
job = ckio.Job("run", model=Parts, steps=20, ram="1kB", disk="scratch", planner="hrevolve")
first = job.run()
again = ckio.Job("run", model=Parts).run()
same = all((first.gradient[name] == again.gradient[name]).all() for name in first.gradient)
other = job.again("other", {"u": 2 * first.control["u"]}).run()
lines = comm.gather(f"{same} {first.gradient['u'].shape} {other.functional / first.functional}")
if comm.rank == 0:
    print("\\n".join(lines))
"""


@pytest.mark.slow
def test_each_rank_of_a_script_gets_its_part(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(MODELS)
    done = subprocess.run(
        [MPIEXEC, "-n", "2", sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True (5,) 4.0", "True (6,) 4.0"]
    with h5py.File(tmp_path / "run" / "gradient.h5") as file:
        gradient = file["gradient/u"]
        assert gradient.shape == (11,)
        assert [file[f"parts/{rank}/gradient/u"].shape for rank in (0, 1)] == [(5,), (6,)]
        expected = 2 * np.linspace(1.0, 2.0, 11) * sum(0.81**k for k in range(20))
        assert np.allclose(gradient[()], expected, rtol=1e-12)
        assert file["control/u"].attrs["units"] == "m"


SHARED = """
import json
import sys

import numpy as np

import ckio
from ckio import ArrayModel
from ckio.errors import BadInput, NotVerified
from ckio.adapters.mpi import world
from ckio.model.comm import SOLO, share
from ckio.parallel.agreed import AgreedModel
from ckio.parallel.group import RankGroup


class Decay(ArrayModel):
    "Each rank has some points. All share k, by which u decays, and the weight w of its squares."

    def __init__(self, *, points=5, sums=False, comm=SOLO):
        u = np.linspace(1.0, 2.0, 5)[np.array(share(5, comm))] if points == 5 else np.ones(points)
        self.comm, self.sums = comm, sums
        super().__init__({"u": u, "J": 0.0}, control={**self.others(u), "u": u}, tape=["u"])

    def others(self, u):
        return {"k": 0.9, "w": np.array([0.5])}

    def step(self, state, i):
        state["J"] += np.sum(self.control["w"] * state["u"] ** 2)
        state["u"] *= self.control["k"]

    def adjoint_step(self, adjoint, tape, i):
        u = tape["u"]
        of_k, of_w = np.sum(adjoint["u"] * u), np.sum(u**2) * adjoint["J"]
        if self.sums:
            of_k, of_w = (sum(self.comm.gather(part)) for part in (of_k, of_w))
        self.gradient["k"] += of_k
        self.gradient["w"] += of_w
        adjoint["u"] *= self.control["k"]
        adjoint["u"] += 2 * self.control["w"] * u * adjoint["J"]

    @property
    def functional(self):
        return sum(self.comm.gather(super().functional))


class Adds(Decay):
    "What all share is added, too: right for a gradient, and wrong for a control."

    def gathered(self, name, array):
        parts = self.comm.gather(array)
        return np.concatenate(parts) if name == "u" else np.asarray(sum(parts))


class Keeps(Decay):
    def gathered(self, name, array):
        return np.concatenate(self.comm.gather(array)) if name == "u" else array


class Vector(Decay):
    def others(self, u):
        return {"k": 0.9, "w": np.array([0.5, 0.0])[:2]}

    def step(self, state, i):
        state["J"] += self.control["w"][0] * np.sum(state["u"] ** 2)
        state["u"] *= self.control["k"]

    def adjoint_step(self, adjoint, tape, i):
        u = tape["u"]
        self.gradient["k"] += np.sum(adjoint["u"] * u)
        self.gradient["w"][0] += np.sum(u**2) * adjoint["J"]
        adjoint["u"] *= self.control["k"]
        adjoint["u"] += 2 * self.control["w"][0] * u * adjoint["J"]


class Declared(Vector):
    shared_controls = ("k", "w")


class Unknown(Vector):
    shared_controls = ("k", "w", "v")


class Unequal(Declared):
    def others(self, u):
        return {"k": 0.9, "w": np.array([0.5, 0.1 * self.comm.rank])}


class Named(Decay):
    def others(self, u):
        return {"k": 0.9, "w": 0.5} if self.comm.rank else {"w": 0.5, "k": 0.9}


class Single(Decay):
    def others(self, u):
        return {"k": 0.9, "w": np.array(0.5, "f8" if self.comm.rank else "f4")}


class Later(Decay):
    pass


comm = world()
ranks, levels, made = RankGroup(comm), (ckio.Level(name="ram", capacity=1000),), {}
for name, settings in json.loads(sys.argv[1]):
    model = globals()[name]
    at = "-".join([name, *settings])
    sizes = AgreedModel(model(**settings, comm=ranks.comm.duplicate()), ranks).largest_sizes
    chain = ckio.Chain(steps=None, advance=1, record=1, reverse=2, **sizes)
    about = f"__main__:{name}" + "".join(f" {k}={v}" for k, v in settings.items()) + " on 2 ranks"
    job = ckio.Job(
        at, model=model, settings=settings, check=True, planner="hrevolve",
        steps=9 + (name == "Later") * comm.rank,
        platform=ckio.Platform(levels, working_memory=1000, models={about: chain}),
    )
    try:
        try:
            result = job.run()
        except NotVerified as error:
            result = error.result
        read = ckio.Job(at, model=model, settings=settings).result()
        assert all((read.gradient[n] == result.gradient[n]).all() for n in result.gradient)
        made[at] = [result.verified, {n: g.tolist() for n, g in result.gradient.items()}]
    except BadInput as error:
        made[at] = str(error)
found = comm.gather(made)
if comm.rank == 0:
    print(json.dumps(found))
"""

U = np.linspace(1.0, 2.0, 5)
OF_W = sum(np.sum((0.9**i * U) ** 2) for i in range(9))
OF_K = sum(i * 0.9 ** (2 * i - 1) * np.sum(U**2) for i in range(9))
OF_U = U * sum(0.9 ** (2 * i) for i in range(9))


NAMES = ("Decay", "Adds", "Keeps", "Declared", "Vector")
CASES: list[tuple[str, dict[str, object]]] = [
    *((name, {}) for name in NAMES),
    ("Keeps", {"sums": True}),
    ("Decay", {"sums": True}),
    ("Decay", {"points": 3}),
    ("Declared", {"points": 3}),
    *((name, {}) for name in ("Unknown", "Unequal", "Named", "Single", "Later")),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """What each of two ranks gets from runs of these models, or the error; and where they ran."""
    at = tmp_path_factory.mktemp("shared")
    (at / "job.py").write_text(SHARED)
    done = subprocess.run(
        [MPIEXEC, "-n", "2", sys.executable, "job.py", json.dumps(CASES)],
        cwd=at,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return at, json.loads(done.stdout)


def test_the_gradient_of_a_control_that_ranks_share_is_the_sum_of_their_parts(
    shared: tuple[Path, list[dict[str, Any]]],
) -> None:
    at, on_ranks = shared
    for name in (*NAMES, "Keeps-sums"):
        for rank, u in enumerate((OF_U[:2], OF_U[2:])):
            verified, gradient = on_ranks[rank][name]
            of_w = [OF_W, 0.0] if name in ("Declared", "Vector") else [OF_W]
            assert gradient["k"] == pytest.approx(OF_K, rel=1e-12)
            assert gradient["w"] == pytest.approx(of_w, rel=1e-12)
            assert gradient["u"] == pytest.approx(u, rel=1e-12)
            assert verified
        with h5py.File(at / name / "gradient.h5") as file:
            assert file["control/k"][()] == 0.9
            assert file["control/w"][0] == 0.5
            assert file["gradient/k"][()] == pytest.approx(OF_K, rel=1e-12)
            assert file["gradient/w"][()] == pytest.approx(np.array(of_w), rel=1e-12)
            assert file["gradient/u"][()] == pytest.approx(OF_U, rel=1e-12)


def test_a_model_that_adds_over_the_ranks_itself_is_not_verified(
    shared: tuple[Path, list[dict[str, Any]]],
) -> None:
    for found in shared[1]:
        assert found["Decay-sums"][0] is False


def test_it_is_not_guessed_whether_ranks_share_a_field(
    shared: tuple[Path, list[dict[str, Any]]],
) -> None:
    at, (first, second) = shared
    assert first.keys() == second.keys()
    assert "control 'u' has the shape of an array of the state" in first["Decay-points"]
    assert "shared_controls = ('u',)" in first["Decay-points"]
    assert "has 'v', which is no control" in first["Unknown"]
    assert "has 'w', which is no control, or differs" in first["Unequal"]
    assert "different controls: k (float64), w (float64), u (float64) and w" in first["Named"]
    assert "w (float32), u (float64) and k (float64), w (float64)" in first["Single"]
    assert "steps is 10 on rank 1, and 9 on rank 0" in first["Later"]
    for name in ("Decay-points", "Unknown", "Unequal", "Named", "Single", "Later"):
        assert first[name] == second[name]
    # With the declaration, equal parts are parts, and each rank has its own gradient.
    assert isinstance(first["Declared-points"], list), first["Declared-points"]
    verified, gradient = first["Declared-points"]
    assert verified
    assert np.shape(gradient["u"]) == (3,)
    with h5py.File(at / "Declared-points" / "gradient.h5") as file:
        assert file["gradient/u"].shape == (6,)
