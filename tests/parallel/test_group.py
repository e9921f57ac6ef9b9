"""Ranks that agree: what one cannot do none has done, and all say the same of it."""

import os
import threading
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from models.threaded import on_ranks

from ckio.actions import Field, Key, Kind, nbytes_of
from ckio.backends.ram import Ram
from ckio.calibrate.codecs import Decision, decide
from ckio.calibrate.probe import Checkpoint
from ckio.compression import Zstd
from ckio.errors import BadInput, LevelFull, MissingCheckpoint, RankFailed, RunFailed, Stopped
from ckio.jobs.directory import check_alike
from ckio.jobs.levels import _of_all
from ckio.jobs.stopping import Stopper, store_stop_point
from ckio.model import sizes_of
from ckio.model.comm import SOLO, Comm, Solo, check_exchange, launched, share
from ckio.models.wave import Wave
from ckio.parallel.agreed import AgreedLevel, AgreedModel, LargestWrites
from ckio.parallel.group import ALONE, CollectiveClock, RankGroup
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain

X = Key(Kind.RESTART, 0), Key(Kind.RESTART, 1), Key(Kind.RESTART, 2)


def raised(size: int, work: Callable[[RankGroup], object]) -> list[Exception]:
    """What each of so many ranks raises."""

    def outcome(comm: Comm) -> Exception:
        try:
            work(RankGroup(comm))
        except Exception as error:  # whatever it is
            return error
        raise AssertionError("nothing was raised")

    return on_ranks(size, outcome)


def failing(rank: int, error: Exception) -> Callable[[RankGroup], object]:
    """Raises it on one rank."""

    def work(ranks: RankGroup) -> object:
        def do() -> int:
            if ranks.rank == rank:
                raise error
            return 1

        return ranks.each(do)

    return work


@pytest.mark.parametrize(
    ("rank", "error", "kind", "said"),
    [
        (1, LevelFull("no room"), LevelFull, "rank 1: no room"),
        (2, ValueError("no wind"), RankFailed, "rank 2: ValueError: no wind"),
        (0, MissingCheckpoint("x_3 is not there"), MissingCheckpoint, "rank 0: x_3 is not there"),
    ],
)
def test_what_one_raises_all_raise(rank, error, kind, said):
    found = raised(3, failing(rank, error))
    assert [type(each) for each in found] == [kind] * 3
    assert {str(each) for each in found} == {said}
    assert kind is not RankFailed or {each.rank for each in found} == {rank}
    assert kind is not LevelFull or all(each.shared for each in found)
    for number, each in enumerate(found):
        assert (each.__cause__ is error) == (number == rank)


def test_what_several_raise_names_the_first_and_what_all_raise_alike_names_nobody():
    def work(ranks: RankGroup) -> None:
        def do() -> None:
            if ranks.rank:
                raise BadInput(f"{ranks.rank} is too many")

        ranks.each(do)

    found = raised(4, work)
    assert {type(error) for error in found} == {BadInput}
    assert {str(error) for error in found} == {"rank 1: 1 is too many (and so do 2 others)"}
    alike = raised(3, lambda ranks: ranks.each(lambda: int("x")))
    assert {str(error) for error in alike} == {
        "ValueError: invalid literal for int() with base 10: 'x'"
    }


def test_what_others_have_done_is_undone():
    done: dict[int, list[str]] = {rank: [] for rank in range(3)}

    def work(ranks: RankGroup) -> None:
        def do() -> str:
            if ranks.rank == 2:
                raise LevelFull("full")
            done[ranks.rank].append("done")
            return "it"

        ranks.each(do, undo=lambda it: done[ranks.rank].append(f"undone {it}"))

    raised(3, work)
    assert done == {0: ["done", "undone it"], 1: ["done", "undone it"], 2: []}


def test_the_first_rank_alone_does_what_is_done_once():
    callers: list[int] = []

    def work(comm: Comm) -> object:
        ranks = RankGroup(comm)
        return ranks.once(lambda: callers.append(ranks.rank) or {"answer": 42})

    assert on_ranks(3, work) == [{"answer": 42}] * 3
    assert callers == [0]


@pytest.mark.parametrize("what", [BadInput("no such file"), threading.Lock()])
def test_what_the_first_rank_cannot_do_or_send_all_raise(what):
    def work(ranks: RankGroup) -> None:
        def do() -> object:
            if isinstance(what, Exception):
                raise what
            return what  # which pickle cannot carry

        ranks.once(do)

    found = raised(3, work)
    assert {str(error) for error in found} == {
        "no such file"  # which nobody else has looked for
        if isinstance(what, Exception)
        else "rank 0: TypeError: cannot pickle '_thread.lock' object"
    }


