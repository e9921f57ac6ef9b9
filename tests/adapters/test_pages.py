"""The code on the pages of adapters as it stands there: in an empty directory, by a new process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
