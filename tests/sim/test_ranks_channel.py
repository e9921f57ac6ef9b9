"""A channel by itself: who gets which part of the bandwidth, and when the gate opens."""

from collections.abc import Iterator
from typing import Any

import pytest
import simpy

from ckio.sim.ranks.channel import Channel, Gate


def ends(
    bandwidth: float, speeds: list[float], clients: list[tuple[float, int, float, int]]
) -> tuple[list[float], Channel]:
    """When each client is done: it comes, uses a lane, moves bytes, and stands for so many."""
    environment = simpy.Environment()
    channel = Channel(environment, bandwidth, speeds)
    found = [0.0] * len(clients)

    def client(number: int, come: float, *transfer: Any) -> Iterator[simpy.Event]:
        yield environment.timeout(come)
        yield channel.transfer(*transfer)
        found[number] = environment.now

    for number, given in enumerate(clients):
        environment.process(client(number, *given))
    environment.run()
    return found, channel


def test_a_slow_client_leaves_the_rest_to_the_others() -> None:
    """On 6 bytes a second, two that move 1 at most leave 2 to each of the others."""
    found, channel = ends(6, [10, 1], [(0, 1, 4, 1), (0, 1, 4, 1), (0, 0, 4, 1), (0, 0, 4, 1)])
    assert found == pytest.approx([4, 4, 2, 2])
    assert (channel.busy, channel.most) == (4, 4)


def test_one_that_stands_for_many_gets_what_many_get() -> None:
    assert ends(6, [10, 1], [(0, 1, 4, 2), (0, 0, 4, 2)])[0] == pytest.approx([4, 2])


def test_who_goes_leaves_more_to_the_others() -> None:
    assert ends(2, [2], [(0, 0, 1, 1), (0, 0, 3, 1)])[0] == pytest.approx([1, 2])


def test_who_comes_leaves_less_to_the_others() -> None:
    found, channel = ends(2, [2], [(0, 0, 4, 1), (1, 0, 2, 1)])
    assert found == pytest.approx([3, 3])
    assert channel.busy == pytest.approx(3)


def test_a_shorter_transfer_that_comes_later_is_done_first() -> None:
    assert ends(2, [2], [(0, 0, 8, 1), (1, 0, 1, 1)])[0] == pytest.approx([4.5, 2])


def test_a_channel_is_not_busy_between_transfers() -> None:
    found, channel = ends(1, [1], [(0, 0, 1, 1), (5, 0, 2, 1), (9, 0, 0, 1)])
    assert found == pytest.approx([1, 7, 9])
    assert (channel.busy, channel.most) == (3, 1)


def test_nothing_takes_no_time() -> None:
    assert ends(1, [1], [(3, 0, 0, 7)])[0] == [3]


def test_after_long_work_small_shares_are_as_exact_as_the_clock() -> None:
    """A petabyte before, where bytes are counted in eighths, is forgotten when all are gone."""
    found, _ = ends(1e9, [1e9], [(0, 0, 1e15, 1), (2e6, 0, 1000.3, 1_000_000)])
    assert found == pytest.approx([1e6, 2e6 + 1.0003], rel=0, abs=1e-8)


def test_a_gate_opens_for_all_and_closes_behind_them() -> None:
    environment = simpy.Environment()
    gate, passed = Gate(environment, 5), []

    def comer(name: str, clients: int, *pauses: float) -> Iterator[simpy.Event]:
        for pause in pauses:
            yield environment.timeout(pause)
            yield gate.enter(clients)
            passed.append((name, environment.now))

    environment.process(comer("two", 2, 1, 1))
    environment.process(comer("three", 3, 4, 3))
    environment.run()
    assert sorted(passed) == [("three", 4), ("three", 7), ("two", 4), ("two", 7)]
