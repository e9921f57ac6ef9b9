"""Each example does what its page says, in a directory to which it was copied."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.commands import ckio
from example_models import EXAMPLES

NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))
OF_OTHERS = {"c_main", "devito", "dolfinx", "firedrake", "jax_cfd", "petsc", "shots"}
"""Programs of other frameworks or with a main loop in C, with tests of their own."""
BLOCK = re.compile(r"```console\n(.*?)\n```", re.DOTALL)


def commands(name: str) -> list[list[str]]:
    """The commands of an example's page, in their order."""
    blocks = BLOCK.findall((EXAMPLES / name / "README.md").read_text(encoding="utf-8"))
    return [shlex.split(line[2:]) for block in blocks for line in block.splitlines()]


def done(words: list[str], at: Path) -> str:
    """The output of a command that ends well."""
    program, *rest = words
    if program == "ckio":
        return ckio(*rest, at=at).stdout
    assert program == "python"
    line = [sys.executable, *rest]
    process = subprocess.run(line, cwd=at, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def copied(name: str, at: Path) -> Path:
    """A copy of an example, as a user makes it."""
    return Path(shutil.copytree(EXAMPLES / name, at / name, ignore=shutil.ignore_patterns("__*")))


def test_the_page_lists_all_examples() -> None:
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\((\w+)/README\.md\)", page)) == NAMES
    assert sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir()) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_OTHERS])
def test_the_commands_of_an_example_run_and_draw(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    if name == "c_solver" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc)")
    at = copied(name, tmp_path)
    before = {path.name for path in at.iterdir()}
    printed = "".join(done(words, at) for words in commands(name))
    assert "gradient check  verified" in printed
    written = {path.name: path for path in at.iterdir() if path.name not in before}
    assert ElementTree.parse(written["run.svg"]).getroot().tag.endswith("svg")
    (picture,) = (path for path in written.values() if path.suffix == ".png")
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_an_inversion_is_read_back_and_takes_the_same_path(tmp_path: Path) -> None:
    at = copied("seismic", tmp_path)
    words = ["python", "invert.py", "it", "--steps", "60", "--evaluations"]
    first, second = (done([*words, count], at).splitlines() for count in ("2", "4"))
    assert second[:2] == first[:2]
    assert second[-1].startswith("the misfit fell from ")
    assert sorted(path.name for path in (at / "it").glob("evaluation-*"))[-1].endswith("004")
