"""`ckio run` and `ckio calibrate` on many ranks: one schedule, one answer, and one end."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from cli.commands import ckio
from cli.jobs import Job, answer, needs_mpi, write_platform

from ckio.errors import BadInput
from ckio.jobs.process import _in_background
from ckio.platform import Level, Platform

pytestmark = needs_mpi

MODELS = tuple(
    f"failing:{name}" for name in ("Raising", "NoDisk", "NoDiskHere", "Gone", "Leaving", "Slow")
)

WAVE = ("run", "wave", "--planner", "hrevolve", "--set", "grid=32", "--steps", 60)

FAILING = """
import os
import resource
import signal
import time
from ckio.models.vorticity import Vorticity
from ckio.models.wave import Wave

RANK = int(os.environ.get("PMI_RANK", 0))


class Raising(Wave):
    def step(self, state, i):
        if i == 30 and RANK == 2:
            raise ValueError("no wind")
        super().step(state, i)


def write_no_more():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))


class NoDisk(Wave):
    "From step 30 on, the files of one rank cannot be written any more."

    def step(self, state, i):
        if i == 30 and RANK == 2:
            write_no_more()
        super().step(state, i)


class NoDiskHere(Wave):
    "The first rank can write nothing."

    def step(self, state, i):
        if i == 0 and RANK == 0:
            write_no_more()
        time.sleep(0.02)  # so that what the others store is stored
        super().step(state, i)


class Gone(Wave):
    def step(self, state, i):
        if i == 30 and RANK == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        super().step(state, i)


class Leaving(Wave):
    def step(self, state, i):
        if i == 30 and RANK == 2:
            os._exit(3)
        super().step(state, i)


class Early(Vorticity):
    "No rank waits for another in its steps."

    def finished(self, state, i):
        return i == 20 + RANK


class Slow(Wave):
    def step(self, state, i):
        time.sleep(0.05)
        super().step(state, i)
"""


def left(at: Path) -> list[str]:
    """The files of levels."""
    return sorted(str(path.relative_to(at)) for path in at.glob("scratch/**/*.ckio")) + sorted(
        path.name for path in at.glob("archive-*.h5")
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What four ranks answer that are left alone."""
    at = tmp_path_factory.mktemp("whole")
    return answer(4, *WAVE, "--platform", write_platform(at), "--into", at / "run", at=at)


def test_all_numbers_of_ranks_give_one_answer(tmp_path, whole):
    for ranks in (1, 2):
        into = tmp_path / f"on-{ranks}"
        found = answer(
            ranks, *WAVE, "--platform", write_platform(tmp_path), "--into", into, at=tmp_path
        )
        for name in ("norm", "min", "max"):
            value = found["gradient"]["m"][name]
            assert value == pytest.approx(whole["gradient"]["m"][name], rel=1e-10) != 0
        assert found["functional"] == pytest.approx(whole["functional"], rel=1e-10) != 0
        assert found["gradient_digest"] == whole["gradient_digest"]
    assert left(tmp_path) == []
    assert not (tmp_path / "scratch").exists()


@pytest.mark.slow
def test_the_gradient_is_checked_over_all_ranks(tmp_path):
    words = (*WAVE, "--platform", write_platform(tmp_path), "--into", "run", "--check-gradient")
    assert answer(3, *words, at=tmp_path)["verified"] is True


@pytest.mark.slow
@pytest.mark.parametrize("model", ["Gone", "Leaving"])
def test_a_job_that_lost_a_rank_ends_and_is_resumed(tmp_path, whole, model):
    """The others do not wait for it; what all of them had stored is what there is to go on from."""
    (tmp_path / "failing.py").write_text(FAILING)
    into = ("--platform", write_platform(tmp_path, *MODELS), "--into", "run")
    Job(4, "run", f"failing:{model}", *WAVE[2:], *into, at=tmp_path).ended(status=None)
    assert left(tmp_path)
    # The same model, in which nobody is killed any more.
    (tmp_path / "failing.py").write_text(FAILING.replace("RANK == 2", "RANK == 9"))
    found = answer(4, "run", f"failing:{model}", "--resume", "--into", "run", at=tmp_path)
    assert found["gradient_digest"] == whole["gradient_digest"]
    assert left(tmp_path) == []


