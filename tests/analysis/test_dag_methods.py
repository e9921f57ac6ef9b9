"""The cut is as good as anything: as all choices, as HiGHS, as the published search."""

from itertools import combinations
from math import inf
from random import Random

import numpy as np
import pytest
from oracles.store_or_recompute import (
    bicliques,
    cover,
    largest,
    maximal,
    restore,
    search,
    solve_by,
)

from ckio.analysis.dag import Price, ValueGraph, choose, numbered, solve
from ckio.errors import BadInput

from .dag_cases import every, figure_6, objective, random_graph, solvable


def whole(nbytes: int) -> float:
    """A price for which sums of whole numbers are exact."""
    return 2.0 * nbytes + 1


def measured(nbytes: int) -> float:
    """A price whose sums are not exact."""
    return 0.37 + 0.11 * nbytes


TINY = {"dags": 2, "minimal": 2, "inner": 2, "required": 2, "locations": 4}


@pytest.mark.parametrize("price", [None, whole])
@pytest.mark.parametrize("refused", [0.0, 0.15])
@pytest.mark.parametrize("bytes_", [1, 9])
def test_no_choice_is_better_than_the_cut(price: Price | None, refused: float, bytes_: int) -> None:
    random = Random(f"{price}{refused}{bytes_}")
    for _ in range(20):
        graph = solvable(random, **TINY, bytes_=bytes_, seconds=9, refused=refused)
        assert objective(solve(graph, price=price), price) == every(graph, price).objective.min()


@pytest.mark.parametrize("price", [None, whole])
def test_every_other_best_choice_saves_and_computes_as_much_and_more(price: Price | None) -> None:
    random, ties = Random(7), 0
    for _ in range(40):
        graph = random_graph(random, **TINY, bytes_=2, seconds=2)
        found, others = solve(graph, price=price), every(graph, price)
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
        price = (None, whole, measured)[case % 3]
        graph = solvable(
            random,
            **SIZES[case % 8 == 7],
            bytes_=random.choice((1, 50, 10**6)),
            seconds=random.choice((0, 20, 10**5)),
            refused=random.choice((0.0, 0.1)),
        )
        cut, program = (solve_by(name, graph, price=price) for name in ("cut", "milp"))
        assert objective(cut, price) == pytest.approx(objective(program, price), rel=1e-9)


@pytest.mark.slow
def test_highs_finds_nothing_better() -> None:
    compare_with_highs(Random(11), 80)


@pytest.mark.slow
def test_highs_finds_nothing_better_in_many_graphs() -> None:
    compare_with_highs(Random(12), 2000)


@pytest.mark.slow
def test_highs_finds_nothing_better_in_a_large_graph() -> None:
    size = {"dags": 70, "minimal": 20, "inner": 60, "required": 20, "locations": 700}
    for price, bytes_ in ((None, 1), (None, 1000), (whole, 1000)):
        graph = random_graph(Random(13), **size, bytes_=bytes_, seconds=1000)
        cut, program = (solve_by(name, graph, price=price) for name in ("cut", "milp"))
        assert objective(cut, price) == pytest.approx(objective(program, price), rel=1e-9)


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
    for case in range(30):
        graph = random_graph(random, **SIZES[case % 2], bytes_=(1, 50)[case % 2])
        least, found = (solve_by(name, graph).nbytes for name in ("cut", "paper"))
        assert least <= found <= simple(graph)
        worse += least < found
    assert worse > 5


def test_the_published_search_knows_no_seconds_to_compute_again() -> None:
    graph = random_graph(Random(19), **SIZES[1], bytes_=50, seconds=20)
    free = ValueGraph(
        arguments=graph.arguments,
        required=graph.required,
        overwrites=graph.overwrites,
        nbytes=graph.nbytes,
        overwritten=graph.overwritten,
    )
    blind, other = (solve_by("paper", one, price=whole) for one in (graph, free))
    assert (blind.saved, blind.stored) == (other.saved, other.stored)
    assert blind.seconds > solve(graph, price=whole).seconds


def test_a_larger_delta_tries_more() -> None:
    random, found = Random(23), []
    for _ in range(12):
        graph = random_graph(random, **SIZES[1], bytes_=50)
        found.append([solve_by("paper", graph, delta=delta).nbytes for delta in (0, 1)])
    before, after = np.array(found).T
    assert (after <= before).all()
    assert (after < before).any()


