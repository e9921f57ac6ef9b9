"""What ranks ask of each other, with a real MPI; no job waits for what never comes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.jobs import MPIEXEC, needs_mpi

pytest.importorskip("mpi4py")
pytestmark = needs_mpi

PATIENCE = 300.0
"""Seconds after which a job has failed; what is waited for here takes five at most, alone."""

BEFORE = """
import os, signal, sys, time
import numpy as np
from mpi4py import MPI
from ckio.adapters.mpi import of, world
from ckio.errors import BadInput, CkioError, RankFailed
from ckio.parallel.group import RankGroup

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size

def say(*words):
    "In one piece: what ranks write comes out mixed."
    sys.stdout.write(" ".join(map(str, (RANK, *words))) + "\\n")
    sys.stdout.flush()
"""


def job(at: Path, ranks: int, body: str) -> tuple[int, list[str], str]:
    """The exit status of a job in which all ranks run this, what they said, sorted, and stderr."""
    (at / "job.py").write_text(BEFORE + body)
    process = subprocess.Popen(
        [MPIEXEC, "-n", str(ranks), sys.executable, at / "job.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, sorted(out.splitlines()), err


CONTRACT = """
comm = world()
assert (comm.rank, comm.size) == (RANK, SIZE)
apart = comm.duplicate()
right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE

# Around the ring and back, nothing, a little, and what MPI does not send before it is asked for.
for size in (0, 1, 1000, 1 << 21):
    there, back = np.full(size, RANK, "f8"), np.full((size, 1), -RANK, "f4")
    from_left, from_right = np.empty(size, "f8"), np.empty((size, 1), "f4")
    comm.exchange({right: there}, {left: from_left})
    apart.exchange({left: back}, {right: from_right})
    assert (from_left == left).all() and (from_right == -right).all()
    there[...] = 77  # which may be changed now

# All with all, each of another size; and one way only.
others = [rank for rank in range(SIZE) if rank != RANK]
into = {rank: np.empty(10 * rank + RANK) for rank in others}
comm.exchange({rank: np.full(10 * RANK + rank, RANK, float) for rank in others}, into)
assert all((array == rank).all() for rank, array in into.items())
got = np.zeros(5, int)
comm.exchange({1: np.arange(5)} if RANK == 0 else {}, {0: got} if RANK == 1 else {})
assert RANK != 1 or got.tolist() == [0, 1, 2, 3, 4]
own = np.empty(3, ">i2")
comm.exchange({RANK: np.arange(3).astype(">i2")}, {RANK: own})
assert own.tolist() == [0, 1, 2]

for dtype in ("?", "i1", "u1", "i2", "i4", "i8", "u8", "f4", "f8", "f2", ">f8", "g"):
    mine = np.array([[RANK % 2, 3], [SIZE - RANK, 1]], dtype)
    found = comm.largest(mine)
    assert found.dtype == mine.dtype and found.shape == (2, 2), dtype
    right_ones = [[1, 1], [1, 1]] if dtype == "?" else [[1, 3], [SIZE, 1]]
    assert found.astype(float).tolist() == right_ones, dtype
assert comm.largest(np.zeros((0, 3))).shape == (0, 3)
assert comm.largest(np.array(float(RANK))) == SIZE - 1
assert comm.largest(np.array([-np.inf])).tolist() == [-np.inf]
assert np.isnan(comm.largest(np.array(np.nan if RANK == 1 else float(RANK))))  # to every rank
rows = np.arange(6.0).reshape(2, 3)
assert (comm.largest(np.asarray(rows, order="CF"[RANK % 2])) == rows).all()
for odd in (np.ones(2 + RANK), np.ones(2, ["f8", "i8"][RANK % 2]), np.ones(2, complex)):
    try:
        raise AssertionError(comm.largest(odd))
    except BadInput as error:
        assert "largest: " in str(error)

assert comm.gather(None) == [None] * SIZE
found = apart.gather({"rank": RANK, "data": bytes([RANK]) * RANK * 1_000_000})
assert [len(it["data"]) for it in found] == [rank * 1_000_000 for rank in range(SIZE)]
assert [it["rank"] for it in found] == list(range(SIZE))