def test_ranks_that_are_at_different_steps_are_told():
    def work(ranks: RankGroup) -> None:
        ranks.each(lambda: 20 + ranks.rank, number=int)

    found = raised(3, work)
    assert {type(error) for error in found} == {RunFailed}
    assert {str(error) for error in found} == {
        "one rank is at step 20 and another at 22; the model must return the same step on all ranks"
    }


def test_what_is_raised_between_agreements_is_found_at_the_next():
    def work(ranks: RankGroup) -> None:
        with ranks.together():
            for number in range(10):
                if ranks.rank == 1 and number == 5:
                    raise MemoryError("there is none")
                ranks.agree()

    found = raised(3, work)
    assert {str(error) for error in found} == {"rank 1: MemoryError: there is none"}


def test_a_wish_of_one_is_known_to_all_at_the_same_agreement():
    def work(comm: Comm) -> list[bool]:
        asked = iter([False] * 3 + [True] * 9)
        ranks = RankGroup(comm, wish=lambda: comm.rank == 1 and next(asked))
        seen = []
        for _ in range(6):
            ranks.agree()
            seen.append(ranks.wished)
        return seen

    assert on_ranks(3, work) == [[False] * 3 + [True] * 3] * 3


def test_the_clock_is_the_same_on_all_ranks_and_moves_when_they_agree():
    def work(comm: Comm) -> list[float]:
        ranks = RankGroup(comm)
        clock = CollectiveClock(ranks)
        first = clock.now()
        assert ranks.clock.now() == first
        return [first, clock.now()]

    found = on_ranks(3, work)
    assert found[0] == found[1] == found[2]
    assert found[0][1] > found[0][0] > 0


def test_one_rank_needs_nobody():
    assert ALONE.is_alone
    assert ALONE.each(lambda: 3) == ALONE.once(lambda: 3) == 3
    with pytest.raises(LevelFull, match=r"^no room$"):
        failing(0, LevelFull("no room"))(RankGroup())


# Levels


def stored(backend: Ram, keys: set[Key]) -> None:
    for key in keys:
        backend.write(key, LAYOUT, [memoryview(bytes([key.step] * 4))])


LAYOUT = (Field("u", "uint8", (4,)),)


def test_a_checkpoint_is_there_if_all_ranks_have_it():
    kept = [{X[0], X[1], X[2]}, {X[0], X[2]}, {X[0], X[2], X[1]}]

    def work(comm: Comm) -> tuple[list[Key], set[Key]]:
        own = Ram()
        stored(own, kept[comm.rank])
        return list(AgreedLevel(own, RankGroup(comm)).keys()), set(own.keys())

    assert on_ranks(3, work) == [([X[0], X[2]], {X[0], X[2]})] * 3


def test_what_one_rank_cannot_write_none_has():
    def work(comm: Comm) -> tuple[str, list[Key]]:
        own = Ram(capacity=4 if comm.rank == 1 else 100)
        level = AgreedLevel(own, RankGroup(comm))
        stored(level, {X[0]})
        with pytest.raises(LevelFull) as caught:
            stored(level, {X[1]})
        assert list(own.keys()) == [X[0]]
        return str(caught.value).partition(" ")[0], list(level.keys())

    assert on_ranks(3, work) == [("rank", [X[0]])] * 3


def test_what_one_rank_cannot_read_none_takes():
    def work(comm: Comm) -> list[Key]:
        own = Ram()
        level = AgreedLevel(own, RankGroup(comm))
        stored(level, {X[0], X[1]})
        if comm.rank == 2:
            own.discard(X[1])
        with pytest.raises(MissingCheckpoint, match="rank 2"):
            level.read(X[1], [memoryview(bytearray(4))])
        return list(level.keys())

    assert on_ranks(3, work) == [[X[0]]] * 3


def test_a_level_offers_what_its_parts_offer():
    def work(comm: Comm) -> None:
        level = AgreedLevel(Ram(), RankGroup(comm))
        assert not level.cached
        assert not level.durable
        level.reserve({4: 2})
        level.close()

    on_ranks(2, work)


def test_who_measures_hears_what_a_write_takes_where_it_takes_most():
    def work(comm: Comm) -> int:
        ranks = RankGroup(comm)
        level = LargestWrites(AgreedLevel(Ram(), ranks), ranks)
        layout = (Field("u", "uint8", (4 + comm.rank,)),)
        return level.write(X[0], layout, [memoryview(bytes(4 + comm.rank))])

    assert on_ranks(3, work) == [6] * 3


class Lasting(Ram):
    durable = True


