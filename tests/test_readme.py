"""Commands of the first pages work as they stand, one after the other, in an empty directory."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ckio.adapters.registry import codec_of, names
from ckio.platform import Platform

ROOT = Path(__file__).parent.parent
CKIO = Path(sys.executable).with_name("ckio")


def commands(page: str) -> list[str]:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.slow
def test_its_commands_work_in_an_empty_directory(tmp_path: Path) -> None:
    lines = commands("README.md")
    ours = [line for line in lines if line.startswith("ckio") and line != "ckio demo"]
    assert ours
    for line in ours:
        words = [str(CKIO), *shlex.split(line)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        assert done.stderr == ""


def test_the_page_of_levels_describes_levels_that_can_be_opened() -> None:
    text = (ROOT / "docs" / "levels.md").read_text()
    (toml,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    (level,) = Platform.loads(f"format = 1\n{toml}", source="levels.md").levels
    codec = codec_of(level)
    assert codec is not None
    assert codec.lossless
    for group in ("backends", "codecs"):
        assert all(f"| `{name}` |" in text for name in names(group))


def test_ci_runs_exactly_its_test_command() -> None:
    (command,) = [line for line in commands("README.md") if "pytest" in line]
    assert f"\n{command}\n" in (ROOT / ".ci" / "run").read_text()
