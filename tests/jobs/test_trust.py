"""What is in a run's directory is data: it cannot lose a result, run code, or lead elsewhere."""

import contextlib
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli.commands import answer, ckio, complaint
from jobs.inversion import LINE, place

from ckio import Job
from ckio.backends.files import write_whole
from ckio.errors import BadInput
from ckio.jobs.directory import MANIFEST, RESULT, SCHEDULE, NewDirectory, sealed, unsealed
from ckio.jobs.request import Manifest


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

REMOVING = """
import ckio.backends.directory as directory

def remove(self):
    raise {error}

directory.Directory.remove = remove
"""


@pytest.mark.campaign
@pytest.mark.parametrize(
    "error",
    ["OSError(13, 'Permission denied')", "__import__('ckio.errors').errors.StorageError('gone')"],
)
@pytest.mark.parametrize("planner", ["hrevolve", "auto"])
def test_a_level_that_cannot_be_removed_costs_no_result(
    tmp_path: Path, error: str, planner: str, digest: str
) -> None:
    at = place(tmp_path)
    model = (at / "heat.py").read_text() + REMOVING.format(error=error)
    (at / "heat.py").write_text(model)
    line = [planner if word == "hrevolve" else word for word in LINE]
    done = ckio(*line, "--json", at=at)
    assert "stays there" in done.stderr
    assert json.loads(done.stdout)["functional"]
    if planner == "hrevolve":
        assert json.loads(done.stdout)["gradient_digest"] == digest
    assert (at / "run" / "gradient.h5").exists()


MOVED = """
import os

end = Heat.adjoint_step

def adjoint_step(self, adjoint, tape, i):
    end(self, adjoint, tape, i)
    if i == 0:
        {trouble}

Heat.adjoint_step = adjoint_step
"""


@pytest.mark.campaign
@pytest.mark.parametrize(
    "trouble",
    [
        "os.rename('ck', 'elsewhere')",
        "import shutil; shutil.rmtree('ck')",
        "import glob; [os.rename(name, name + '.bak') for name in glob.glob('ck/*')]",
        "os.symlink('/nowhere', 'ck/link')",
        "import glob; [os.mkdir(name + '/folder') for name in glob.glob('ck/*')]",
    ],
)
def test_whatever_becomes_of_a_level_at_the_end_the_result_is_kept(
    tmp_path: Path, trouble: str, digest: str
) -> None:
    at = place(tmp_path)
    (at / "heat.py").write_text((at / "heat.py").read_text() + MOVED.format(trouble=trouble))
    found = answer(*LINE, at=at)
    assert found["gradient_digest"] == digest
    assert answer(*LINE, at=at)["gradient_digest"] == digest


# 2. Nothing that a file names is imported or called


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["subprocess:check_output", "harm.py:Model", "harm:Model"])
def test_a_model_is_imported_only_where_the_caller_names_it(at: Path, name: str) -> None:
    harm = "open('harmed', 'w').close()\nModel = None\n"
    (at / "harm.py").write_text(harm)
    edited(at / "run" / MANIFEST, lambda said: said["request"].update(model=name))
    line = complaint("run", "--resume", "--into", "run", at=at)
    assert "is damaged" in line  # its identity is another one
    assert not (at / "harmed").exists()

    def resigned(said: dict[str, Any]) -> None:
        said["request"]["model"] = name
        said["identity"] = identity_of(said)

    edited(at / "run" / MANIFEST, resigned)
    line = complaint("run", "--resume", "--into", "run", at=at)
    assert "nothing that a file names is imported" in line
    assert "ckio run" in line
    with contextlib.chdir(at), pytest.raises(BadInput, match="nothing that a file names"):
        Job("run").run()
    assert not (at / "harmed").exists()
    assert "harm" not in sys.modules


def identity_of(said: dict[str, Any]) -> str:
    """What a manifest's identity is to be, whatever it says of it."""
    for _ in range(2):
        try:
            text = json.dumps(said)
            return Manifest.loads(text, source="it").identity
        except BadInput:
            request, costs = dict(said["request"]), dict(said["chain"])
            from ckio.jobs.request import Request
            from ckio.platform.chain import Chain

            known = {name: said[name] for name in said if name not in ("format", "identity")}
            chain = Chain(**{name: costs[name] for name in costs if name != "handed"})
            found = Manifest(**{**known, "request": Request(**request), "chain": chain})
            return found.identity
    raise AssertionError


@pytest.mark.parametrize(
    ("part", "value"),
    [("planner", "subprocess:run"), ("planner", "os.system"), ("model", "os:system")],
)
def test_what_is_no_registered_name_is_bad_input(at: Path, part: str, value: str) -> None:
    def change(said: dict[str, Any]) -> None:
        said["request"][part] = value
        said["identity"] = identity_of(said)

    edited(at / "run" / MANIFEST, change)
    words = ("run", "--resume", "--into", "run") if part == "model" else LINE[:2] + LINE[-3:]
    complaint(*words, at=at)


# 3. Nothing is written through a link


