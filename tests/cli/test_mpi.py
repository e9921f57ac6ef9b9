"""`ckio run` and `ckio calibrate` on many ranks: one schedule, one answer, and one end."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli import commands
from cli.faulty import RESUME, WAVE, edit_platform, failed, harm, prepared, stored
from cli.jobs import Job, answer, needs_mpi, write_platform

from ckio.errors import BadInput
from ckio.jobs.run import in_the_background
from ckio.platform import Level, Platform

pytestmark = needs_mpi

OVERLAP = ("--overlap", "write_behind=2,read_ahead=1")


def words(at: Path) -> tuple[object, ...]:
    return ("run", *WAVE, "--platform", write_platform(at), "--into", "run")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process answers."""
    at = tmp_path_factory.mktemp("alone")
    return commands.answer(*words(at), at=at)


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("ranks", "more"),
    [(2, ()), (1, ()), (3, ("--check-gradient",)), (4, OVERLAP), (5, ())],
    ids=["two", "one", "three, checked", "four, overlapped", "five, compressed"],
)
def test_all_numbers_of_ranks_give_one_answer(
    tmp_path: Path, alone: dict[str, Any], ranks: int, more: tuple[str, ...]
) -> None:
    line = words(tmp_path)
    if ranks == 5:  # then checkpoints are of other sizes on each rank
        edit_platform(
            tmp_path,
            (r'(backend = "directory"\noptions = \{ )', r'\1codec = "zstd", '),
            ("capacity = 400000\n", "capacity = 20000\nratio = 0.5\n"),
        )
    found = answer(ranks, *line, *more, at=tmp_path)
    for name in ("norm", "min", "max"):
        value = alone["gradient"]["m"][name]
        assert found["gradient"]["m"][name] == pytest.approx(value, rel=1e-10) != 0
    assert found["functional"] == pytest.approx(alone["functional"], rel=1e-10) != 0
    assert found["gradient_digest"] == alone["gradient_digest"]
    assert found["overlap"] == (OVERLAP[1] if more == OVERLAP else None)
    assert found["verified"] is (True if "--check-gradient" in more else None)
    assert stored(tmp_path) == []
    assert not list(tmp_path.glob("scratch/*"))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["kill", "leave"])
def test_a_job_that_lost_a_rank_ends_and_is_resumed(
    tmp_path: Path, alone: dict[str, Any], what: str
) -> None:
    """The others do not wait for it; what all of them had stored is what there is to go on from."""
    job = Job(4, *prepared(tmp_path), at=tmp_path, environ=harm(2, "step 30", what))
    job.ended(status=None)
    left = stored(tmp_path)
    assert left
    for place in ("run", "scratch"):
        seen = commands.ckio("inspect", place, "--json", "--verify", at=tmp_path).stdout
        assert all(f"rank-{rank}/" in seen for rank in range(4))
    said = failed(2, *RESUME, at=tmp_path, status=2)
    assert "a run of 4 ranks, and this job has 2 ranks" in said
    assert "resume the run on 4 ranks" in said
    assert "a run of 4 ranks, and this job has 1 rank" in commands.complaint(*RESUME, at=tmp_path)
    assert stored(tmp_path) == left
    if what == "kill":
        found = answer(4, *RESUME, at=tmp_path)
        assert found["gradient_digest"] == alone["gradient_digest"]
    else:
        commands.ckio("inspect", "run", "--remove", "--yes", at=tmp_path)
    assert not any("." in name for name in stored(tmp_path))


