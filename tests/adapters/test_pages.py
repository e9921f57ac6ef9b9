"""The code on the pages of adapters as it stands there: in an empty directory, by a new process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from adapters.outputs import assert_as_shown, shown
from cli import commands
from cli.jobs import MPIEXEC, answer, needs_mpi, write_platform

DOCS = Path(__file__).parents[2] / "docs" / "adapters"


def output_of(page: str, at: Path, *options: str, blocks: slice = slice(None)) -> str:
    """Return what the Python of a page prints, in one script, which leaves no files behind."""
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
    return done.stdout


@pytest.mark.parametrize(
    ("page", "needed", "options"),
    [
        ("checkpoint_schedules", "checkpoint_schedules", ()),
        ("pyrevolve", "pyrevolve", ()),
        ("torch", "torch", ("-W", "error")),
        pytest.param("jax", "jax", (), marks=pytest.mark.slow),
        pytest.param("pyadjoint", "pyadjoint", (), marks=pytest.mark.slow),
    ],
)
def test_its_examples_print_what_it_shows(
    page: str, needed: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip(needed)
    assert_as_shown(output_of(page, tmp_path, *options), shown(DOCS / f"{page}.md"))


@pytest.mark.slow
def test_the_first_example_on_pytorch_is_complete(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    output = output_of("torch", tmp_path, "-W", "error", blocks=slice(1))
    assert_as_shown(output.rstrip(), shown(DOCS / "torch.md").splitlines()[0])


@pytest.mark.slow
@needs_mpi
def test_mpi(tmp_path: Path) -> None:
    """One answer on any number of ranks, by the page's own job and by the command."""
    text = (DOCS / "mpi.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL))
    assert list(blocks) == ["heat.py", "job.py", "ring.py"]
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
    assert_as_shown(said[0], shown(DOCS / "mpi.md"))
    assert said[0] == said[1]
    assert not list(tmp_path.glob("checkpoints/**/*.ckio"))

    platform = write_platform(tmp_path)
    words = ("run", "heat:Heat", "--steps", 50, "--platform", platform, "--check-gradient")
    found = answer(3, *words, "--into", "run", at=tmp_path)
    assert found["verified"] is True
    alone = answer(1, *words, "--into", "alone", at=tmp_path)
    assert found["gradient_digest"] == alone["gradient_digest"]


@needs_mpi
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_periodic_halos_are_right_also_if_both_neighbours_are_one_rank(
    ranks: int, tmp_path: Path
) -> None:
    text = (DOCS / "mpi.md").read_text(encoding="utf-8")
    for name, block in re.findall(r"```python\n# (heat|ring)\.py\n(.*?)```", text, re.DOTALL):
        (tmp_path / f"{name}.py").write_text(block, encoding="utf-8")
    platform = write_platform(tmp_path)
    words = ("run", "ring:Ring", "--steps", 50, "--platform", platform, "--check-gradient")
    several = answer(ranks, *words, "--into", "on-ranks", at=tmp_path)
    alone = commands.answer(*words, "--into", "alone", at=tmp_path)
    assert several["verified"] is alone["verified"] is True
    assert several["gradient_digest"] == alone["gradient_digest"]
    assert several["functional"] == pytest.approx(alone["functional"], rel=1e-14)