# Two conversations: what is said in one is not heard in the other, whatever comes first.
a, b = np.full(4, 1.0), np.full(4, 2.0)
of_a, of_b = np.empty(4), np.empty(4)
if RANK % 2:
    comm.exchange({}, {left: of_a} if RANK else {})
    apart.exchange({}, {left: of_b} if RANK else {})
else:
    apart.exchange({right: b} if right else {}, {})
    comm.exchange({right: a} if right else {}, {})
assert RANK % 2 == 0 or (of_a.tolist(), of_b.tolist()) == ([1.0] * 4, [2.0] * 4)
say("well")
"""


def test_ranks_hear_what_others_say(tmp_path):
    assert job(tmp_path, 4, CONTRACT) == (0, [f"{rank} well" for rank in range(4)], "")


LAYOUTS = """
comm = of(MPI.COMM_WORLD).duplicate()
other = 1 - RANK

def block(rank, dtype="f8"):
    return (np.arange(12).reshape(3, 4) + 100 * rank).astype(dtype)

wide = np.zeros((6, 8, 2))
wide[::2, ::2, 0] = block(RANK)
for send in (
    np.asfortranarray(block(RANK)), block(RANK, ">f8"), wide[::2, ::2, 0], block(RANK)[::-1][::-1]
):
    for make in (
        lambda: np.full((3, 4), -1.0),
        lambda: np.full((4, 3), -1.0).T,
        lambda: np.full((3, 4), -1.0, ">f8"),
        lambda: np.full((6, 4), -1.0)[::2],
    ):
        into = make()
        comm.exchange({other: send, RANK: send}, {other: into, RANK: (own := make())})
        assert (into == block(other)).all() and (own == block(RANK)).all()
read_only = block(RANK)
read_only.flags.writeable = False
for dtype in ("?", "c16", "f2", "g", "M8[s]", [("a", "f4"), ("b", "i8")]):
    for shape in ((), (0, 3), (2,)):
        mine, into = np.zeros(shape, dtype), np.ones(shape, dtype)
        comm.exchange({other: mine}, {other: into})
        assert (into == mine).all()

# The halo of a column, in the memory that is sent; and a shift in place.
u = np.arange(10.0) + 100 * RANK
comm.exchange({other: u[:-1]}, {other: u[1:]})
assert u.tolist() == [100 * RANK, *(np.arange(9) + 100 * other)]
comm.exchange({other: u[0]}, {other: u[:1].reshape(())})
assert u[0] == 100 * other

# Other arrays are refused on both ranks, nothing is changed, and the next exchange is right.
for send, expected in (
    (block(RANK, "f4"), block(RANK)),
    (block(RANK)[:2], block(RANK)),
    (np.ones((1 << 18, 4)), block(RANK)),
    (block(RANK).reshape(4, 3), block(RANK)),
    (block(RANK, "i8"), block(RANK)),
    (block(RANK), block(RANK)[:0]),
):
    for odd in (0, 1, 2):  # which of the ranks gives the odd one
        into = expected.copy()
        try:
            comm.exchange({other: block(RANK) if RANK == odd else send}, {other: into})
        except BadInput as error:
            assert f"rank {other} expects or sends something else" in str(error)
        else:
            raise AssertionError(odd)
        assert (into == expected).all()
        into = np.empty((3, 4))
        comm.exchange({other: block(RANK)}, {other: into})
        assert (into == block(other)).all()
comm.exchange({1: read_only} if RANK == 0 else {}, {0: into} if RANK == 1 else {})  # one way
assert RANK == 0 or (into == block(0)).all()
try:
    comm.exchange({1: np.ones(3)} if RANK == 0 else {}, {0: np.ones(2)} if RANK == 1 else {})
except BadInput:
    assert RANK == 1
else:
    assert RANK == 0
say("well")
"""


def test_what_arrives_is_what_was_sent_whatever_its_layout_or_it_is_refused(tmp_path):
    assert job(tmp_path, 2, LAYOUTS) == (0, ["0 well", "1 well"], "")


MANY = """
from ckio.jobs.directory import all_ranks
for _ in range(600):
    with all_ranks() as ranks:
        apart = ranks.comm.duplicate()
        assert apart.gather(RANK) == [0, 1]