def test_ranks_with_parts_of_different_size_make_room_alike_for_where_they_stand():
    """By the bytes of each alone, some would discard what others keep."""
    there = {Key(Kind.RESTART, step) for step in range(1, 5)}

    def work(comm: Comm) -> tuple[set[Key], object]:
        ranks = RankGroup(comm)
        model = AgreedModel(Wave(grid=25, comm=comm.duplicate()), ranks)
        nbytes = dict(sizes_of(model))
        chain = Chain(steps=9, advance=1, record=1, reverse=1, **nbytes)
        room = int(4.8 * nbytes["restart"])  # for five of the smaller parts
        platform = Platform((Level(name="disk", capacity=room),))
        level = AgreedLevel(Lasting(capacity=room), ranks)
        for key in sorted(there, key=str):
            level.write(key, model.layout(key), model.dump(key))
        assert (5 * nbytes_of(model.layout(X[0])) <= room) == (comm.rank == 0)
        model.advance(0, 7)
        stopped = Stopped("", action=0, state=7, adjoint=9)
        standing = store_stop_point(stopped, model, [level], platform, chain, ranks=ranks)
        return set(level.keys()), standing

    found = on_ranks(2, work)
    assert found[0] == found[1]
    assert Key(Kind.RESTART, 7) in found[0][0]
    assert len(found[0][0]) == 4


# Models


class Broken(Wave):
    """Raises on one rank, whose neighbours then wait for its halo."""

    broken = -1

    def step(self, state, i):
        if i == self.broken:
            raise ValueError("no wind")
        super().step(state, i)


def test_a_step_that_fails_on_one_rank_fails_on_all():
    def work(ranks: RankGroup) -> None:
        model = Broken(grid=24, comm=ranks.comm.duplicate())
        model.broken = 5 if ranks.rank == 1 else -1
        AgreedModel(model, ranks).advance(0, 9)

    found = raised(3, work)
    assert {type(error) for error in found} == {RankFailed}
    assert {str(error) for error in found} == {"rank 1: ValueError: no wind (step 5)"}


def test_what_is_planned_for_is_the_largest_part():
    def work(comm: Comm) -> tuple[dict[str, int], bool, int]:
        part = Wave(grid=25, comm=comm)
        whole = AgreedModel(part, RankGroup(comm))
        mine = sum(a.nbytes for name, a in part.control.items())
        assert whole.estimated == whole.unequal
        return dict(whole.largest_sizes), whole.unequal, mine

    (sizes, unequal, _), (others, too, _) = on_ranks(2, work)
    assert sizes == others
    assert unequal
    assert too


def test_progress_reaches_the_model():
    def work(comm: Comm) -> list[int]:
        seen: list[int] = []
        model = AgreedModel(Wave(grid=24, comm=comm), RankGroup(comm))
        model.on_step = seen.append
        model.advance(0, 3)
        return seen

    assert on_ranks(2, work) == [[1, 2, 3]] * 2


# A codec for all


def part(nbytes: int, *, noise: bool) -> Checkpoint:
    """A rank's part of a checkpoint, which shrinks to nothing or not at all."""
    data = np.random.default_rng(0).bytes(nbytes) if noise else bytes(nbytes)
    return X[0], (Field("u", "uint8", (nbytes,)),), [memoryview(bytearray(data))]


def decided(*parts: Checkpoint, capacity: int) -> list[Decision]:
    """What ranks with these parts decide for a level of memory."""

    def work(comm: Comm) -> Decision:
        ranks = RankGroup(comm)
        level = LargestWrites(Ram(capacity=capacity), ranks)
        mine, clock = [parts[ranks.rank]], CollectiveClock(ranks)
        found = decide(
            "ram",
            level,
            {"zstd": Zstd()},
            mine,
            step=1.0,
            capacity=capacity,
            clock=clock,
            ranks=ranks,
        )
        assert list(level.keys()) == []
        return found

    return on_ranks(len(parts), work)


def test_a_codec_is_for_all_ranks_with_parts_of_any_size():
    first, *others = decided(
        *(part(nbytes, noise=False) for nbytes in (90_000, 100_000, 80_000)), capacity=1_000_000
    )
    assert first.codec == "zstd"
    assert others == [first] * 2


def test_there_is_none_where_one_rank_has_noise():
    first, other = decided(
        part(100_000, noise=False), part(100_000, noise=True), capacity=1_000_000
    )
    assert first.sentence == "no codec: none shrinks all checkpoints to 95% or less"
    assert other == first


# What ranks ask of each other


def test_a_job_of_one_talks_to_itself():
    into = np.zeros(3)
    SOLO.exchange({0: np.arange(3.0)}, {0: into})
    assert into.tolist() == [0, 1, 2]
    assert SOLO.gather("a") == ["a"]
    with pytest.raises(BadInput, match="no rank 1, because this job has 1, from 0"):
        SOLO.exchange({1: into}, {})


def test_shares_are_all_there_is_and_differ_by_one_at_most():
    class Rank(Solo):
        def __init__(self, rank: int, size: int) -> None:
            self.rank, self.size = rank, size

    for n, size in product((0, 1, 7, 24), (1, 2, 5, 30)):
        shares = [share(n, Rank(rank, size)) for rank in range(size)]
        assert [k for part in shares for k in part] == list(range(n)), (n, size)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1, (n, size)


