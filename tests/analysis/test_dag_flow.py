"""Minimum cuts with scipy's 32-bit capacities: exact, or within the units of the weights."""

from collections import deque
from itertools import pairwise
from math import fsum, inf
from random import Random

import pytest

from ckio.analysis.cut import SINK, SOURCE, nearest_cut

Network = dict[tuple[int, int], float]


def found_in(network: Network, nodes: int, bound: float) -> list[int]:
    """The nodes on the sink's side; the source is 0, and the sink is the last one."""
    ends = {0: SOURCE, nodes - 1: SINK}
    arcs = [(ends.get(a, a), ends.get(b, b), weight) for (a, b), weight in network.items()]
    beyond = nearest_cut(arcs, bound=bound)
    return [node for node in range(nodes) if ends.get(node, node) in beyond]


def by_hand(network: Network, nodes: int) -> tuple[int, set[int]]:
    """Edmonds and Karp in whole numbers of any size: the flow, and what still reaches the sink."""
    left = {pair: 10**40 if weight == inf else int(weight) for pair, weight in network.items()}
    for tail, head in network:
        left.setdefault((head, tail), 0)
    flow = 0
    while path := _shortest(left, nodes):
        least = min(left[pair] for pair in path)
        for tail, head in path:
            left[tail, head] -= least
            left[head, tail] += least
        flow += least
    beyond, grown = {nodes - 1}, True
    while grown:
        more = {tail for (tail, head), room in left.items() if room and head in beyond}
        grown = not more <= beyond
        beyond |= more
    return flow, beyond


def _shortest(left: dict[tuple[int, int], int], nodes: int) -> list[tuple[int, int]]:
    """The arcs of a shortest way from the source, 0, to the sink, the last node."""
    came: dict[int, int] = {0: 0}
    todo = deque([0])
    while todo:
        node = todo.popleft()
        for (tail, head), room in left.items():
            if tail == node and room and head not in came:
                came[head] = node
                todo.append(head)
    if nodes - 1 not in came:
        return []
    path = [nodes - 1]
    while path[-1]:
        path.append(came[path[-1]])
    return [(tail, head) for head, tail in pairwise(path)]


def random_network(random: Random, nodes: int, most: int) -> tuple[Network, float]:
    """Arcs in both directions, some that cannot be cut, and the weight of some cut."""
    network: Network = {}
    for _ in range(3 * nodes):
        tail, head = random.randrange(nodes - 1), random.randrange(1, nodes)
        if tail != head:
            kinds = (random.randint(0, most), random.randint(0, most), random.randint(0, 3), inf)
            network[tail, head] = float(random.choice(kinds[: 4 if tail else 3]))
    network.setdefault((0, 1), 1.0)
    network.setdefault((nodes - 2, nodes - 1), 1.0)
    return network, sum(weight for (tail, _), weight in network.items() if tail == 0)


def weight(network: Network, beyond: set[int]) -> float:
    """Of the arcs to the nodes beyond."""
    return fsum(it for (tail, head), it in network.items() if head in beyond and tail not in beyond)


@pytest.mark.parametrize("most", [1, 1000, 1 << 20, 1 << 24])
def test_the_cut_is_the_minimum_one_nearest_to_the_sink(most: int) -> None:
    random, flows = Random(most), 0
    for _ in range(36):
        nodes = random.randint(3, 9)
        network, bound = random_network(random, nodes, most)
        flow, beyond = by_hand(network, nodes)
        assert set(found_in(network, nodes, bound)) == beyond
        assert weight(network, beyond) == flow
        flows += flow > 0
    assert flows > 9


@pytest.mark.parametrize("most", [1 << 33, 1 << 50])
def test_the_cut_of_large_weights_is_least_up_to_a_unit_for_each_arc(most: int) -> None:
    random = Random(most)
    for _ in range(36):
        nodes = random.randint(3, 9)
        network, bound = random_network(random, nodes, most)
        flow, _ = by_hand(network, nodes)
        cut = weight(network, set(found_in(network, nodes, bound)))
        assert flow <= cut <= flow + bound * 2**-29 * len(network)


def test_arcs_without_an_end_hold_more_than_any_other_together() -> None:
    heavy = float(1 << 55)
    network = {(0, k): heavy for k in range(1, 9)} | {(k, 9): inf for k in range(1, 9)}
    network |= {(9, 10): inf, (10, 11): 9 * heavy}
    assert found_in(network, 12, 9 * heavy) == [*range(1, 12)]


def test_a_bound_may_have_been_rounded_as_any_sum_of_floats() -> None:
    random = Random(2)
    for _ in range(100):
        count = random.randint(2, 12)
        weights = [random.random() * random.choice((1, 0.1, 1e-3)) for _ in range(count)]
        network = {(0, k + 1): 1e3 for k in range(count)}
        network |= {(k + 1, count + 1): weight for k, weight in enumerate(weights)}
        assert found_in(network, count + 2, sum(weights)) == [count + 1]