@pytest.mark.slow
def test_a_job_that_was_killed_on_the_way_back_is_resumed(tmp_path, whole):
    (tmp_path / "failing.py").write_text(FAILING)
    words = (
        "failing:Slow",
        *WAVE[2:],
        "--platform",
        write_platform(tmp_path, *MODELS),
        "--into",
        "run",
    )
    job = Job(4, "run", *words, "--log", "log", at=tmp_path)
    job.wait_for(tmp_path, "log", text="reverse")
    job.kill(1)
    job.ended(status=None)
    found = answer(4, "run", "failing:Slow", "--resume", "--into", "run", at=tmp_path)
    assert found["gradient_digest"] == whole["gradient_digest"]


@pytest.mark.slow
def test_other_numbers_of_ranks_do_not_resume_it(tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    into = ("--platform", write_platform(tmp_path, *MODELS), "--into", "run")
    Job(4, "run", "failing:Gone", *WAVE[2:], *into, at=tmp_path).ended(status=None)
    there = left(tmp_path)
    _, err = Job(2, "run", "failing:Gone", "--resume", "--into", "run", at=tmp_path).ended(status=2)
    assert err == (
        "ckio: run holds a run of 4 ranks, and this job has 2 ranks: what a rank stored is its own"
        " part of the state; resume it on 4 ranks\n"
    )
    alone = ckio("run", "failing:Gone", "--resume", "--into", "run", at=tmp_path, status=2)
    assert "a run of 4 ranks, and this job has 1 rank" in alone.stderr
    assert left(tmp_path) == there


@pytest.mark.slow
def test_what_one_rank_raises_in_a_step_ends_all_with_its_name(tmp_path):
    """The others wait for its halo: they are let go."""
    (tmp_path / "failing.py").write_text(FAILING)
    into = ("--platform", write_platform(tmp_path, *MODELS), "--into", "run")
    _, err = Job(4, "run", "failing:Raising", *WAVE[2:], *into, at=tmp_path).ended(status=1)
    *notes, line = err.splitlines()
    assert all("measured now" in note for note in notes)
    assert "Advance[30, 31): rank 2: ValueError: no wind (step 30)" in line


@pytest.mark.slow
def test_a_level_that_fails_on_one_rank_is_given_up_by_all(tmp_path, whole):
    (tmp_path / "failing.py").write_text(FAILING)
    into = ("--platform", write_platform(tmp_path), "--into", "run", "--json")
    out, err = Job(4, "run", "failing:NoDisk", *WAVE[2:], *into, at=tmp_path).ended()
    assert json.loads(out)["gradient_digest"] == whole["gradient_digest"]
    assert "rank 2: " in err
    assert "File too large" in err
    assert "planned anew" in err
    assert len(err.splitlines()) <= 4  # the first rank alone says it


OVERLAP = ("--overlap", "write_behind=2,read_ahead=1")


@pytest.mark.slow
def test_transfers_go_on_behind_the_steps_of_all_ranks(tmp_path, whole):
    words = (*WAVE, "--platform", write_platform(tmp_path), "--into", "run", *OVERLAP)
    found = answer(4, *words, at=tmp_path)
    assert found["gradient_digest"] == whole["gradient_digest"]
    assert found["overlap"] == "write_behind=2,read_ahead=1"
    assert left(tmp_path) == []


@pytest.mark.slow
def test_a_transfer_that_fails_on_one_rank_ends_all_and_the_run_is_resumed(tmp_path, whole):
    (tmp_path / "failing.py").write_text(FAILING)
    into = ("--platform", write_platform(tmp_path, *MODELS), "--into", "run", *OVERLAP)
    _, err = Job(4, "run", "failing:NoDisk", *WAVE[2:], *into, at=tmp_path).ended(status=1)
    line = err.splitlines()[-1]
    assert "rank 2: " in line
    assert "File too large" in line
    (tmp_path / "failing.py").write_text(FAILING.replace("RANK == 2", "RANK == 9"))
    found = answer(4, "run", "failing:NoDisk", "--resume", "--into", "run", at=tmp_path)
    assert found["gradient_digest"] == whole["gradient_digest"]
    assert left(tmp_path) == []


@pytest.mark.slow
def test_a_run_of_which_only_other_ranks_have_stored_something_can_be_resumed(tmp_path, whole):
    """Its directory stays, and who speaks tells where that lies."""
    (tmp_path / "failing.py").write_text(FAILING)
    into = ("--platform", write_platform(tmp_path, *MODELS), "--into", "run", *OVERLAP)
    _, err = Job(4, "run", "failing:NoDiskHere", *WAVE[2:], *into, at=tmp_path).ended(status=1)
    line = err.splitlines()[-1]
    assert "File too large" in line
    stored = left(tmp_path)
    assert not [name for name in stored if "rank-0" in name]
    assert bool(stored) == (tmp_path / "run").exists() == ("left in" in line), line
    (tmp_path / "failing.py").write_text(FAILING.replace("RANK == 0", "RANK == 9"))
    found = answer(4, "run", "failing:NoDiskHere", *WAVE[2:], *into, "--resume", at=tmp_path)
    assert found["gradient_digest"] == whole["gradient_digest"]
    assert left(tmp_path) == []


@pytest.mark.slow
def test_no_room_on_one_rank_is_known_to_all_before_the_start(tmp_path):
    """One rank has its scratch on a disk of its own, which is full."""
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("nobody may have mounts of their own here")
    (tmp_path / "rank.sh").write_text(
        "mkdir -p at-$PMI_RANK/scratch && cd at-$PMI_RANK\n"
        'test $PMI_RANK = 1 || exec "$@"\n'
        "exec unshare --mount sh -c "
        '\'mount -t tmpfs -o size=16k none scratch && exec "$@"\' ckio "$@"\n'
    )
    platform = write_platform(tmp_path).read_text().replace(f"{tmp_path}/scratch", "scratch")
    (tmp_path / "node.toml").write_text(platform)
    words = (*WAVE, "--platform", tmp_path / "node.toml", "--into", "run")
    job = Job(2, *words, at=tmp_path, wrapped=("sh", tmp_path / "rank.sh"))
    _, err = job.ended(status=2)
    line = err.splitlines()[-1]
    assert "level 'nvme' has no room for this plan: rank 1: " in line


@pytest.mark.slow
def test_ranks_that_finish_at_different_steps_are_told(tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    into = ("--platform", write_platform(tmp_path, *MODELS), "--into", "run")
    words = ("run", "failing:Early", "--set", "grid=16", *into)
    _, err = Job(3, *words, at=tmp_path).ended(status=1)
    assert "one rank is at step 20 where another is at 21" in err


@pytest.mark.slow
def test_one_rank_that_is_asked_to_stop_stops_all(tmp_path, whole):
    (tmp_path / "failing.py").write_text(FAILING)
    words = (
        "failing:Slow",
        *WAVE[2:],
        "--platform",
        write_platform(tmp_path, *MODELS),
        "--into",
        "run",
    )
    job = Job(4, "run", *words, "--json", at=tmp_path)
    job.wait_for(tmp_path, "scratch/*/rank-3/*.ckio")
    job.kill(3, signal.SIGTERM)
    out, err = job.ended(status=75)
    assert json.loads(out)["why"] == "SIGTERM"
    assert "go on with: mpiexec -n 4 ckio run failing:Slow --resume --into run" in err
    found = answer(4, "run", "failing:Slow", "--resume", "--into", "run", at=tmp_path)
    assert found["gradient_digest"] == whole["gradient_digest"]


@pytest.mark.slow
def test_a_run_of_unknown_length(tmp_path):
    into = ("--platform", write_platform(tmp_path, *MODELS), "--into", "run")
    found = answer(2, "run", "wave", "--set", "grid=32", "--set", "time=0.1", *into, at=tmp_path)
    assert found["planner"] == "online"
    known = (*WAVE[:-1], found["steps"], "--platform", tmp_path / "node.toml")
    again = answer(2, *known, "--into", "again", at=tmp_path)
    assert found["gradient_digest"] == again["gradient_digest"]


@pytest.mark.slow
def test_calibrate_measures_all_ranks_at_once(tmp_path):
    words = (
        *("calibrate", "--level", "ram=ram,capacity=1MiB", "--repeats", 1),
        *("--level", "nvme=directory:scratch,capacity=4MiB", "--size", "8KiB"),
        *("--model", "wave", "--set", "grid=32", "-o", "node.toml"),
    )
    found = answer(2, *words, at=tmp_path)
    assert [level["name"] for level in found["levels"]] == ["ram", "nvme"]
    platform = Platform.loads((tmp_path / "node.toml").read_text())
    (name,) = platform.models
    assert name == "wave grid=32 on 2 ranks"
    assert platform.models[name].restart < 2 * 32 * 32 * 8  # a rank's part
    assert platform.levels[1].write(8192) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["node.toml"]
    again = answer(2, *WAVE, "--platform", "node.toml", "--into", "run", at=tmp_path)
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
def test_calibrate_finds_one_codec_for_all_ranks(tmp_path):
    """Of three ranks, the parts of two are smaller."""
    (tmp_path / "fading.py").write_text(FADING)
    levels = ("ram=ram,capacity=1MiB", "nvme=directory:scratch,codec=auto,capacity=400kB")
    words = (
        *("calibrate", "--repeats", 1, "--model", "fading:Fading", "--size", "4KiB"),
        *(word for level in levels for word in ("--level", level)),
    )
    out, _ = Job(3, *words, "-o", "node.toml", "--json", at=tmp_path).ended()
    (_, nvme) = json.loads(out)["levels"]
    (_, level) = Platform.loads((tmp_path / "node.toml").read_text()).levels
    assert level.options["codec"] == nvme["codec"]
    assert nvme["codec"] in nvme["note"]
    assert level.ratio < 0.2
    run = ("run", "fading:Fading", "--steps", 4, "--platform", "node.toml")
    found = answer(3, *run, "--into", "run", at=tmp_path)
    assert found["gradient"]["u"]["max"] == sum(0.25**k for k in range(4))
    assert not (tmp_path / "scratch").exists()


@pytest.mark.slow
def test_bad_input_is_said_once(tmp_path):
    platform = write_platform(tmp_path)
    for words, text in (
        (("run", "--nonsense"), "run: no such option '--nonsense'"),
        (("plan", "--nonsense"), "plan: no such option '--nonsense'"),
        ((*WAVE, "--platform", "nowhere.toml", "--into", "x"), "nowhere.toml: No such file"),
        ((*WAVE, "--by-variable", "--platform", platform, "--into", "x"),
         "--by-variable is for one rank, and this job has 2"),
        (("run", "wave", "--set", "grid=4", "--steps", 3, "--platform", platform, "--into", "x"),
         "grid"),
    ):  # fmt: skip
        out, err = Job(2, *words, at=tmp_path).ended(status=2)
        assert out == ""
        (line,) = err.splitlines()
        assert text in line
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_what_one_rank_can_do_the_first_one_does(tmp_path):
    platform = ("--platform", write_platform(tmp_path))
    words = ("plan", "--steps", 9, *platform, "--model", "wave", "--set", "grid=32", "--json")
    out, _ = Job(3, *words, at=tmp_path).ended()
    (line,) = out.splitlines()
    assert json.loads(line)["steps"] == 9


@pytest.mark.slow
def test_ranks_without_mpi_are_not_many_serial_runs(tmp_path):
    platform = write_platform(tmp_path)
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise ImportError('not here')")
    job = Job(2, *WAVE, "--platform", platform, "--into", "run", at=tmp_path,
              environ={"PYTHONPATH": str(tmp_path)})  # fmt: skip
    _, err = job.ended(status=2)
    assert "2 ranks were started, and MPI cannot be used: not here" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_inspect_and_clean_see_the_parts_of_all_ranks(tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    into = ("--platform", write_platform(tmp_path, *MODELS), "--into", "run")
    Job(3, "run", "failing:Gone", *WAVE[2:], *into, at=tmp_path).ended(status=None)
    for place in ("run", "scratch"):
        seen = ckio("inspect", place, "--json", "--verify", at=tmp_path).stdout
        for rank in range(3):
            assert f"rank-{rank}/" in seen
    ckio("clean", "run", "--yes", at=tmp_path)
    assert left(tmp_path) == []
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.slow
def test_parts_of_other_sizes_take_no_overlap(tmp_path):
    """Of three ranks two have a row more; it is said before anything is stored."""
    words = (*WAVE, "--platform", write_platform(tmp_path), "--into", "run", *OVERLAP)
    _, err = Job(3, *words, at=tmp_path).ended(status=2)
    (line,) = err.splitlines()
    assert line.startswith("ckio: --overlap is for parts of one size")
    assert left(tmp_path) == []
    assert not (tmp_path / "run").exists()


def test_a_file_that_all_ranks_share_takes_no_overlap():
    """Its calls are made by all ranks together, which is not so behind the steps."""
    levels = Level(name="ram"), Level(name="far", backend="hdf5-shared")
    with pytest.raises(BadInput, match="'far' is one file to which all ranks write together"):
        _in_background([], Platform(levels))
