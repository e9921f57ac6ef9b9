"""What goes wrong on one rank of a job: all of them say the same of it, soon, and leave nothing."""

import json
import re
import signal
import time
from pathlib import Path

import pytest
from cli.jobs import Job, answer, needs_mpi, write_platform

from ckio.backends.directory import Directory
from ckio.backends.runid import RunId, computing

pytestmark = needs_mpi

STEPS = ("--planner", "hrevolve", "--set", "grid=32", "--steps", 40)
"""On three ranks, parts of 10 and of 11 rows."""

SOON = 19.0
"""Seconds; what nobody hears of is only ended by the `grace` of a rank that failed, 20 s later."""

FAULTY = """
import os
import time
from ckio.model.comm import SOLO
from ckio.models.wave import Wave

RANK = int(os.environ.get("PMI_RANK", 0))
BAD = {bad}


def fail(where):
    if RANK == BAD and where == {where!r}:
        raise ValueError("no wind")


fail("import")


class Faulty(Wave):
    def __init__(self, *, grid=32, comm=SOLO):
        fail("constructor")
        super().__init__(grid=grid, comm=comm)
        fail("late constructor")

    def start(self, state):
        fail("start")
        super().start(state)

    def finished(self, state, i):
        if i == 20:
            fail("finished")
        return super().finished(state, i)

    def step(self, state, i):
        {each_step}
        super().step(state, i)

    def adjoint_start(self, adjoint):
        fail("adjoint_start")
        super().adjoint_start(adjoint)

    def adjoint_step(self, adjoint, tape, i):
        if i == 20:
            fail("adjoint_step")
        super().adjoint_step(adjoint, tape, i)

    def dump(self, key):
        fail("dump")
        return super().dump(key)

    def load(self, key, layout):
        fail("load")
        return super().load(key, layout)

    @property
    def gradient(self):
        fail("gradient")
        return super().gradient
"""


def prepared(at: Path, where: str = "", *, bad: int = 1, each_step: str = "pass") -> list[object]:
    """The words of a run of a model that fails there on one rank."""
    (at / "faulty.py").write_text(FAULTY.format(where=where, bad=bad, each_step=each_step))
    platform = write_platform(at, "faulty:Faulty")
    return ["run", "faulty:Faulty", *STEPS, "--platform", platform, "--into", "run"]


def left(at: Path) -> list[str]:
    """All that lies on levels, directories too."""
    return sorted(str(p.relative_to(at)) for p in (*at.glob("scratch/**/*"), *at.glob("*.h5")))


@pytest.mark.parametrize(
    "where",
    [
        "late constructor",
        "gradient",
        *(
            pytest.param(where, marks=pytest.mark.slow)
            for where in (
                *("import", "constructor", "start", "finished", "adjoint_start", "adjoint_step"),
                *("dump", "load"),
            )
        ),
    ],
)
def test_what_fails_on_one_rank_ends_all_soon_with_its_name(tmp_path, where):
    begun = time.monotonic()
    _, err = Job(3, *prepared(tmp_path, where), at=tmp_path).ended(status=None)
    assert time.monotonic() - begun < SOON, err
    line = err.splitlines()[-1]
    assert "rank 1: " in line
    assert "no wind" in line
    assert "elsewhere" not in err


