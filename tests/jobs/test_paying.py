"""`ckio demo --model`: one gradient with ckio and one with every tape stored, and a verdict."""

from pathlib import Path

import pytest
from cli.commands import answer, ckio, complaint

from ckio.jobs import paying
from ckio.jobs.paying import Comparison, Taken, compare_with_store_all

HEAT = """
import numpy as np
from ckio import ArrayModel


class Heat(ArrayModel):
    def __init__(self, grid=2_000):
        u = np.random.default_rng(1).random(grid)
        super().__init__({"u": u, "J": 0.0}, control={"u": u}, tape=["u"])

    def step(self, state, i):
        state["J"] += (state["u"] ** 2).sum()
        state["u"] *= 0.9

    def adjoint_step(self, adjoint, tape, i):
        adjoint["u"] *= 0.9
        adjoint["u"] += 2 * tape["u"] * adjoint["J"]
"""

FEW = Taken(3.0, 100 << 20, 57, "a1")
ALL = Taken(2.0, 400 << 20, 30, "a1")


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "heat.py").write_text(HEAT)
    return str(tmp_path / "heat.py")


def test_both_ways_find_the_same_gradient(model: str, tmp_path: Path) -> None:
    found = answer("demo", "--model", model, "--set", "grid=500", "--steps", 30, "--ram", "20KiB",
                   at=tmp_path)  # fmt: skip
    few, every = found["ckio"], found["every tape stored"]
    assert few["digest"] == every["digest"]
    assert few["forward_steps"] > every["forward_steps"] == 30
    assert min(few["seconds"], every["seconds"], few["memory"], every["memory"]) > 0
    assert found["factor"] == few["seconds"] / every["seconds"]
    assert [path.name for path in tmp_path.iterdir() if "pycache" not in path.name] == ["heat.py"]


def test_tapes_that_do_not_fit_are_not_stored(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paying, "available", lambda: 1 << 20)
    out = ckio("demo", "--model", model, "--steps", 200, "--disk", tmp_path / "new", at=tmp_path)
    assert "Storing every tape needs 3.05 MiB, and 1 MiB are" in " ".join(out.stdout.split())
    assert "every tape stored" not in out.stdout
    assert not (tmp_path / "new").exists()


def test_the_verdict_says_whether_ckio_pays_and_from_how_many_steps_on() -> None:
    slower = Comparison(30, 300 << 20, 3000 << 20, 2.1, FEW, ALL)
    assert slower.verdict() == (
        "Every tape fits in memory, and storing them is faster: 2 s and 400 MiB. ckio took 3 s and"
        " 100 MiB, 1.50 times as long with 0.25 of the memory. It pays beyond about 300 steps,"
        " whose tapes fill the 2.93 GiB that are available."
    )
    faster = slower._replace(ckio=FEW._replace(seconds=1.0))
    assert faster.verdict() == (
        "ckio pays: it took 1 s and 100 MiB, and storing every tape 2 s and 400 MiB."
    )
    alone = slower._replace(store_all=None, free=200 << 20, predicted=2.0)
    assert alone.factor == 1.5
    assert alone.verdict().startswith(
        "ckio pays: it took 3 s and 100 MiB. Storing every tape needs"
    )


def test_options_of_the_other_demo_are_refused(model: str, tmp_path: Path) -> None:
    assert "--set grid=64" in complaint("demo", "--model", model, "--grid", 64, at=tmp_path)
    assert "give --model" in complaint("demo", "--ram", "1MiB", at=tmp_path)
    assert "nothing.py" in complaint("demo", "--model", "nothing.py", at=tmp_path)


def test_a_process_that_is_killed_is_reported(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(model).write_text(HEAT.replace('state["u"] *= 0.9', "__import__('os').abort()"))
    from ckio.errors import RunFailed

    with pytest.raises(RunFailed, match="was killed"):
        compare_with_store_all(model, 5, {}, {"ram": "1MiB"})