def test_algorithm_1_stores_least_for_what_is_saved() -> None:
    random = Random(29)
    for _ in range(20):
        graph = random_graph(random, **TINY, bytes_=9)
        numbers = numbered(graph, None)
        saved = np.array([random.random() < 0.5 for _ in numbers.locations], np.bool_)
        stored = restore(numbers, saved).stored
        others = every(graph, None)
        same = np.ones(len(others.objective), np.bool_)
        for name, chosen in zip(numbers.locations, saved, strict=True):
            same &= others.saved[name] == chosen
        for name in set(others.saved) - set(numbers.locations):
            same &= ~others.saved[name]
        least = others.objective[same].min() - numbers.saving[saved].sum()
        assert numbers.weight[stored].sum() == least
        names = [name for name, one in zip(numbers.locations, saved, strict=True) if one]
        values = [name for name, one in zip(numbers.values, stored, strict=True) if one]
        choose(graph, saved=names, stored=values)


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


def test_overlapping_bicliques_are_given_all_locations_of_their_values() -> None:
    found = sides(figure_6("c"))
    assert ({"v1", "v2"}, {"o1", "o2", "o3"}) in found
    assert all(places >= {"o1", "o2", "o3"} for values, places in found if "v2" in values)


@pytest.mark.parametrize(("case", "ratio", "added"), [("a", 1.0, 1), ("b", 4.0, 1)])
def test_the_first_step_is_the_one_that_the_text_says(case: str, ratio: float, added: int) -> None:
    numbers = numbered(figure_6(case), None)
    none = np.zeros(len(numbers.locations), np.bool_)
    step = largest(numbers, bicliques(numbers), none)
    assert (step.ratio, np.count_nonzero(step.saved)) == (ratio, added)
    if case == "b":
        assert numbers.locations[int(np.flatnonzero(step.saved)[0])] == "o5"


def test_a_cover_has_every_edge_in_maximal_bicliques() -> None:
    random = Random(31)
    for _ in range(60):
        edges = {v: frozenset(o for o in range(6) if random.random() < 0.4) for v in range(7)}
        found = cover(edges)
        assert {(v, o) for values, places in found for v in values for o in places} == {
            (v, o) for v, places in edges.items() for o in places
        }
        groups = (group for size in range(1, 8) for group in combinations(edges, size))
        common = {frozenset.intersection(*(edges[v] for v in group)) for group in groups}
        assert set(maximal(edges)) == {
            (frozenset(v for v in edges if places <= edges[v]), places)
            for places in common - {frozenset()}
        }
        assert set(found) <= set(maximal(edges))


def test_a_step_that_neither_gains_nor_loses_is_taken() -> None:
    answer = search(numbered(figure_6("a"), None), delta=0.0)
    assert (answer.saved.sum(), answer.stored.sum()) == (5, 0)


def test_each_biclique_is_tried_once_the_most_promising_first() -> None:
    groups = {"a": (3, 3), "z": (1, 6), "b": (4, 1), "c": (2, 1)}  # in the order of the cover
    values = {f"{name}{k}": name for name, (count, _) in groups.items() for k in range(count)}
    graph = ValueGraph(
        arguments=dict.fromkeys(values, ()) | {f"d{value}": (value,) for value in values},
        required=[f"d{value}" for value in values],
        overwrites={
            value: [f"{name}o{k}" for k in range(groups[name][1])] for value, name in values.items()
        },
    )
    found = solve_by("paper", graph)
    assert (found.saved, found.stored) == (("ao0", "ao1", "ao2", "bo0", "co0"), ("dz0",))


def test_the_published_search_refuses_what_it_does_not_know() -> None:
    graph = figure_6("b")
    refusing = (
        {"unstorable": ["d1"]},
        {"unsavable": ["o5"]},
        {"recompute": {"d1": inf}},
    )
    for given in refusing:
        other = ValueGraph(
            arguments=graph.arguments,
            required=graph.required,
            overwrites=graph.overwrites,
            **given,  # type: ignore[arg-type]
        )
        solve(other)
        with pytest.raises(BadInput, match="stores and computes every value"):
            solve_by("paper", other)