WAITING = """
        open(str(RANK), "w")
        while not os.path.exists("go"):
            time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("who", "number", "status", "text"),
    [
        ((0, 1, 2), signal.SIGINT, 130, "ckio: interrupted\n"),
        pytest.param((0,), signal.SIGINT, 130, "ckio: interrupted\n", marks=pytest.mark.slow),
        pytest.param((2,), signal.SIGINT, 1, "ckio: rank 2: interrupted", marks=pytest.mark.slow),
    ],
)
def test_a_signal_before_the_run_has_begun_interrupts_all(tmp_path, who, number, status, text):
    """Nothing is left, and nobody is told to resume it."""
    words = prepared(tmp_path)
    model = tmp_path / "faulty.py"
    model.write_text(model.read_text().replace('        fail("late constructor")\n', WAITING))
    job = Job(3, *words, at=tmp_path)
    for rank in range(3):
        job.wait_for(tmp_path, str(rank))
    for rank in who:
        job.kill(rank, number)
    (tmp_path / "go").touch()
    _, err = job.ended(status=status)
    assert err.startswith(text)
    assert left(tmp_path) == []
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_walltime_that_is_over_on_all_ranks_is_told_as_on_one(tmp_path):
    words = prepared(tmp_path)
    _, many = Job(2, *words, "--walltime", "0.1", at=tmp_path).ended(status=1)
    _, one = Job(1, *words, "--walltime", "0.1", at=tmp_path).ended(status=1)
    numbers = re.compile(r"[0-9.e-]+ s")
    assert numbers.sub("", many) == numbers.sub("", one)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_ranks_that_were_started_with_other_words_do_not_run(tmp_path):
    words = prepared(tmp_path)
    (tmp_path / "rank.sh").write_text(
        'test $PMI_RANK = 1 && exec "$@" --planner multistage; exec "$@"'
    )
    job = Job(2, *words, at=tmp_path, wrapped=("sh", tmp_path / "rank.sh"))
    _, err = job.ended(status=2)
    assert "the ranks were started with different words: planner is multistage on rank 1" in err
    assert left(tmp_path) == []


@pytest.mark.slow
def test_a_platform_is_the_one_that_the_first_rank_reads(tmp_path):
    """Elsewhere the file is another one, or not there."""
    words = prepared(tmp_path)
    (tmp_path / "rank.sh").write_text(
        "mkdir -p at-$PMI_RANK && cd at-$PMI_RANK && export PYTHONPATH=..\n"
        'test $PMI_RANK = 0 && cp ../node.toml here.toml; exec "$@"\n'
    )
    words[words.index("--platform") + 1] = "here.toml"
    words[words.index("--into") + 1] = tmp_path / "run"
    job = Job(2, *words, at=tmp_path, wrapped=("sh", tmp_path / "rank.sh"))
    job.ended()


def stopped(at: Path, ranks: int, words: list[object]) -> str:
    """What a job says that got SIGTERM on one rank in the middle, and can go on."""
    job = Job(ranks, *words, at=at)
    job.wait_for(at, "scratch/*/rank-1/*.ckio")
    job.kill(1, signal.SIGTERM)
    return job.ended(status=75)[1]


SLOWLY = "time.sleep(0.02)"


@pytest.mark.slow
def test_one_rank_whose_level_is_in_use_leaves_those_of_the_others_as_they_were(tmp_path):
    words = prepared(tmp_path, each_step=SLOWLY)
    stopped(tmp_path, 3, words)
    said = json.loads((tmp_path / "run" / "manifest.json").read_text())
    run, own = said["run"], RunId(computing(f"{said['run']}-1", said["identity"]))
    there = left(tmp_path)
    taken = Directory(tmp_path / "scratch" / run / "rank-1", run=own)
    try:
        _, err = Job(3, "run", "faulty:Faulty", "--resume", "--into", "run", at=tmp_path).ended(
            status=1
        )
        assert "rank 1: " in err.splitlines()[-1]
    finally:
        taken.close()
    assert left(tmp_path) == there
    found = answer(3, "run", "faulty:Faulty", "--resume", "--into", "run", at=tmp_path)
    whole = answer(3, *words[:-1], "whole", at=tmp_path)
    assert found["gradient_digest"] == whole["gradient_digest"]
    assert left(tmp_path) == []


@pytest.mark.slow
def test_a_folder_that_a_rank_had_emptied_when_it_was_killed_goes(tmp_path):
    words = prepared(tmp_path)
    answer(3, *words, at=tmp_path)
    run = json.loads((tmp_path / "run" / "manifest.json").read_text())["run"]
    (tmp_path / "scratch" / run / "rank-1").mkdir(parents=True)
    answer(3, "run", "faulty:Faulty", "--resume", "--into", "run", at=tmp_path)
    assert left(tmp_path) == []


@pytest.mark.slow
def test_what_is_corrupt_on_one_rank_is_used_by_none(tmp_path):
    words = prepared(tmp_path, each_step=SLOWLY)
    stopped(tmp_path, 3, words)
    flipped = 0
    for path in (tmp_path / "scratch").glob("*/rank-2/*.ckio"):
        whole = bytearray(path.read_bytes())
        for at in range(4096 + 600, len(whole), 4096):
            whole[at] ^= 1
            flipped += 1
        path.write_bytes(whole)
    assert flipped
    out, err = Job(3, "run", "faulty:Faulty", "--resume", "--into", "run", at=tmp_path).ended()
    assert re.search(r"rank 2: .*discarded", err), err
    digest = re.search("digest ([0-9a-f]+)", out)
    assert digest
    again = answer(3, *words[:-1], "whole", at=tmp_path)
    assert digest[1] == again["gradient_digest"]
    assert left(tmp_path) == []


@pytest.mark.slow
def test_a_stop_where_all_levels_are_full_and_parts_differ_in_size(tmp_path):
    """Ranks would not agree by themselves on what has to go for where they stand."""
    words = prepared(tmp_path, each_step=SLOWLY)
    platform = tmp_path / "node.toml"
    text = platform.read_text()
    restart = max(int(found) for found in re.findall(r"on 3 ranks\"\][^[]*restart = (\d+)", text))
    text = re.sub("capacity = 400000\n", f"capacity = {3 * restart}\n", text)
    text = re.sub("capacity = 4000000", f"capacity = {3 * restart}", text)
    platform.write_text(text)
    said = stopped(tmp_path, 3, words)
    assert "stopped by SIGTERM" in said
    found = answer(3, "run", "faulty:Faulty", "--resume", "--into", "run", at=tmp_path)
    whole = answer(3, *words[:-1], "whole", at=tmp_path)
    assert found["gradient_digest"] == whole["gradient_digest"]
    assert left(tmp_path) == []


@pytest.mark.slow
def test_checkpoints_that_are_compressed_are_of_other_sizes_on_each_rank(tmp_path):
    words = prepared(tmp_path)
    platform = tmp_path / "node.toml"
    text = platform.read_text()
    text = re.sub(r'(backend = "directory"\noptions = \{ )', r'\1codec = "zstd", ', text)
    text = text.replace("capacity = 400000\n", "capacity = 20000\nratio = 0.5\n")
    platform.write_text(text)
    found = answer(5, *words, at=tmp_path)
    alone = answer(1, *words[:-1], "alone", at=tmp_path)
    assert found["gradient_digest"] == alone["gradient_digest"]
    assert left(tmp_path) == []
