"""What goes wrong on one rank of a job: all of them say the same of it, soon, and leave nothing."""

import json
import signal
import time
from pathlib import Path

import pytest
from cli.faulty import RESUME, failed, harm, prepared, stored
from cli.jobs import Job, answer, needs_mpi

from ckio.backends.directory import Directory
from ckio.backends.runid import RunId, computing
from ckio.jobs.directory import manifest_in

pytestmark = needs_mpi

PLACES = ("step 30", "late constructor", "gradient", "import", "constructor", "start", "dump")
PLACES = (*PLACES, "finished 20", "adjoint_start", "adjoint_step 20", "load")


@pytest.mark.campaign
@pytest.mark.parametrize("where", PLACES)
def test_what_fails_on_one_rank_ends_all_soon_with_its_name(tmp_path: Path, where: str) -> None:
    job = Job(3, *prepared(tmp_path), at=tmp_path, environ=harm(1, where))
    _, err = job.ended(status=None)
    line = err.splitlines()[-1]
    assert "rank 1: " in line
    assert "no wind" in line
    assert "elsewhere" not in err  # which a rank says that waits for the failed one in vain
    assert where != "step 30" or "Advance[30, 31): rank 1: ValueError: no wind (step 30)" in line


@pytest.mark.parametrize(
    ("who", "status", "text"),
    [
        ((0, 1, 2), 130, "ckio: interrupted\n"),
        pytest.param((0,), 130, "ckio: interrupted\n", marks=pytest.mark.slow),
        pytest.param((2,), 1, "ckio: rank 2: interrupted", marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_before_the_run_has_begun_interrupts_all(
    tmp_path: Path, who: tuple[int, ...], status: int, text: str
) -> None:
    """Nothing is left, and nobody is told to resume it."""
    waiting = harm("all", "late constructor", "wait")
    job = Job(3, *prepared(tmp_path), at=tmp_path, environ=waiting)
    for rank in range(3):
        job.wait_for(tmp_path, str(rank))
    for rank in who:
        job.kill(rank, signal.SIGINT)
    (tmp_path / "go").touch()
    _, err = job.ended(status=status)
    assert err.startswith(text)
    assert stored(tmp_path) == []
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_platform_is_the_one_that_the_first_rank_reads(tmp_path: Path) -> None:
    """Elsewhere the file is another one, or not there."""
    words = list(prepared(tmp_path))
    (tmp_path / "rank.sh").write_text(
        "mkdir -p at-$PMI_RANK && cd at-$PMI_RANK && export PYTHONPATH=..\n"
        'test $PMI_RANK = 0 && cp ../node.toml here.toml; exec "$@"\n'
    )
    words[words.index("--platform") + 1] = "here.toml"
    words[words.index("--into") + 1] = tmp_path / "run"
    Job(2, *words, at=tmp_path, wrapped=("sh", tmp_path / "rank.sh")).ended()


# Stopped and resumed


def stopped(at: Path, words: tuple[object, ...]) -> str:
    """What a job says that got SIGTERM on one rank in the middle, and can go on."""
    job = Job(3, *words, "--json", at=at, environ=harm("nobody", "", slow=0.02))
    for rank in range(3):
        job.wait_for(at, f"scratch/*/rank-{rank}/*.ckio")
    time.sleep(0.3)  # some steps, of 20 ms each, so that all ranks have something to store
    job.kill(1, signal.SIGTERM)
    out, err = job.ended(status=75)
    assert json.loads(out)["why"] == "SIGTERM"
    assert "mpiexec -n 3 ckio run faulty:Faulty --resume --into run" in err
    return err


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """That of a job which nobody stops."""
    at = tmp_path_factory.mktemp("whole")
    return answer(3, *prepared(at), at=at)["gradient_digest"]


@pytest.mark.slow
def test_one_rank_whose_level_is_in_use_leaves_those_of_the_others_as_they_were(
    tmp_path: Path, digest: str
) -> None:
    stopped(tmp_path, prepared(tmp_path))
    manifest = manifest_in(tmp_path / "run")
    run, own = manifest.run, RunId(computing(f"{manifest.run}-1", manifest.identity))
    left = stored(tmp_path)
    taken = Directory(tmp_path / "scratch" / run / "rank-1", run=own)
    try:
        assert "rank 1: " in failed(3, *RESUME, at=tmp_path)
    finally:
        taken.close()
    assert stored(tmp_path) == left
    assert answer(3, *RESUME, at=tmp_path)["gradient_digest"] == digest
    assert stored(tmp_path) == []
    (tmp_path / "scratch" / run / "rank-1").mkdir(parents=True)  # as a kill at the end leaves it
    answer(3, *RESUME, at=tmp_path)
    assert stored(tmp_path) == []
