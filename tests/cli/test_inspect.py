"""`ckio inspect`: what is stored, where, since when, and whether it is sound."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from cli.commands import answer, ckio, complaint
from jobs.begun import MANIFEST, begun

from ckio.actions import Field, Key, Kind
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.runid import RunId, computing
from ckio.compression import Zfp, Zstd
from ckio.jobs import directory as rundir
from ckio.jobs.leftovers import find
from ckio.testing import FLOW, a, contents, put, raw, t, x

NODE = """\
[models."vorticity grid=8"]
advance = 1e-4
record = 1e-4
reverse = 2e-4
restart = 2600
tape = 1296
adjoint = 3904
[[level]]
name = "nvme"
backend = "directory"
options = {path = "ck"}
[[level]]
name = "archive"
backend = "hdf5"
options = {path = "deep/a.h5"}
"""
SMOOTH = (Field("u", "<f8", (64, 64), "m/s"),)


def fill(level: Any) -> None:
    """Three kinds of checkpoints, the adjoint's without what was discarded."""
    put(level, x(7), FLOW)
    put(level, x(0), FLOW, seed=1)
    put(level, t(3), raw(100))
    put(level, a(9), raw(5000))
    put(level, a(8), raw(5000))
    level.discard(a(8))


BACKENDS = pytest.mark.parametrize("backend", ["directory", "hdf5"])


def opened(backend: str, place: Path) -> Any:
    return Directory(place / "cafe") if backend == "directory" else Hdf5(place / "level-cafe.h5")


