"""A quick check of `peers`: on a small grid every row finds the gradient, and is told."""

from pathlib import Path

import peers
import pytest
from peer_rows import Task


@pytest.mark.parametrize("disk", [0, 4])
def test_every_row_finds_the_gradient(tmp_path: Path, disk: int) -> None:
    task = Task(8, 40, 4, disk, str(tmp_path))
    rows = peers.rounds(task, 1, peers.measured)
    assert list(rows) == list(peers.rows_of(task))
    assert rows["ckio, hrevolve"]["forward"] == rows["numpy, ckio's schedule"]["forward"] > 40
    assert rows["ckio, hrevolve"]["moved"] == rows["numpy, ckio's schedule"]["moved"] > 0
    assert len(peers.table(task, rows, 1).splitlines()) == 3 + len(rows)  # and the limit


def test_a_row_in_a_process_of_its_own_finds_the_same(tmp_path: Path) -> None:
    task = Task(8, 12, 2, 2, str(tmp_path))
    (figures, found), (here, expected) = (
        ask("ckio, hrevolve", task) for ask in (peers.asked, peers.measured)
    )
    assert peers.distance(found, expected) == 0
    assert figures["forward"] == here["forward"]
    assert figures["seconds"] >= figures["planning"] + figures["steps"] > 0


def test_what_is_ahead_of_ckio_says_by_which_part() -> None:
    ours = {
        "seconds": 3.0,
        "planning": 0.5,
        "steps": 2.0,
        "beside": 0.5,
        "memory": 10,
        "forward": 9,
    }
    peer = ours | {"seconds": 2.0, "steps": 1.0, "memory": 25, "forward": 4}
    assert peers.why_ahead(peer, ours) == "steps 1.00 s less (4 forward); 2.5 times the memory"
    assert peers.why_ahead(ours, peer) == ""
