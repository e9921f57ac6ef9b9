"""The page on choosing levels: its commands print what it shows, and its text has those figures."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ckio.platform import Platform

PAGE = Path(__file__).parents[1] / "docs" / "choosing_levels.md"
CKIO = Path(sys.executable).with_name("ckio")
BLOCK = re.compile(r"```console\n\$ (.*?)\n(.*?)```", re.DOTALL)


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def machines() -> dict[str, str]:
    """Return the platform files of the page, by name."""
    return dict(re.findall(r"```toml\n# (\w+\.toml)\n(.*?)```", text(), re.DOTALL))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["node.toml", "gpu.toml", "pfs.toml"])
def test_the_commands_print_what_the_page_shows(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(machines()[name], encoding="utf-8")
    shown = [(line, printed) for line, printed in BLOCK.findall(text()) if name in line]
    assert len(shown) >= 2
    for line, printed in shown:
        words = [str(CKIO), *shlex.split(line)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.rstrip() == printed.rstrip(), line


def test_all_commands_are_of_one_of_the_machines() -> None:
    assert all(any(name in line for name in machines()) for line, _ in BLOCK.findall(text()))


def test_seconds_in_the_text_are_printed_by_a_command() -> None:
    printed = " ".join(printed for _, printed in BLOCK.findall(text()))
    found = {round(float(number)) for number in re.findall(r"\b\d{4,}(?:\.\d+)?\b", printed)}
    prose = re.sub(r"```.*?```", "", text(), flags=re.DOTALL)
    told = [int(number) for number in re.findall(r"\b(\d{4,5}) s\b", prose)]
    assert len(told) > 10
    assert set(told) <= found


def makespans(name: str, level: str) -> tuple[float, float]:
    """Return the makespan with the far level of a platform, and that without it."""
    command = rf"plan --steps \d+ --platform {name} --capacity {level}=0,"
    (printed,) = [printed for line, printed in BLOCK.findall(text()) if re.search(command, line)]
    rows = re.findall(r"(?m)^[\d.]+ \w+ +([\d.]+) ", printed)
    return float(rows[-1]), float(rows[0])


def test_the_first_table_is_of_these_machines() -> None:
    """Bytes and seconds are those of the platform files; savings are of printed makespans."""
    table = re.findall(r"^\| (?:GPU node|cluster node) .*\|$", text(), re.MULTILINE)
    far_levels = ("nvme", "nvme", "pfs")
    pairs = list(map(makespans, machines(), far_levels))
    for row, toml, (both, alone) in zip(table, machines().values(), pairs, strict=True):
        _, _, state, step, _, access, steps, saved, _ = (cell.strip() for cell in row.split("|"))
        platform = Platform.loads(toml, source=PAGE.name)
        (chain,) = platform.models.values()
        far, nbytes = platform.levels[1], chain.largest("restart")
        seconds = far.write(nbytes) + far.read(nbytes)
        expected = nbytes / 1e9, chain.advance, seconds, seconds / chain.advance
        for cell, value in zip((state, step, access, steps), expected, strict=True):
            assert float(cell.removesuffix(" GB").removesuffix(" s")) == pytest.approx(value, 0.04)
        assert saved == (
            f"{1 - both / alone:.0%}".replace("%", " %") if both < alone else "nothing"
        )
