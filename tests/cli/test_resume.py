"""A run that was killed goes on from what is left, to the same gradient to the last bit."""

import errno
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cli.commands import CKIO, answer, ckio, complaint
from cli.resumable import (
    RESUME,
    STEPS,
    bound,
    killed,
    left,
    place,
    planned,
    stored_in,
    words,
    work,
)

from ckio.actions import Key
from ckio.backends.directory import Directory
from ckio.errors import StorageError
from ckio.jobs.directory import RunDirectory, sealed

MOMENTS = ("step:1", "step:30", "adjoint:17", "dump:12:9:0.0002", "functional:1")
CASES = [("directory", moment) for moment in MOMENTS] + [
    ("hdf5", "adjoint:17"),
    ("zstd", "step:70"),
]


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place with a run that was killed half-way back, with a few checkpoints left."""
    at = place(tmp_path / "at")
    killed(monkeypatch, at, "adjoint:17", *words())
    return at


def test_a_level_on_a_disk_that_died_is_not_used(
    half: Path, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def dead(path: Path, **how: bool) -> os.stat_result:
        if "ck" in path.parts:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return stat(path, **how)

    monkeypatch.setattr(Path, "stat", dead)
    done = ckio(*RESUME, "--json", at=half)
    assert json.loads(done.stdout)["gradient_digest"] == digest
    assert "level far is not used: " in done.stderr
    assert "Input/output error" in done.stderr


@pytest.mark.campaign
@pytest.mark.parametrize(("far", "moment"), CASES)
def test_a_killed_run_goes_on_to_the_same_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str, far: str, moment: str
) -> None:
    at = place(tmp_path / "at", far)
    monkeypatch.setenv("WORK", str(at / "work"))
    told = killed(monkeypatch, at, moment, *words())
    assert answer(*words("--resume"), at=at)["gradient_digest"] == digest
    assert left(at) == []
    assert work(at) <= planned(at) + bound(told)


def test_a_run_is_killed_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str
) -> None:
    at = place(tmp_path / "at")
    monkeypatch.setenv("WORK", str(at / "work"))
    most = bound(killed(monkeypatch, at, "step:60", *words()))
    for moment in ("adjoint:9", "dump:12:9:0.0001", "adjoint:9"):
        most += bound(killed(monkeypatch, at, moment, *RESUME))
    assert answer(*RESUME, at=at)["gradient_digest"] == digest
    assert work(at) <= planned(at) + most
    numbered = [f"schedule-{number}.txt" for number in range(1, 5)]
    assert all((at / "run" / name).exists() for name in numbered)


# Where there is nothing to go on from


def test_where_there_is_no_run_one_begins(tmp_path: Path, digest: str) -> None:
    parts = ["schedule.txt", ".predicted.txt.part"]
    for number, names in enumerate(([], parts, [".manifest.json.part"])):
        at = place(tmp_path / str(number))
        (at / "run").mkdir()
        for name in names:
            (at / "run" / name).write_text("cut" if name.startswith(".") else sealed(""))
        assert answer(*words("--resume"), at=at)["gradient_digest"] == digest
        assert not list((at / "run").glob(".*"))


def test_what_is_missing_and_in_no_manifest_is_said(tmp_path: Path) -> None:
    at = place(tmp_path / "at")
    line = complaint("run", "--resume", "--into", "run", at=at)
    assert f"MODEL is missing ({at / 'run'} has no run to take it from)" in line
    (at / "run").mkdir()
    (at / "run" / "thesis.tex").write_text("")
    assert "is not empty (thesis.tex)" in complaint(*words("--resume"), at=at)


def test_without_any_checkpoint_it_starts_again(half: Path, digest: str) -> None:
    assert "already holds a run" in complaint(*words(), at=half)
    shutil.rmtree(half / "ck")
    done = ckio(*RESUME, "--json", "--check-gradient", at=half)
    ended = json.loads(done.stdout)
    assert ended["gradient_digest"] == digest
    assert ended["verified"] is True
    assert ended["forward_steps"] > STEPS
    assert "and its checkpoints are missing" in done.stderr
    assert answer(*RESUME, "--check-gradient", at=half) == ended


@pytest.mark.campaign
@pytest.mark.parametrize("far", ["directory", "zstd"])
def test_a_kill_before_a_level_has_a_file_does_not_cost_the_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str, far: str
) -> None:
    at = place(tmp_path / "at", far)
    killed(monkeypatch, at, "step:1", *words())
    for path in left(at):
        path.unlink()
    assert [path.is_dir() for path in (at / "ck").iterdir()] == [True]
    done = ckio(*RESUME, "--json", at=at)
    assert done.stderr == ""
    ended = json.loads(done.stdout)
    assert ended["gradient_digest"] == digest
    assert ended["levels"][1]["written"] > 0


def test_what_remains_of_a_run_that_has_ended_is_removed(
    half: Path, tmp_path: Path, digest: str
) -> None:
    shutil.copytree(half / "ck", tmp_path / "remains")
    ckio(*RESUME, at=half)
    assert left(half) == []
    shutil.copytree(tmp_path / "remains", half / "ck", dirs_exist_ok=True)
    assert left(half)
    assert answer(*RESUME, at=half)["gradient_digest"] == digest
    assert left(half) == []
    line = complaint(*RESUME, "--check-gradient", at=half)
    assert "has ended without --check-gradient" in line


def test_relative_levels_are_found_from_another_directory(
    half: Path, tmp_path: Path, digest: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(half / "ocean.py", elsewhere)
    shutil.copytree(half, tmp_path / "moved")  # with its levels: then they are found from there
    resume = ("run", "ocean:growth", "--resume", "--json", "--into")
    for where in (tmp_path / "moved", half):
        stored = left(where)
        done = ckio(*resume, where / "run", at=elsewhere)
        assert json.loads(done.stdout)["gradient_digest"] == digest
        assert done.stderr == ""
        assert stored
        assert left(where) == []


def test_a_level_that_cannot_be_removed_after_the_end_is_a_warning(
    tmp_path: Path, digest: str
) -> None:
    """Its files are moved away at the last look at the gradient, when all is done."""
    at = place(tmp_path / "at")
    text = (at / "ocean.py").read_text().replace(
        'moment("functional")', 'os.path.exists("ck") and os.rename("ck", "away")'
    )  # fmt: skip
    (at / "ocean.py").write_text(text)
    done = ckio(*words("--json"), at=at)
    assert json.loads(done.stdout)["gradient_digest"] == digest
    assert done.stderr.startswith("ckio: the files of level far remain (")
    (at / "away").rename(at / "ck")
    assert answer(*RESUME, at=at)["gradient_digest"] == digest
    assert left(at) == []


# Another run


def test_another_run_is_refused_with_all_differences(half: Path) -> None:
    text = (half / "node.toml").read_text()
    (half / "other.toml").write_text(text.replace("48000", "50000"))
    (half / "node.txt").write_text("1\n5 1 1\n")
    several = ("--steps", 41, "--planner", "auto", "--platform", "node.txt")
    for more, said in (
        (("--planner", "revolve"), ["--planner is revolve", "of the run hrevolve"]),
        (("--set", "rate=0.5"), ["--set rate is 0.5, in the run it was not given"]),
        (("--platform", "other.toml"), ["--platform differs (far: capacity 50000 for 48000)"]),
        (several, ["--steps is 41, the run has 40", "--planner is auto", "differs (", "levels"]),
    ):
        line = complaint(*words("--resume", *more), at=half)
        assert line.startswith("ckio: run holds another run: ")
        assert all(part in line for part in said), line


def test_another_model_or_control_is_refused(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = complaint("run", "vorticity", *words()[2:], "--resume", at=half)
    assert "the model is vorticity, that of the run ocean:growth" in line
    monkeypatch.setenv("RATE", "0.31")
    assert "the controls of the model are different" in complaint(*RESUME, at=half)


def test_costs_that_are_measured_again_change_nothing(half: Path, digest: str) -> None:
    text = (half / "node.toml").read_text()
    (half / "node.toml").write_text(text.replace("advance = 1.0", "advance = 2.0"))
    assert answer(*words("--resume"), at=half)["gradient_digest"] == digest
    assert json.loads((half / "run" / "manifest.json").read_text())["chain"]["advance"] == 1.0


# Levels that are not as they were left


@pytest.mark.parametrize(
    "count", [pytest.param(2, id="some"), pytest.param(None, id="all", marks=pytest.mark.slow)]
)
def test_a_byte_flipped_in_each_survivor_in_turn_costs_that_one_alone(
    half: Path, tmp_path: Path, digest: str, count: int | None
) -> None:
    stored = stored_in(half)
    assert len(stored) > 2
    for number, item in enumerate(stored[:count]):
        at = tmp_path / f"flipped-{number}"
        shutil.copytree(half, at)
        _flip(at / item.path.relative_to(half), item.spans[0][0] + 7)
        done = ckio(*RESUME, "--json", at=at)
        assert json.loads(done.stdout)["gradient_digest"] == digest
        assert f"{item.key} in " in done.stderr
        assert "it was discarded" in done.stderr


def _flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


@pytest.mark.campaign
@pytest.mark.parametrize("far", ["directory", "hdf5"])
def test_a_level_that_is_damaged_all_over_is_not_used_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digest: str, far: str
) -> None:
    at = place(tmp_path / "at", far)
    killed(monkeypatch, at, "adjoint:17", *words())
    for path in left(at):
        path.write_bytes(b"\xff" * path.stat().st_size)
    done = ckio(*RESUME, "--json", at=at)
    assert json.loads(done.stdout)["gradient_digest"] == digest
    assert "level far" in done.stderr


def test_a_level_that_cannot_be_opened_is_planned_without(half: Path, digest: str) -> None:
    shutil.rmtree(half / "ck")
    (half / "ck").write_text("a file")
    done = ckio(*RESUME, "--json", at=half)
    assert json.loads(done.stdout)["gradient_digest"] == digest
    assert "level far is not used: " in done.stderr
    assert (half / "ck").read_text() == "a file"


def test_a_corrupt_checkpoint_that_cannot_be_discarded_does_not_hold_a_run_up(
    half: Path, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = stored_in(half)[0]
    _flip(item.path, item.spans[0][0])

    def refuse(self: Directory, key: Key) -> None:
        raise StorageError(f"{key} stays")

    with monkeypatch.context() as here:
        here.setattr(Directory, "discard", refuse)
        done = ckio(*RESUME, "--json", at=half)
    assert json.loads(done.stdout)["gradient_digest"] == digest
    assert "level far is not used: " in done.stderr
    assert f"{item.key} stays" in done.stderr


@pytest.mark.slow
def test_a_run_that_another_process_works_on_is_left_alone(half: Path) -> None:
    def refused() -> str:
        done = subprocess.run(
            [CKIO, *RESUME], cwd=half, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        return done.stderr

    directory = RunDirectory(half / "run", resume=True)
    assert "run is in use by another process" in refused()
    assert "run is in use by an object of this process" in complaint(*RESUME, at=half, status=1)
    directory.release()
    level = Directory(stored_in(half)[0].path.parent)
    assert "is in use by another process" in refused()
    level.close()
    assert answer(*RESUME, at=half)["steps"] == STEPS