@pytest.fixture(params=["directory", "hdf5"])
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A place with one run in it."""
    level = opened(request.param, tmp_path)
    fill(level)
    level.close()
    return tmp_path


def _flip(offset: int, file: str) -> None:
    data = bytearray(Path(file).read_bytes())
    data[offset] ^= 16
    Path(file).write_bytes(data)


def _bytes_of(at: Path) -> dict[Path, tuple[bytes, int]]:
    files = [path for path in at.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_every_checkpoint_is_listed_and_nothing_is_changed(filled: Path) -> None:
    before = _bytes_of(filled)
    found = answer("inspect", filled, "--verify", at=filled)
    assert _bytes_of(filled) == before
    assert found["damaged"] == []
    assert found["in_use"] == []
    assert [entry["key"] for entry in found["checkpoints"]] == ["x_0", "x_7", "t_3", "a_9"]
    assert all(entry["sound"] is True for entry in found["checkpoints"])
    assert found["bytes"] == sum(entry["nbytes"] for entry in found["checkpoints"])
    nearest = found["checkpoints"][2]
    assert (nearest["kind"], nearest["step"], nearest["nbytes"]) == ("tape", 3, 100)
    assert nearest["layout"] == [["raw", "|u1", [100], ""]]
    assert (nearest["codec"], nearest["lossless"]) == (None, True)
    assert 0 <= time.time() - nearest["written"] < 3600
    with Path(nearest["file"]).open("rb") as file:
        file.seek(nearest["offset"])
        assert file.read(nearest["nbytes"]) == bytes(contents(raw(100))[0])
    unread = answer("inspect", filled, at=filled)
    assert {entry["sound"] for entry in unread["checkpoints"]} == {None}
    text = ckio("inspect", filled, at=filled).stdout
    assert "not verified" in text
    assert "restart data: 2 checkpoints" in text
    assert "tape: 1 checkpoint, 100 B" in text
    assert "adjoint: 1 checkpoint, 4.88 KiB" in text


def test_variables_are_counted_as_arrays(tmp_path: Path) -> None:
    level = Directory(tmp_path / "cafe")
    for name in ("T", "u+v"):
        put(level, Key(Kind.RESTART, 7, name), raw(100))
    put(level, a(9), raw(100))
    level.close()
    told = ckio("inspect", tmp_path, "--verify", at=tmp_path).stdout
    assert [line.split("  ")[0] for line in told.splitlines()[3:6]] == ["x_7.T", "x_7.u+v", "a_9"]
    assert "restart data: 2 arrays, 200 B" in told
    assert "adjoint: 1 checkpoint, 100 B" in told


def test_damaged_payload_is_told_and_fails_verify(filled: Path) -> None:
    entry = answer("inspect", filled, at=filled)["checkpoints"][2]
    _flip(entry["offset"] + 50, entry["file"])
    ckio("inspect", filled, at=filled)  # nothing was read, nothing is known
    done = ckio("inspect", filled, "--verify", at=filled, status=1)
    assert "DAMAGED" in done.stdout
    assert "t_3" in done.stdout
    assert done.stderr.count("\n") == 1
    assert "1 damaged part found" in done.stderr
    found = json.loads(ckio("inspect", filled, "--verify", "--json", at=filled, status=1).stdout)
    assert [entry["sound"] for entry in found["checkpoints"]] == [True, True, False, True]


def test_a_damaged_head_is_listed_also_without_verify(tmp_path: Path) -> None:
    level = Directory(tmp_path / "cafe")
    fill(level)
    level.close()
    entry = answer("inspect", tmp_path, at=tmp_path)["checkpoints"][0]
    _flip(entry["offset"] - 4096 + 20, entry["file"])
    found = answer("inspect", tmp_path, at=tmp_path)
    assert len(found["checkpoints"]) == 3
    (damage,) = found["damaged"]
    assert f"DAMAGED: {entry['file']}: " in ckio("inspect", tmp_path, at=tmp_path).stdout
    assert damage["file"] == entry["file"]
    assert damage["what"]
    ckio("inspect", tmp_path, "--verify", at=tmp_path, status=1)


def test_what_has_no_checksum_is_neither_sound_nor_damaged(tmp_path: Path) -> None:
    level = Directory(tmp_path, checksum=False)
    put(level, x(0), FLOW)
    level.close()
    (entry,) = answer("inspect", tmp_path, "--verify", at=tmp_path)["checkpoints"]
    assert (entry["checksum"], entry["sound"]) == (False, None)


def test_codecs_and_what_is_lossy_are_told(tmp_path: Path) -> None:
    pytest.importorskip("zfpy")
    for name, codec in (("aa", Zstd()), ("bb", Zfp(tolerance=1e-3))):
        level = Compressed(Directory(tmp_path / name), codec)
        level.write(x(0), SMOOTH, [memoryview(bytearray(8 * 64 * 64))])
        level.close()
    zstd, zfp = answer("inspect", tmp_path, "--verify", at=tmp_path)["checkpoints"]
    assert (zstd["codec"], zstd["lossless"]) == (Zstd().name, True)
    assert (zfp["codec"], zfp["lossless"]) == (Zfp(tolerance=1e-3).name, False)
    for entry in (zstd, zfp):
        assert entry["original"] == 8 * 64 * 64 > entry["nbytes"]
        assert entry["layout"] == [["u", "<f8", [64, 64], "m/s"]]
    assert ckio("inspect", tmp_path, at=tmp_path).stdout.count("LOSSY") == 1


# Places


def test_a_run_is_found_by_its_directory_its_places_and_its_files(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(NODE)
    words = ("run", "vorticity", "--set", "grid=8", "--steps", 9, "--planner", "hrevolve")
    ckio(*words, "--platform", "node.toml", "--into", "run", at=tmp_path)
    manifest = rundir.manifest_in(tmp_path / "run")
    run, own = manifest.run, RunId(computing(manifest.run, manifest.identity))
    for backend, path in ((Directory, f"ck/{run}"), (Hdf5, f"deep/a-{run}.h5")):
        level = backend(tmp_path / path, run=own)
        for key in list(level.keys()):
            level.discard(key)
        put(level, x(7), FLOW)
        level.close()
    (tmp_path / "deep" / "other.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(9999))
    for place, count in (
        *(("run", 2), ("ck", 1), (f"ck/{run}", 1)),
        *(("deep", 1), ("deep/a.h5", 1), (f"deep/a-{run}.h5", 1)),
    ):
        found = answer("inspect", place, "--verify", at=tmp_path)
        assert [entry["key"] for entry in found["checkpoints"]] == count * ["x_7"], place
        assert {entry["run"] for entry in found["checkpoints"]} == {run}
        assert found["foreign"] == []


def test_what_another_run_stored_is_told(tmp_path: Path) -> None:
    run = MANIFEST.run
    begun(tmp_path, ['backend = "directory"', 'options.path = "ck"'])
    level = Directory(tmp_path / "ck" / run, run=RunId("beef"))
    fill(level)
    level.close()
    said = f"ck/{run} (directory, run beef): NOT OF RUN {run}, which cannot read it\n"
    assert said in ckio("inspect", "run", at=tmp_path).stdout
    assert "(directory, run beef)\n" in ckio("inspect", "ck", at=tmp_path).stdout
    found = answer("inspect", "run", "--verify", at=tmp_path)
    assert found["foreign"] == [f"ck/{run}"]
    assert {entry["run"] for entry in found["checkpoints"]} == {"beef"}


def test_a_directory_of_other_things_has_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "away").symlink_to("/tmp")
    assert answer("inspect", tmp_path, at=tmp_path)["checkpoints"] == []
    assert ckio("inspect", tmp_path, at=tmp_path).stdout.startswith("no file of ckio was found")


def test_a_place_that_is_none_is_bad_input(tmp_path: Path) -> None:
    assert "there is no nothing.h5" in complaint("inspect", "nothing.h5", at=tmp_path)
    (tmp_path / "a.h5").write_text("no archive")
    assert "a.h5 is not an HDF5 file; give another file" in complaint(
        "inspect", "a.h5", at=tmp_path
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / rundir.MANIFEST).write_text(
        rundir.sealed(MANIFEST.dumps()).replace("deadcafe", "deadbeef")
    )
    assert "run/manifest.json is damaged" in complaint("inspect", "run", at=tmp_path)
    (tmp_path / "slots-8192-v4.ckio").write_bytes(bytes(8192))
    assert "format 4" in complaint("inspect", tmp_path, at=tmp_path)


# A run that is going on


@BACKENDS
def test_a_level_in_use_is_listed_and_not_disturbed(backend: str, tmp_path: Path) -> None:
    level = opened(backend, tmp_path)
    fill(level)
    found = answer("inspect", tmp_path, "--verify", at=tmp_path)
    assert len(found["checkpoints"]) == 4
    assert found["in_use"] == [str(level.path)]
    level.discard(x(7))
    put(level, x(8), FLOW)
    level.close()
    found = answer("inspect", tmp_path, at=tmp_path)
    assert found["in_use"] == []
    assert "x_8" in [entry["key"] for entry in found["checkpoints"]]


def test_what_a_run_discards_while_it_is_verified_is_not_damaged(tmp_path: Path) -> None:
    level = Directory(tmp_path / "cafe")
    put(level, x(0), FLOW)
    (found,) = find(tmp_path)
    level.discard(x(0))
    put(level, x(0), FLOW, seed=5)
    level.discard(x(0))
    put(level, x(1), FLOW, seed=6)  # in the slot of x_0
    done = found.verified()
    assert (done.checkpoints, done.damaged) == ([], [])
    level.close()


@BACKENDS
def test_the_offset_is_that_of_a_byte_of_it(backend: str, tmp_path: Path) -> None:
    level = opened(backend, tmp_path)
    put(level, x(0), (Field("none", "|u1", (0,)), Field("u", "|u1", (500,))))
    level.close()
    (entry,) = answer("inspect", tmp_path, at=tmp_path)["checkpoints"]
    _flip(entry["offset"], entry["file"])
    assert "1 damaged part" in ckio("inspect", tmp_path, "--verify", at=tmp_path, status=1).stderr