def test_launchers_are_seen_by_what_they_leave_in_the_environment():
    assert launched({}) is None
    assert launched({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}) == (1, 2)
    assert launched({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) is None  # a batch script
    assert launched({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8"}) == (0, 8)
    assert (launched() is None) == ("PMI_RANK" not in os.environ)


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        (1, ["level nvme: x_3 (rank 0)", "level nvme: x_3 (rank 1)"]),
        (2, ["level nvme: x_3 (rank 0), and 3 more like this"]),
    ],
)
def test_what_ranks_have_lost_is_told_for_each_or_by_their_number(
    losses: int, said: list[str]
) -> None:
    words = ["level nvme: x_3"] * losses
    assert on_ranks(2, lambda comm: _of_all(RankGroup(comm), words)) == [said] * 2
    assert _of_all(ALONE, words) == words


def test_ranks_that_were_started_with_other_options_are_named() -> None:
    def work(ranks: RankGroup) -> None:
        check_alike(ranks, {"--steps": 60, "--every": 1 + ranks.rank})

    for error in raised(2, work):
        assert isinstance(error, BadInput)
        assert "--every is 2 on rank 1, and 1 on rank 0" in str(error)


def test_all_ranks_stop_for_the_reason_of_one() -> None:
    def work(comm: Comm) -> tuple[bool, str]:
        ranks = RankGroup(comm)
        stopper = Stopper(None, ranks)
        stopper.start(0.0)
        if ranks.rank == 1:
            stopper.why = "SIGTERM"
        ranks.agree()
        return stopper(), stopper.why

    assert on_ranks(3, work) == [(True, "SIGTERM")] * 3


ROW = np.arange(4.0)


@pytest.mark.parametrize(
    ("send", "into", "said"),
    [
        ({0: ROW}, {0: ROW.copy().reshape(2, 2)}, "rank 0 expects or sends something else"),
        ({0: ROW.astype("f4")}, {0: ROW.copy()}, "float32 of shape"),
        ({0: ROW[:1]}, {0: ROW.copy()}, "same shape and dtype"),
        ({0: ROW}, {}, "only one of `send` and `into`"),
        ({}, {0: ROW.copy()}, "only one of `send` and `into`"),
        ({1: ROW}, {}, "no rank 1"),
        ({0: ROW[0]}, {0: ROW[0]}, "cannot be written"),
        ({0: ROW}, {0: np.broadcast_to(ROW, (4,))}, "cannot be written"),
        ({0: np.ma.array(ROW)}, {0: ROW.copy()}, "no masked array"),
        ({0: np.array([None])}, {0: np.array([None])}, "no Python objects"),
    ],
)
def test_alone_what_does_not_fit_is_refused_as_it_is_between_ranks(send, into, said):
    before = [np.array(array) for array in into.values()]
    with pytest.raises(BadInput, match=said.replace("(", r"\(")):
        SOLO.exchange(send, into)
    assert all(map(np.array_equal, before, into.values()))


def test_alone_any_layout_arrives_and_so_does_a_shift_in_place():
    u = np.arange(12.0).reshape(3, 4)
    into = np.zeros((3, 8), ">f8")[:, ::2]
    SOLO.exchange({0: np.asfortranarray(u)}, {0: into})
    assert (into == u).all()
    SOLO.exchange({0: u[:-1]}, {0: u[1:]})
    assert u[:, 0].tolist() == [0, 0, 4]


def test_two_neighbours_cannot_write_to_the_same_memory():
    u = np.zeros((4, 4))

    def work(comm: Comm) -> None:
        check_exchange(comm, {}, {1: u[:, 0], 2: u[:, 3]})  # a column of each
        check_exchange(comm, {}, {1: u[:2], 2: u[1:]})

    assert {type(error) for error in raised(3, lambda ranks: work(ranks.comm))} == {BadInput}


@pytest.mark.parametrize(
    ("of_rank_1", "found"), [(2.0, None), (1.0 + 1e-12, 1.0), (np.nan, np.nan)]
)
def test_the_functional_is_that_of_all_ranks_or_it_is_refused(of_rank_1, found):
    class Own(Wave):
        functional = property(lambda model: of_rank_1 if model.rank else 1.0)

    def work(comm: Comm) -> float:
        own = Own(grid=32, comm=comm)
        own.rank = comm.rank
        return AgreedModel(own, RankGroup(comm)).functional

    if found is None:
        errors = raised(2, lambda ranks: work(ranks.comm))
        assert {type(error) for error in errors} == {RunFailed}
        assert {str(error)[:40] for error in errors} == {"the ranks have different functionals: 1,"}
    else:
        assert np.array_equal(on_ranks(2, work), [found] * 2, equal_nan=True)
