"""The cut is as good as anything: as all choices, as HiGHS, as the published search."""

from itertools import product
from random import Random

import numpy as np
import pytest
from oracles.store_or_recompute import bicliques, largest, numbered, solve_by

from ckio.analysis.dag import ValueGraph, solve

from .dag_cases import every, figure_6, objective, random_graph, solvable


def whole(nbytes: int) -> float:
    """A cost for which sums of whole numbers are exact."""
    return 2.0 * nbytes + 1


def measured(nbytes: int) -> float:
    """A cost whose sums are not exact."""
    return 0.37 + 0.11 * nbytes


TINY = {"dags": 2, "minimal": 2, "inner": 2, "required": 2, "locations": 4}


def test_no_choice_is_better_than_the_cut() -> None:
    random = Random(1)
    for cost, refused, bytes_, _ in product((None, whole), (0.0, 0.15), (1, 9), range(15)):
        graph = solvable(random, **TINY, bytes_=bytes_, seconds=9, refused=refused)
        assert objective(solve(graph, cost=cost), cost) == every(graph, cost).objective.min()


def test_every_other_best_choice_saves_and_computes_as_much_and_more() -> None:
    random, ties = Random(7), 0
    for cost in (None, whole) * 25:
        graph = random_graph(random, **TINY, bytes_=2, seconds=2)
        found, others = solve(graph, cost=cost), every(graph, cost)
        best = others.objective == others.objective.min()
        ties += np.count_nonzero(best) > 1
        assert all(others.saved[name][best].all() for name in found.saved)
        again = (*found.begins, *found.recomputed)
        assert all(others.again[name][best].all() for name in again)
    assert ties > 10


SIZES = (
    {"dags": 2, "minimal": 5, "inner": 10, "required": 6, "locations": 8},
    {"dags": 6, "minimal": 4, "inner": 8, "required": 5, "locations": 24},
)


def compare_with_highs(random: Random, graphs: int) -> None:
    for case in range(graphs):
        cost = (None, whole, measured)[case % 3]
        graph = solvable(
            random,
            **SIZES[case % 8 == 7],
            bytes_=random.choice((1, 50, 10**6)),
            seconds=random.choice((0, 20, 10**5)),
            refused=random.choice((0.0, 0.1)),
        )
        cut, program = (solve_by(name, graph, cost=cost) for name in ("cut", "milp"))
        assert objective(cut, cost) == pytest.approx(objective(program, cost), rel=1e-9)


@pytest.mark.campaign
@pytest.mark.parametrize("graphs", [6, 2000])
def test_highs_finds_nothing_better(graphs: int) -> None:
    compare_with_highs(Random(12), graphs)


def simple(graph: ValueGraph) -> int:
    """The better of the two simple choices: save all there is, or store all that is required."""
    needed = graph.needed()
    places = {place for name in needed for place in graph.overwrites.get(name, ())}
    return min(
        sum(graph.locations[place] for place in places),
        sum(graph.nbytes.get(name, 1) for name in graph.required),
    )


def test_the_published_search_is_between_the_cut_and_the_simple_choices() -> None:
    random, worse = Random(17), 0
    for case in range(8):
        graph = random_graph(random, **SIZES[case % 2], bytes_=(1, 50)[case % 2])
        least, found = (solve_by(name, graph).nbytes for name in ("cut", "paper"))
        assert least <= found <= simple(graph)
        worse += least < found
    assert worse > 1


def sides(graph: ValueGraph) -> list[tuple[set[object], set[object]]]:
    """The bicliques of lines 03 and 04 by name."""
    numbers = numbered(graph, None)
    return [
        (
            {numbers.values[i] for i in values},
            {numbers.locations[i] for i in np.flatnonzero(places)},
        )
        for values, places in bicliques(numbers)
    ]


def test_the_bicliques_of_figure_6() -> None:
    alone = [({f"v{i}"}, {f"o{i}"}) for i in range(1, 6)]
    assert sorted(sides(figure_6("a")), key=str) == sorted(alone, key=str)
    assert sides(figure_6("b")) in (
        [({"v1"}, {"o1", "o2", "o3", "o4"}), ({"v2", "v3", "v4", "v5"}, {"o5"})],
        [({"v2", "v3", "v4", "v5"}, {"o5"}), ({"v1"}, {"o1", "o2", "o3", "o4"})],
    )


@pytest.mark.parametrize(("case", "ratio", "added"), [("a", 1.0, 1), ("b", 4.0, 1)])
def test_the_first_step_is_the_one_that_the_text_says(case: str, ratio: float, added: int) -> None:
    numbers = numbered(figure_6(case), None)
    none = np.zeros(len(numbers.locations), np.bool_)
    step = largest(numbers, bicliques(numbers), none)
    assert (step.ratio, np.count_nonzero(step.saved)) == (ratio, added)
    if case == "b":
        assert numbers.locations[int(np.flatnonzero(step.saved)[0])] == "o5"