@pytest.mark.slow
def test_a_level_that_fails_on_one_rank_is_given_up_by_all(
    tmp_path: Path, alone: dict[str, Any]
) -> None:
    line, environ = prepared(tmp_path, "--json"), harm(2, "step 30", "full")
    out, err = Job(4, *line, at=tmp_path, environ=environ).ended()
    assert json.loads(out)["gradient_digest"] == alone["gradient_digest"]
    for word in ("rank 2: ", "File too large", "planned anew"):
        assert word in err
    assert len(err.splitlines()) <= 4  # the first rank alone says it


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "where"), [(2, "step 30"), (0, "dump")])
def test_a_transfer_that_fails_on_one_rank_ends_all_and_the_run_is_resumed(
    tmp_path: Path, alone: dict[str, Any], rank: int, where: str
) -> None:
    """Its directory stays where only others have stored something, and it is told where it lies."""
    environ = harm(rank, where, "full", slow=0.02)  # so that others have stored something
    line = prepared(tmp_path, *OVERLAP)
    said = failed(4, *line, at=tmp_path, **environ)
    assert "File too large" in said
    assert f"rank {rank}: " in said or rank == 0
    left = stored(tmp_path)
    if rank == 0:
        assert not any("rank-0/" in name for name in left)
        kept = any("." in name for name in left)
        assert kept == (tmp_path / "run").exists() == ("left in" in said), said
    found = answer(4, *line, "--resume", at=tmp_path)
    assert found["gradient_digest"] == alone["gradient_digest"]
    assert stored(tmp_path) == []


@pytest.mark.slow
def test_no_room_on_one_rank_is_known_to_all_before_the_start(tmp_path: Path) -> None:
    """One rank has its scratch on a disk of its own, which is full."""
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("nobody may have mounts of their own here")
    (tmp_path / "rank.sh").write_text(
        "mkdir -p at-$PMI_RANK/scratch && cd at-$PMI_RANK\n"
        'test $PMI_RANK = 1 || exec "$@"\n'
        "exec unshare --mount sh -c "
        '\'mount -t tmpfs -o size=16k none scratch && exec "$@"\' ckio "$@"\n'
    )
    line = words(tmp_path)
    edit_platform(tmp_path, (f"{tmp_path}/scratch", "scratch"))
    job = Job(2, *line, at=tmp_path, wrapped=("sh", tmp_path / "rank.sh"))
    _, err = job.ended(status=2)
    assert "level 'nvme' has no space for this plan: rank 1: " in err.splitlines()[-1]


EARLY = """
import os
from ckio.models.vorticity import Vorticity


class Early(Vorticity):
    "No rank waits for another in its steps."

    def finished(self, state, i):
        return i == 20 + int(os.environ["PMI_RANK"])
"""


