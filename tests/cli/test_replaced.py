"""Files of a level that are replaced or cut short, in mid-run or before a run is resumed."""

import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.commands import CKIO, answer
from cli.resumable import RESUME, killed, place, reference, words

Replace = Callable[[Path, Path], None]


def by_link(path: Path, elsewhere: Path) -> None:
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def by_dangling_link(path: Path, elsewhere: Path) -> None:
    path.unlink()
    path.symlink_to(elsewhere)


def by_directory(path: Path, _elsewhere: Path) -> None:
    path.unlink()
    path.mkdir()


def by_pipe(path: Path, _elsewhere: Path) -> None:
    path.unlink()
    os.mkfifo(path)


REPLACED = [by_link, by_dangling_link, by_directory, by_pipe]
FAR = {"directory": "*/*.ckio", "hdf5": "*.h5"}


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """That of an uninterrupted run."""
    return reference(tmp_path_factory.mktemp("whole"))["gradient_digest"]


def files_of(at: Path, far: str) -> list[Path]:
    return sorted((at / "ck").glob(FAR[far]))


@pytest.mark.campaign
@pytest.mark.parametrize("replace", REPLACED)
@pytest.mark.parametrize("far", FAR)
def test_a_run_is_resumed_where_a_file_of_its_level_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str, far: str, replace: Replace
) -> None:
    at = place(tmp_path / "at", far)
    killed(monkeypatch, at, "adjoint:17", *words())
    elsewhere = tmp_path / "elsewhere"
    files = files_of(at, far)
    assert files
    for number, path in enumerate(files):
        replace(path, elsewhere.with_name(f"elsewhere-{number}"))
    before = _contents(tmp_path)
    done = answer(*RESUME, at=at)
    assert done["gradient_digest"] == digest
    assert _contents(tmp_path) == before  # nothing was written through a link, or made by one


def _contents(at: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in at.glob("elsewhere-*")}


def in_mid_run(
    at: Path, far: str, digest: str, wait: float, change: Callable[[Path], object], *more: str
) -> str:
    """A run, in a process of its own, whose level is changed on the way; returns what it tells."""
    environment = os.environ | {"PAUSE": "0.004"}
    run = subprocess.Popen(
        [CKIO, *map(str, words(*more)), "--json"],
        cwd=at,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while run.poll() is None and not (files := files_of(at, far)):
            time.sleep(0.002)
        time.sleep(wait)
        if run.poll() is None and files[0].exists():
            change(files[0])
        out, told = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 0, told
    assert json.loads(out)["gradient_digest"] == digest
    return told


@pytest.mark.campaign
@pytest.mark.parametrize("replace", REPLACED)
@pytest.mark.parametrize("more", [(), ("--overlap", "all")], ids=["synchronous", "overlapped"])
def test_a_slot_file_is_replaced_in_mid_run(
    tmp_path: Path, digest: str, replace: Replace, more: tuple[str, ...]
) -> None:
    at = place(tmp_path / "at")

    def change(path: Path) -> None:
        replace(path, tmp_path / "elsewhere")

    told = in_mid_run(at, "directory", digest, 0.05, change, *more)
    # One that was moved is still open, and written to where it is now.
    assert ("level 'far' fails, and is given up" in told) is (replace is not by_link)


@pytest.mark.slow
def test_an_archive_is_replaced_in_mid_run(tmp_path: Path, digest: str) -> None:
    for number, replace in enumerate(REPLACED):
        at = place(tmp_path / f"at-{number}", "hdf5")

        def change(path: Path, replace: Replace = replace, number: int = number) -> None:
            replace(path, tmp_path / f"elsewhere-{number}")

        in_mid_run(at, "hdf5", digest, 0.05, change)


@pytest.mark.parametrize(
    "tries",
    [pytest.param(3, id="some"), pytest.param(20, id="many", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize("more", [(), ("--overlap", "all")], ids=["synchronous", "overlapped"])
def test_a_file_is_cut_short_in_mid_run(
    tmp_path: Path, digest: str, far: str, more: tuple[str, ...], tries: int
) -> None:
    """At any length and moment, for each kind of level and of run; half of them early."""
    draw = random.Random(f"{far}{more}{tries}")
    planned_anew = 0
    for number in range(tries):
        at = place(tmp_path / "at", far)
        wait = 0.5 * draw.random() ** (1 if number % 2 else 4)
        part = draw.choice([0.0, 1e-5, draw.random(), draw.random() / 20])

        def change(path: Path, part: float = part) -> None:
            os.truncate(path, int(path.stat().st_size * part))

        planned_anew += "is planned anew" in in_mid_run(at, far, digest, wait, change, *more)
        shutil.rmtree(at)
    assert planned_anew >= tries // 4
