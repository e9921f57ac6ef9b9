"""Faults in unchanged code, put in by strace at exact system calls."""

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ckio.actions import Key
from ckio.backends.ram import Ram
from ckio.errors import CorruptCheckpoint
from ckio.testing import get, put, raw, x

from .workload import Kind, held, plain

SCRIPT = """
import sys
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.errors import StorageError
from ckio.testing import put, raw, x

backend, place, durability = sys.argv[1:]
level = globals()[backend](place, durability=durability)
for step in range(6):
    try:
        put(level, x(step), raw(20_011), seed=step)
    except StorageError as error:
        print(error, flush=True)
    else:
        print("stored", step, flush=True)
"""
ORIGINALS = {x(step): put(Ram(), x(step), raw(20_011), seed=step) for step in range(6)}


def traced(kind: Kind, root: Path, calls: str, fault: str = "") -> tuple[set[Key], str]:
    """Write six checkpoints while strace injects a fault; what was acknowledged, and the rest."""
    if (strace := shutil.which("strace")) is None:
        pytest.skip("strace is not installed")
    options = ["-f", "-qq", "-o", str(root / "trace"), "-e", f"trace={calls}"]
    options += ["-e", f"inject={calls}:{fault}"] if fault else []
    level = [kind.backend.__name__, str(kind.place(root)), kind.durability]
    command = [strace, *options, sys.executable, "-c", SCRIPT, *level]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr}")
    assert "Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    stored = {x(int(line.split()[1])) for line in lines if line.startswith("stored")}
    return stored, "\n".join(line for line in lines if not line.startswith("stored"))


@pytest.mark.campaign
@pytest.mark.parametrize("kind", plain("fdatasync"), ids=str)
def test_a_sync_that_fails_is_an_error_and_costs_one_checkpoint(kind: Kind, tmp_path: Path) -> None:
    stored, rest = traced(kind, tmp_path, "fdatasync", "error=EIO:when=5")
    assert rest.count("\n") == 0
    assert rest.endswith("Input/output error")
    assert len(stored) == 5
    with closing(kind.open(tmp_path)) as level:
        assert held(level) == {key: ORIGINALS[key] for key in stored}


@pytest.mark.slow
@pytest.mark.parametrize("kind", plain("process"), ids=str)
def test_a_device_that_lies_is_found_out(kind: Kind, tmp_path: Path) -> None:
    """It says that it wrote 100 bytes, and did not: the caller writes the rest, and is deceived."""
    (first := tmp_path / "first").mkdir()
    traced(kind, first, "pwrite64")
    writes = [line for line in (first / "trace").read_text().splitlines() if "pwrite64(" in line]
    sizes = [int(line.rsplit(" = ")[1]) for line in writes]
    payload = next(at for at, size in enumerate(sizes, 1) if 20_011 <= size <= 30_000)
    stored, rest = traced(kind, tmp_path, "pwrite64", f"retval=100:when={payload}")
    assert (stored, rest) == (set(ORIGINALS), "")
    lost = set[Key]()
    with closing(kind.open(tmp_path)) as level:
        for key in stored:
            try:
                assert get(level, key, raw(20_011)) == ORIGINALS[key]
            except CorruptCheckpoint:
                lost.add(key)
    assert lost <= {x(0)}  # unless the caller wrote all of it again


@pytest.mark.campaign
@pytest.mark.parametrize("when", [3, 9])
@pytest.mark.parametrize("kind", plain("process"), ids=str)
def test_a_kill_at_a_write_loses_nothing_that_was_stored(
    kind: Kind, when: int, tmp_path: Path
) -> None:
    stored, _ = traced(kind, tmp_path, "pwrite64,pwritev", f"signal=KILL:when={when}")
    assert len(stored) < 6
    with closing(kind.open(tmp_path)) as level:
        there = held(level)
    assert there.items() <= ORIGINALS.items()
    assert 0 <= len(there.keys() - stored) <= 1
    assert stored <= there.keys()
