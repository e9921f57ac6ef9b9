"""Leases: never more bytes than the node offers, and none left by a killed process."""

import multiprocessing
import random
import threading
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

import pytest

from ckio import lease
from ckio.errors import BadInput, LevelFull
from ckio.platform import leases
from ckio.platform.leases import leased

NODE = {"ram": "8kB", "disk": "5kB", "archive": "9kB"}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CKIO_LEASES", str(tmp_path / "leases"))


def test_bytes_are_leased_until_the_end_of_the_context() -> None:
    with lease(ram="3kB", node=NODE), lease(ram=2000, node=NODE):
        assert leased() == 5000
    assert leased() == 0


def test_places_on_one_disk_are_counted_together(tmp_path: Path) -> None:
    disk, archive = f"{tmp_path}/new:2kB", f"{tmp_path}/a.h5:2kB"
    with lease(disk=disk, archive=archive, node=NODE):
        assert leased(str(tmp_path)) == 4000
        assert leased() == 0
        with pytest.raises(LevelFull, match=r"1\.95 KiB of 4\.88 KiB of disk have not"):
            lease(disk=disk, node=NODE, timeout=0).__enter__()


def test_all_parts_are_taken_or_none(tmp_path: Path) -> None:
    with lease(ram="7kB", node=NODE):
        with pytest.raises(LevelFull):
            lease(ram="2kB", disk=f"{tmp_path}:1kB", node=NODE, timeout=0).__enter__()
        assert leased(str(tmp_path)) == 0


def test_a_lease_waits_until_another_ends(caplog: pytest.LogCaptureFixture) -> None:
    order = []

    def second() -> None:
        with lease(ram="5kB", node=NODE):
            order.append("second")

    with lease(ram="5kB", node=NODE):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(leases._SILENT + 0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert "waiting for 4.88 KiB of 7.81 KiB of ram, which other runs" in caplog.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ram": "9kB"}, "more than the 7.81 KiB that the node offers; take less"),
        ({"disk": "scratch"}, 'a lease needs a size, and that of the node; give disk="PATH:SIZE"'),
        ({"ram": "2kB", "node": {"disk": "1GB"}}, r"give node=\{'ram': SIZE\}"),
        ({}, "nothing is leased"),
    ],
)
def test_what_cannot_be_leased_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        lease(**{"node": NODE, **given}).__enter__()
    assert leased() == 0


def _hold(nbytes: int, seconds: float, says: Connection) -> None:
    with lease(ram=nbytes, node=NODE):
        says.send("has")
        time.sleep(seconds)
        says.send("ends")
        says.recv()  # not before the parent counts it no more
    says.close()


def _storm(starts: int, seed: int) -> int:
    """Start processes that hold leases and kill some; return the largest sum that was seen.

    A process is counted from its first message to its second, or until it is killed. It sends the
    first after it has the lease, and keeps the lease until its second one is read.
    """
    chance, fork = random.Random(seed), multiprocessing.get_context("fork")
    running: dict[Any, tuple[Any, int, bool]] = {}
    most = 0
    while starts or running:
        if starts and len(running) < 8:
            starts -= 1
            nbytes, (hears, says) = chance.randrange(500, 4000), fork.Pipe()
            process = fork.Process(target=_hold, args=(nbytes, chance.uniform(0, 0.05), says))
            process.start()
            says.close()
            running[hears] = process, nbytes, False
        if running and chance.random() < 0.1:
            victim = chance.choice(list(running))
            process, _, _ = running.pop(victim)
            process.kill()
            process.join()
        for ready in wait(list(running), 0.005):
            hears = cast(Connection, ready)
            process, nbytes, _ = running[hears]
            try:
                has = hears.recv() == "has"
                if not has:
                    hears.send("read")
            except EOFError:
                process.join()
                del running[hears]
                continue
            running[hears] = process, nbytes, has
        most = max(most, sum(nbytes for _, nbytes, has in running.values() if has))
    return most


def test_fifty_processes_of_which_some_are_killed_never_have_more_than_the_node() -> None:
    assert 4000 < _storm(50, seed=1) <= 8000
    assert leased() == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_five_hundred_more(seed: int) -> None:
    assert 4000 < _storm(50, seed) <= 8000
    assert leased() == 0