say("well")
"""


@pytest.mark.slow
def test_an_inversion_has_as_many_evaluations_as_it_needs(tmp_path):
    """Each had communicators of its own, and MPI has two thousand."""
    assert job(tmp_path, 2, MANY) == (0, ["0 well", "1 well"], "")


CALLED_OFF = """
def waiting(comm, how):
    match how:
        case "exchange":
            comm.exchange({}, {1: np.empty(3)})
        case "rendezvous":  # of which nothing leaves before it is asked for
            comm.exchange({1: np.ones(1 << 21)}, {})
        case "gather":
            comm.gather(3)
        case "largest":
            comm.largest(np.ones(3))

for how in ("exchange", "rendezvous", "gather", "largest"):
    comm = of(MPI.COMM_WORLD)
    apart, other = comm.duplicate(), comm.duplicate()
    if RANK == 1:
        time.sleep(0.1)
        comm.call_off("no wind")
        comm.call_off("a second reason")
    else:
        for talk in (apart, other, apart):
            try:
                waiting(talk, how)
            except RankFailed as error:
                assert (str(error), error.rank) == ("rank 1: no wind", 1)
            else:
                raise AssertionError(how)
    assert comm.largest(np.array([RANK])).tolist() == [SIZE - 1]  # here all are still expected
say("well")
"""


@pytest.mark.slow
def test_nobody_waits_for_a_rank_that_has_called_it_off(tmp_path):
    status, said, err = job(tmp_path, 3, CALLED_OFF)
    assert (said, err) == ([f"{rank} well" for rank in range(3)], "")
    assert status == 0


GONE = """
ranks = RankGroup(world())
apart = ranks.comm.duplicate()
try:
    with ranks.together():
        ranks.each(lambda: 1)
        if RANK == 1:
            {end}
        if RANK == 0:
            apart.exchange({{}}, {{1: np.empty(3)}})
        ranks.gather(1)
        say("went on")
except CkioError as error:
    say(error)
    sys.exit(1)
"""


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        pytest.param("os._exit(3)", marks=pytest.mark.slow),
        pytest.param("os._exit(0)", marks=pytest.mark.slow),
        pytest.param("os.abort()", marks=pytest.mark.slow),
    ],
)
def test_a_job_ends_that_has_lost_a_rank(tmp_path, end):
    status, said, _ = job(tmp_path, 3, GONE.format(end=end))
    assert status != 0 or end == "os._exit(0)"  # of which mpiexec may think that all is well
    assert not any("went on" in line for line in said)


FAILS = """
ranks = RankGroup(world(grace=1e9))  # who waits as long as others are waited for is never done
apart = ranks.comm.duplicate()
try:
    with ranks.together():
        if RANK == 1:
            raise ValueError("no wind")
        {waits}
except CkioError as error:
    say(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    "waits",
    [
        "ranks.gather(1)",
        pytest.param("ranks.agree()", marks=pytest.mark.slow),
        pytest.param("ranks.once(int)", marks=pytest.mark.slow),
        pytest.param("apart.largest(np.ones(9))", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_fails_outside_of_agreements_is_heard_wherever_others_wait(tmp_path, waits):
    status, said, err = job(tmp_path, 3, FAILS.format(waits=waits))
    assert said == [f"{rank} RankFailed rank 1: ValueError: no wind" for rank in range(3)], err
    assert status == 0


ELSEWHERE = """
ranks = RankGroup(world(grace=1.0))
def step():
    if RANK == 1:
        raise ValueError("no wind")
    ranks.comm.mpi.Recv(np.empty(3), source=1)  # in a way of its own
with ranks.together():
    ranks.each(step, calls_off=True)
"""


@pytest.mark.slow
def test_a_job_whose_ranks_wait_in_their_own_way_is_ended_with_the_reason(tmp_path):
    status, _, err = job(tmp_path, 2, ELSEWHERE)
    assert status != 0
    assert "ckio: rank 1: ValueError: no wind; the other ranks wait for it in calls" in err
    assert "ended after 1 s" in err
