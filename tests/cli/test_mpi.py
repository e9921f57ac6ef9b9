"""`ckio run` and `ckio calibrate` on many ranks: one schedule, one answer, and one end."""

import json
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
