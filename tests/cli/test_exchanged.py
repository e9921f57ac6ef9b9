"""What lies in a run's place and was stored by another run: no gradient is made of that.

Two runs of the demo's model, of the same shape and on the same levels, are killed half-way back;
then their files are exchanged, as by somebody who moves, copies or restores the wrong ones.
"""

import json
from pathlib import Path

import pytest
from cli import resumable
from cli.commands import answer, ckio

MODEL = '''\
import os
import signal
from ckio.models.vorticity import Vorticity


class Ocean(Vorticity):
    """Kills its process, or asks it to stop, where it is told to."""

    def adjoint_step(self, adjoint, tape, i):
        step, _, number = os.environ.get("KILL", "").partition(":")
        if step == str(i):
            os.kill(os.getpid(), int(number))
        super().adjoint_step(adjoint, tape, i)
'''

STEPS = 24
KILL, STOP = "11:9", "11:15"

FAR = {
    **resumable.FAR,
    "zstd-hdf5": 'backend = "hdf5"\noptions = {path = "ck/a.h5", codec = "zstd"}',
}
COSTS = """
advance = 1.0
record = 1.0
reverse = 1.0
restart = 9256
tape = 4624
adjoint = 13888
"""

NAMES = ("mine", "theirs")

Runs = dict[str, Path]
"""For `mine` and `theirs`: the files of the run on its level, or the directory of them."""


def line(run: str, *more: object) -> tuple[object, ...]:
    model = ("ocean:Ocean", "--set", "grid=16", "--set", f"seed={len(run)}")
    machine = ("--steps", STEPS, "--platform", "node.toml", "--every", "8s")
    planner = ("--planner", "hrevolve")
    return ("run", *model, *machine, *planner, "--into", run, *more)


def place(at: Path, far: str) -> Path:
    at.mkdir()
    (at / "ocean.py").write_text(MODEL)
    models = (f'[models."ocean:Ocean grid=16 seed={len(run)}"]{COSTS}' for run in NAMES)
    (at / "node.toml").write_text(
        '[[level]]\nname = "ram"\ncapacity = 9300\n'
        '[[level]]\nname = "far"\ncapacity = 90_000\nwrite = {latency = 0.01}\n'
        f"read = {{latency = 0.01}}\n{FAR[far]}\n{''.join(models)}"
    )
    return at


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Those of the runs where nobody disturbs them."""
    at = place(tmp_path_factory.mktemp("whole") / "at", "directory")
    found = {run: answer(*line(run), at=at)["gradient_digest"] for run in NAMES}
    assert len(set(found.values())) == 2
    return found


@pytest.fixture
def at(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return place(tmp_path / "at", request.param)


def half(at: Path, patch: pytest.MonkeyPatch, kill: str = KILL) -> Runs:
    """Begin both runs and end their processes half-way back."""
    with patch.context() as here:
        here.setenv("KILL", kill)
        for run in NAMES:
            ckio(*line(run, "--resume"), at=at, status=-9 if kill == KILL else 75)
    return {run: next((at / "ck").glob(f"*{_id(at, run)}*")) for run in NAMES}


def _id(at: Path, run: str) -> str:
    return str(json.loads((at / run / "manifest.json").read_text())["run"])


def exchange(runs: Runs) -> None:
    aside = runs["mine"].with_name("aside")
    runs["mine"].rename(aside)
    runs["theirs"].rename(runs["mine"])
    aside.rename(runs["theirs"])


def files(at: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (at / "ck").rglob("*") if path.is_file()}


def refused(at: Path, run: str) -> str:
    """What resuming says that is refused, and changes no file of a level."""
    before = files(at)
    done = ckio("run", "ocean:Ocean", "--resume", "--into", run, at=at, status=2)
    assert files(at) == before
    (other,) = set(NAMES) - {run}
    assert done.stderr.startswith("ckio: level 'far': ")
    assert done.stderr.count("\n") == 1
    assert f"holds checkpoints of run {_id(at, other)}, not of run {_id(at, run)}" in done.stderr
    return done.stderr


def digest(at: Path, run: str) -> str:
    return str(answer("run", "ocean:Ocean", "--resume", "--into", run, at=at)["gradient_digest"])


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("at", "kill"), [*zip(FAR, (KILL, STOP) * 2, strict=True)], indirect=["at"]
)
def test_the_files_of_two_runs_are_exchanged(
    at: Path, monkeypatch: pytest.MonkeyPatch, digests: dict[str, str], kill: str
) -> None:
    runs = half(at, monkeypatch, kill)
    exchange(runs)
    for run in NAMES:
        refused(at, run)
    exchange(runs)
    for run in NAMES:
        assert digest(at, run) == digests[run]
    assert files(at) == {}


@pytest.mark.campaign
@pytest.mark.parametrize("at", ["directory", "hdf5"], indirect=True)
def test_a_run_that_has_ended_leaves_what_another_put_into_its_place(
    at: Path, monkeypatch: pytest.MonkeyPatch, digests: dict[str, str]
) -> None:
    runs = half(at, monkeypatch)
    assert digest(at, "mine") == digests["mine"]
    runs["theirs"].rename(runs["mine"])
    before = files(at)
    done = ckio("run", "ocean:Ocean", "--resume", "--into", "mine", "--json", at=at)
    assert json.loads(done.stdout)["gradient_digest"] == digests["mine"]
    assert f"not of run {_id(at, 'mine')}: " in done.stderr
    assert files(at) == before
    runs["mine"].rename(runs["theirs"])
    assert digest(at, "theirs") == digests["theirs"]
