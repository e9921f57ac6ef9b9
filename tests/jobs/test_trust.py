"""What is in a run's directory is data: it cannot lose a result, run code, or lead elsewhere."""

import contextlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest
from cli.commands import answer, ckio, complaint
from jobs.inversion import LINE, place

from ckio import Job
from ckio.backends.directory import Directory
from ckio.backends.files import write_whole
from ckio.errors import BadInput
from ckio.jobs.directory import MANIFEST, RESULT, SCHEDULE, sealed, unsealed
from ckio.jobs.gradients import read_control


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed on its way back."""
    at = place(tmp_path_factory.mktemp("killed"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KILL", "adjoint:25:run/manifest.json")
        ckio(*LINE, at=at, status=-9)
    return at


@pytest.fixture
def at(killed: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(killed, tmp_path / "at", symlinks=True)
    return tmp_path / "at"


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    at = place(tmp_path_factory.mktemp("whole"))
    return str(answer(*LINE, at=at)["gradient_digest"])


def edited(path: Path, change: Callable[[Any], None]) -> None:
    """Edit JSON, and make its checksum fit again, as somebody might who knows how."""
    said = json.loads(unsealed(path.read_text(), path))
    change(said)
    path.write_text(sealed(json.dumps(said)))


# 1. A finished run is never lost

LATER = """
import glob, os, shutil
import ckio.backends.directory as directory

end = Heat.adjoint_step

def adjoint_step(self, adjoint, tape, i):
    end(self, adjoint, tape, i)
    if i == 0:
        {trouble}

def remove(self):
    raise {error}

Heat.adjoint_step = adjoint_step
"""
ERRORS = ("OSError(13, 'Permission denied')", "__import__('ckio.errors').errors.StorageError('no')")


@pytest.mark.campaign
@pytest.mark.parametrize(
    "trouble",
    [
        *(f"directory.Directory.remove = remove  # {error}" for error in ERRORS),
        "shutil.rmtree('ck')",
        "[os.rename(name, name + '.bak') for name in glob.glob('ck/*')]",
        "os.symlink('/nowhere', 'ck/link')",
        "[os.mkdir(name + '/folder') for name in glob.glob('ck/*')]",
    ],
)
@pytest.mark.parametrize("planner", ["hrevolve", "auto"])
def test_whatever_becomes_of_a_level_at_the_end_the_result_is_kept(
    tmp_path: Path, trouble: str, planner: str, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Directory, "remove", Directory.remove)  # which the model replaces
    at = place(tmp_path)
    later = LATER.format(trouble=trouble, error=trouble.partition("# ")[2])
    (at / "heat.py").write_text((at / "heat.py").read_text() + later)
    line = [planner if word == "hrevolve" else word for word in LINE]
    done = ckio(*line, "--json", at=at)
    assert ("remain (" in done.stderr) >= ("remove" in trouble)
    assert json.loads(done.stdout)["gradient_digest"] == digest
    assert (at / "run" / "gradient.h5").exists()
    assert answer(*line, at=at)["gradient_digest"] == digest


# 2. Nothing that a file names is imported or called


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["harm.py:Model", "subprocess:check_output", "harm:Model"])
def test_a_model_is_imported_only_where_the_caller_names_it(at: Path, name: str) -> None:
    harm = "open('harmed', 'w').close()\nModel = None\n"
    (at / "harm.py").write_text(harm)
    edited(at / "run" / MANIFEST, lambda said: said["request"].update(model=name))
    line = complaint("run", "--resume", "--into", "run", at=at)
    assert "ckio imports no model that only a file names" in line
    assert "ckio run" in line
    with contextlib.chdir(at), pytest.raises(BadInput, match="no model that only a file names"):
        Job("run").run()
    assert not (at / "harmed").exists()
    assert "harm" not in sys.modules


def test_what_is_no_registered_name_is_bad_input(at: Path) -> None:
    for part, value in (
        ("planner", "subprocess:run"),
        ("planner", "os.system"),
        ("model", "os:system"),
    ):

        def change(said: dict[str, Any], part: str = part, value: str = value) -> None:
            said["request"][part] = value

        edited(at / "run" / MANIFEST, change)
        words = ("run", "--resume", "--into", "run") if part == "model" else LINE[:2] + LINE[-3:]
        complaint(*words, at=at)


# 3. Nothing is written through a link


def test_a_file_is_made_beside_its_place_and_renamed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("old")
    (tmp_path / "file").symlink_to(victim)
    (tmp_path / ".file.part").symlink_to(victim)
    write_whole(tmp_path / "file", "new")
    assert victim.read_text() == "old"
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "victim"]


# 4. Edits are refused by name


def test_an_edit_is_refused_by_the_name_of_the_file(at: Path) -> None:
    for name, old, new in (
        (MANIFEST, '"steps": 60', '"steps": 59'),
        (MANIFEST, '"settings": {}', '"settings": {"viscosity": 0.21}'),
        (MANIFEST, '"every": 8.0', '"every": 9.0'),
        (SCHEDULE, "capacity = 40000", "capacity = 90000"),
        (SCHEDULE, "# steps 60", "# steps 59"),
    ):
        path = at / "run" / name
        whole = path.read_text()
        assert old in whole
        path.write_text(whole.replace(old, new))
        assert f"run/{name} is damaged" in complaint(*LINE, at=at)
        path.write_text(whole)


def test_checkpoints_are_bound_to_what_is_computed(at: Path) -> None:
    """Also where somebody makes all checksums of the manifest fit another viscosity."""

    def change(said: dict[str, Any]) -> None:
        said["request"]["settings"] = {"viscosity": 0.21}

    edited(at / "run" / MANIFEST, change)
    line = complaint(*LINE, at=at)
    assert "for another computation" in line


@pytest.mark.slow
def test_a_result_and_a_gradient_are_checked_when_they_are_read(tmp_path: Path) -> None:
    at = place(tmp_path)
    answer(*LINE, at=at)
    result, gradient = at / "run" / RESULT, at / "run" / "gradient.h5"
    whole = result.read_text(), gradient.read_bytes()
    result.write_text(whole[0].replace('"functional": 1', '"functional": 2'))
    assert "result.json is damaged" in complaint(*LINE, at=at)
    result.write_text(whole[0])
    data = bytearray(whole[1])
    data[-100] ^= 1
    gradient.write_bytes(bytes(data))
    assert "gradient.h5 is damaged" in complaint(*LINE, at=at)
    gradient.write_bytes(whole[1][:4000])
    assert "gradient.h5" in complaint(*LINE, at=at)
    gradient.write_bytes(whole[1])
    answer(*LINE, at=at)


def test_controls_come_from_their_own_file(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["x"] = [1.0]
    with h5py.File(tmp_path / "control.h5", "w") as file:
        file["x"], file["y"] = h5py.ExternalLink("secret.h5", "x"), 1.0
    assert list(read_control(tmp_path / "control.h5")) == ["y"]
    with h5py.File(tmp_path / "control.h5", "w") as file:
        file.create_dataset("x", 1, "f8", external=[(str(tmp_path / "secret.h5"), 0, 8)])
    with pytest.raises(BadInput, match="stored in another file"):
        read_control(tmp_path / "control.h5")