@pytest.mark.campaign
@pytest.mark.parametrize("name", [".predicted.txt.part", ".schedule.txt.part", ".result.json.part",
                                  ".gradient.h5.part", ".measured.txt.part", "predicted.txt",
                                  "measured.txt", "gradient.h5", "schedule-1.txt"])  # fmt: skip
def test_a_planted_link_leads_nowhere(at: Path, tmp_path: Path, name: str, digest: str) -> None:
    victim = tmp_path / "thesis.tex"
    victim.write_text("do not touch")
    with contextlib.suppress(FileNotFoundError):
        (at / "run" / name).unlink()
    (at / "run" / name).symlink_to(victim)
    assert answer(*LINE, at=at)["gradient_digest"] == digest
    assert victim.read_text() == "do not touch"


@pytest.mark.parametrize("name", [MANIFEST, SCHEDULE])
def test_what_is_read_is_never_a_link(at: Path, tmp_path: Path, name: str) -> None:
    (at / "run" / name).rename(tmp_path / name)
    (at / "run" / name).symlink_to(tmp_path / name)
    assert "a symbolic link, which is not followed" in complaint(*LINE, at=at)


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


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (MANIFEST, '"steps": 60', '"steps": 59'),
        (MANIFEST, '"settings": {}', '"settings": {"viscosity": 0.21}'),
        (MANIFEST, '"every": 8.0', '"every": 9.0'),
        (SCHEDULE, "capacity = 40000", "capacity = 90000"),
        (SCHEDULE, "# steps 60", "# steps 59"),
    ],
)
def test_an_edit_is_refused_by_the_name_of_the_file(
    at: Path, name: str, old: str, new: str
) -> None:
    path = at / "run" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    line = complaint(*LINE, at=at)
    assert f"run/{name} is damaged: it is not as ckio wrote it" in line


def test_checkpoints_are_bound_to_what_is_computed(at: Path) -> None:
    """Also where somebody makes all checksums of the manifest fit another viscosity."""

    def change(said: dict[str, Any]) -> None:
        said["request"]["settings"] = {"viscosity": 0.21}
        said["identity"] = identity_of(said)

    edited(at / "run" / MANIFEST, change)
    line = complaint(*LINE, at=at)
    assert "for another computation: its model, settings, controls or sizes were others" in line


@pytest.mark.parametrize("words", [("--set", "viscosity=0.21"), ("--set", "cells=63")])
def test_another_setting_is_refused(at: Path, words: tuple[str, ...]) -> None:
    assert "holds another run" in complaint(*LINE, *words, at=at)


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


# 5. Only what was made is removed, and what a manifest says is checked


def test_a_run_that_fails_removes_no_tree(tmp_path: Path) -> None:
    directory = NewDirectory(tmp_path / "new" / "run")
    directory.write("it.txt", "x")
    (tmp_path / "new" / "run" / "thesis").mkdir()
    (tmp_path / "new" / "run" / "thesis" / "chapter.tex").write_text("x")
    directory.clear()
    left = [path.name for path in (tmp_path / "new" / "run").rglob("*")]
    assert left == ["thesis", "chapter.tex"]


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("run", "../../etc"),
        ("run", "/tmp"),
        ("run", "0a1b2c3"),
        ("run", 12345678),
        ("ranks", 0),
        ("ranks", 2**40),
        ("ranks", "2"),
        ("here", "relative"),
        ("here", "/tmp/../etc"),
        ("here", 3),
        ("every", "often"),
        ("every", -1),
        ("adjoints", 7),
        ("platform", "../x"),
        ("control", "not hex"),
        ("given", "yes"),
        ("ckio", None),
        ("chain", {"steps": 3}),
        ("chain", []),
        ("request", None),
        ("request", {"model": 3}),
        ("request", {"model": "m", "harm": "x"}),
    ],
)
def test_what_a_manifest_cannot_say_is_bad_input(at: Path, part: str, value: Any) -> None:
    edited(at / "run" / MANIFEST, lambda said: said.update({part: value}))
    before = {path: path.read_bytes() for path in at.rglob("*") if path.is_file()}
    line = complaint(*LINE, at=at)
    assert "is damaged" in line
    assert "--debug" not in line
    for command in ("inspect", "clean"):
        more = ("--yes",) if command == "clean" else ()
        assert "is damaged" in complaint(command, "run", *more, at=at)
    assert {path: path.read_bytes() for path in at.rglob("*") if path.is_file()} == before


def test_an_older_manifest_is_refused_with_the_reason(at: Path) -> None:
    (at / "run" / MANIFEST).write_text('{"format": 1, "run": "0a1b2c3d"}')
    assert "has format 1; this ckio reads format 2" in complaint(*LINE, at=at)


def test_a_manifest_comes_back_equal(at: Path) -> None:
    text = unsealed((at / "run" / MANIFEST).read_text(), "it")
    manifest = Manifest.loads(text, source="it")
    assert Manifest.loads(manifest.dumps(), source="it") == manifest
    other = replace(manifest, request=replace(manifest.request, settings={"viscosity": 0.3}))
    assert other.identity != manifest.identity
