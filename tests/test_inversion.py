"""The page on an inversion: its code runs, prints its figures and draws its pictures."""

import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from example_models import EXAMPLES

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "inversion.md").read_text(encoding="utf-8")
SHOWN = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
PROGRAMS = sorted((EXAMPLES / "assimilation").glob("*.py"))
PICTURES = re.findall(r"\]\(pictures/([\w-]+\.png)\)", PAGE)


def commands() -> list[tuple[list[str], str]]:
    """The commands of the page in their order, each with its output."""
    blocks = "\n".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL))
    parts = (part.partition("\n") for part in re.split(r"^\$ ", blocks, flags=re.MULTILINE)[1:])
    return [(shlex.split(line), printed.strip()) for line, _, printed in parts]


def program(words: list[str]) -> list[str]:
    first, *rest = words
    found = Path(sys.executable).with_name("ckio") if first == "ckio" else sys.executable
    return [str(found), *rest]


def printed_by(words: list[str], at: Path) -> str:
    done = subprocess.run(program(words), cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stderr}"
    return done.stdout.strip()


def killed_after_some_evaluations(words: list[str], at: Path) -> None:
    with subprocess.Popen(program(words), cwd=at, stdout=subprocess.DEVNULL) as run:
        while not (at / "inversion" / "007").exists() and run.poll() is None:
            time.sleep(0.01)
        run.kill()
    assert run.returncode == -9
    assert not (at / "inversion" / "040").exists()


def functional(printed: str) -> float:
    (j,) = re.findall(r"^functional +(\S+)", printed, re.MULTILINE)
    return float(j)


def misfits(printed: str) -> list[float]:
    return [float(j) for j in re.findall(r"J = (\S+)", printed)]


def test_the_page_shows_files_of_the_example_and_links_to_the_others() -> None:
    assert len(SHOWN) == 2
    for path in PROGRAMS:
        text = path.read_text(encoding="utf-8")
        assert SHOWN.get(path.name, text) == text
        assert path.name in SHOWN or f"(../examples/assimilation/{path.name})" in PAGE


@pytest.mark.slow
def test_the_code_of_the_page_makes_its_figures(tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for path in PROGRAMS:
        shutil.copy(path, tmp_path)
    for words, told in commands():
        if words[-1] == "invert.py":
            killed_after_some_evaluations(words, tmp_path)
        printed = printed_by(words, tmp_path)
        if words[:2] == ["ckio", "run"]:
            assert "gradient check  verified" in printed
            assert functional(printed) == pytest.approx(functional(told), rel=1e-6)
        if words[-1] == "invert.py":
            # Rounding differs among processors, and an optimiser amplifies it.
            np.testing.assert_allclose(misfits(printed)[:3], misfits(told)[:3], rtol=1e-2)
            np.testing.assert_allclose(misfits(printed), misfits(told), rtol=0.3)
        if words[-1] == "truth.py":
            assert printed == told
    assert len(PICTURES) == 3
    for name in PICTURES:
        picture, told = pyplot.imread(tmp_path / name), pyplot.imread(DOCS / "pictures" / name)
        assert picture.shape == told.shape
        assert np.abs(picture - told).mean() < 0.05, name


def test_the_pictures_are_small() -> None:
    assert all((DOCS / "pictures" / name).stat().st_size < 200 << 10 for name in PICTURES)