@pytest.mark.slow
def test_ranks_that_finish_at_different_steps_are_told(tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text(EARLY)
    platform = write_platform(tmp_path, "early:Early")
    line = ("run", "early:Early", "--set", "grid=16", "--platform", platform, "--into", "run")
    assert "one rank is at step 20 and another at 21" in failed(3, *line, at=tmp_path)


@pytest.mark.slow
def test_a_run_of_unknown_length(tmp_path: Path) -> None:
    words = list(prepared(tmp_path))
    unknown = [*words]
    at = unknown.index("--planner")
    del unknown[at : at + 2], unknown[unknown.index("--steps") : unknown.index("--steps") + 2]
    found = answer(2, *unknown, at=tmp_path, environ={"END": "40"})
    assert (found["planner"], found["steps"]) == ("online", 40)
    words[words.index("--steps") + 1], words[-1] = 40, "known"
    known = answer(2, *words, at=tmp_path)
    assert found["gradient_digest"] == known["gradient_digest"]


@pytest.mark.slow
def test_calibrate_measures_all_ranks_at_once(tmp_path: Path) -> None:
    line = (
        *("calibrate", "--level", "ram=ram,capacity=1MiB", "--repeats", 1),
        *("--level", "nvme=directory:scratch,capacity=16KiB"),
        *("--model", "wave", "--set", "grid=32", "-o", "node.toml"),
    )
    found = answer(2, *line, at=tmp_path)
    assert [level["name"] for level in found["levels"]] == ["ram", "nvme"]
    platform = Platform.loads((tmp_path / "node.toml").read_text())
    (name,) = platform.models
    assert name == "wave grid=32 on 2 ranks"
    assert platform.models[name].restart < 2 * 32 * 32 * 8  # a rank's part
    assert platform.levels[1].write(8192) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["node.toml"]
    again = answer(2, "run", *WAVE, "--platform", "node.toml", "--into", "run", at=tmp_path)
    assert again["predicted"] > 0


FADING = """
import time
import numpy as np
from ckio import ArrayModel
from ckio.model.comm import SOLO, share


class Fading(ArrayModel):
    "A lot of zeros, and steps that are slow beside writing them."

    def __init__(self, *, comm=SOLO):
        u = np.zeros(30_001)
        u[::1000] = 1.0
        mine = u[np.array(share(u.size, comm))]
        self.comm = comm
        super().__init__({"u": mine, "J": 0.0}, control={"u": mine}, tape=["u"])

    def finished(self, state, i):
        return i == 4

    def step(self, state, i):
        time.sleep(0.05)
        state["J"] += 0.5 * np.sum(state["u"] ** 2)
        state["u"] *= 0.5

    def adjoint_step(self, adjoint, tape, i):
        adjoint["u"] *= 0.5
        adjoint["u"] += tape["u"] * adjoint["J"]

    @property
    def functional(self):
        return sum(self.comm.gather(super().functional))
"""


@pytest.mark.slow
def test_calibrate_finds_one_codec_for_all_ranks(tmp_path: Path) -> None:
    """Of three ranks, the parts of two are smaller."""
    (tmp_path / "fading.py").write_text(FADING)
    levels = ("ram=ram,capacity=1MiB", "nvme=directory:scratch,codec=auto,capacity=400kB")
    line = (
        *("calibrate", "--repeats", 1, "--model", "fading:Fading"),
        *(word for level in levels for word in ("--level", level)),
    )
    (_, nvme) = answer(3, *line, "-o", "node.toml", at=tmp_path)["levels"]
    (_, level) = Platform.loads((tmp_path / "node.toml").read_text()).levels
    assert level.options["codec"] == nvme["codec"]
    assert nvme["codec"] in nvme["note"]
    assert level.ratio < 0.2
    run = ("run", "fading:Fading", "--steps", 4, "--platform", "node.toml")
    found = answer(3, *run, "--into", "run", at=tmp_path)
    assert found["gradient"]["u"]["max"] == sum(0.25**k for k in range(4))
    assert not list(tmp_path.glob("scratch/*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "line", "text"),
    [
        (2, ("run", "--nonsense"), "run: No such option '--nonsense'"),
        (2, ("plan", "--nonsense"), "plan: No such option '--nonsense'"),
        (2, ("run", *WAVE, "--platform", "nowhere.toml", "--into", "x"), "nowhere.toml: No such"),
        (2, ("RUN", "--by-variable"), "--by-variable needs a job of one rank, and this job has 2"),
        (2, ("RUN", "--set", "grid=4"), "grid"),
        (3, ("RUN", *OVERLAP), "--overlap needs parts of the model of equal size"),
    ],
)
def test_bad_input_is_said_once(
    tmp_path: Path, ranks: int, line: tuple[object, ...], text: str
) -> None:
    if line[0] == "RUN":
        line = (*words(tmp_path)[:-1], "x", *line[1:])
    out, err = Job(ranks, *line, at=tmp_path).ended(status=2)
    assert out == ""
    (said,) = err.splitlines()
    assert text in said
    assert not (tmp_path / "x").exists()
    assert stored(tmp_path) == []


@pytest.mark.slow
def test_what_one_rank_can_do_the_first_one_does(tmp_path: Path) -> None:
    platform = ("--platform", write_platform(tmp_path))
    line = ("plan", "--steps", 9, *platform, "--model", "wave", "--set", "grid=32")
    assert answer(3, *line, at=tmp_path)["steps"] == 9


@pytest.mark.slow
def test_ranks_without_mpi_are_not_many_serial_runs(tmp_path: Path) -> None:
    line = words(tmp_path)
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('not here')")
    said = failed(2, *line, at=tmp_path, status=2, PYTHONPATH=str(tmp_path))
    assert "2 ranks were started, but MPI cannot be used: not here" in said
    assert not (tmp_path / "run").exists()


def test_a_file_that_all_ranks_share_takes_no_overlap() -> None:
    """Its calls are made by all ranks together, which is not so behind the steps."""
    levels = Level(name="ram"), Level(name="far", backend="hdf5-shared")
    with pytest.raises(BadInput, match=r"'far' is one file .* all ranks"):
        in_the_background([], Platform(levels))
