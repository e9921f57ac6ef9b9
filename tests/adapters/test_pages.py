"""The code on the pages of adapters as it stands there: in an empty directory, by a new process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli.jobs import MPIEXEC, answer, needs_mpi, write_platform

DOCS = Path(__file__).parents[2] / "docs" / "adapters"


def lines_of(page: str, at: Path, *options: str, blocks: slice = slice(None)) -> list[str]:
    """What the Python of a page prints, in one script, which leaves no files behind."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[blocks]
    assert found
    (at / "script.py").write_text("\n".join(found), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *options, "script.py"],
        cwd=at,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    assert [path for path in at.rglob("*") if path.is_file()] == [at / "script.py"]
    return done.stdout.splitlines()


def test_checkpoint_schedules(tmp_path: Path) -> None:
    pytest.importorskip("checkpoint_schedules")
    lines = lines_of("checkpoint_schedules", tmp_path)
    assert any("0: theirs 465 steps, 435 s; ours 86 steps, 80 s" in line for line in lines)


@pytest.mark.slow
def test_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    by_scan, by_model, by_halves = (line.split(" ", 1) for line in lines_of("jax", tmp_path))
    assert float(by_scan[0]) == pytest.approx(float(by_model[0]), rel=1e-4)
    assert by_scan[1] == "['diffusion', 'rate']"
    assert by_model[1] == "['params.diffusion', 'params.rate', 'x']"
    assert by_halves == ["8", "0.15625"]


@pytest.mark.slow
def test_pyadjoint(tmp_path: Path) -> None:
    pytest.importorskip("pyadjoint")
    words = [re.sub(r" [\d.]+$", "", line) for line in lines_of("pyadjoint", tmp_path)]
    assert words == ["gradient", "J elsewhere", "its gradient"]


@pytest.mark.parametrize("block", [slice(1), slice(1, 2)], ids=["first", "second"])
def test_pyrevolve(block: slice, tmp_path: Path) -> None:
    pytest.importorskip("pyrevolve")
    lines_of("pyrevolve", tmp_path, blocks=block)


def test_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    first, second, third, *_ = lines_of("torch", tmp_path, "-W", "error")
    assert re.fullmatch(r"\|dJ/du0\| = \d+\.\d+, \|dJ/dk\| = \d+\.\d+", first)
    assert second == "tensor([0.0078, 0.0078, 0.0078])"
    functional, total = map(float, third.split())
    assert functional > 0 > total


@pytest.mark.slow
@needs_mpi
def test_mpi(tmp_path: Path) -> None:
    """One answer on any number of ranks, by the page's own job and by the command."""
    text = (DOCS / "mpi.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL))
    assert list(blocks) == ["heat.py", "job.py"]
    for name, block in blocks.items():
        (tmp_path / name).write_text(block, encoding="utf-8")
    said = [
        subprocess.run(
            [MPIEXEC, "-n", str(ranks), sys.executable, "job.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        ).stdout
        for ranks in (1, 3)
    ]
    assert re.fullmatch(r"J = \d+\.\d{9}, sum of dJ/du0 = \d+\.\d{9}\n", said[0])
    assert said[0] == said[1]
    assert not list(tmp_path.glob("checkpoints/**/*.ckio"))

    platform = write_platform(tmp_path)
    words = ("run", "heat:Heat", "--steps", 50, "--platform", platform, "--check-gradient")
    found = answer(3, *words, "--into", "run", at=tmp_path)
    assert found["verified"] is True
    alone = answer(1, *words, "--into", "alone", at=tmp_path)
    assert found["gradient_digest"] == alone["gradient_digest"]
