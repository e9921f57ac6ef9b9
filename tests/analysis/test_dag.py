"""What a choice of what to store is: it suffices, nothing of it can be left out, it costs this."""

import tomllib
from math import inf
from random import Random
from typing import Any

import pytest
from oracles.store_or_recompute import Method, solve_by

from ckio.analysis.dag import Name, ValueGraph, choose, cost_on, solve
from ckio.errors import BadInput
from ckio.platform import Affine, Level

from .dag_cases import assignments, figure_2, figure_4, figure_5, figure_6, joined, solvable

SMALL = {"dags": 3, "minimal": 4, "inner": 6, "required": 4, "locations": 9}

METHODS: tuple[Method, ...] = ("cut", "milp", "paper")

FIGURES = {
    "2": (figure_2(), 2),
    "5": (figure_5(), 2),
    "4 and 5": (joined([figure_4(), figure_5()]), 4),
    "6(a)": (figure_6("a"), 5),
    "6(b)": (figure_6("b"), 2),
    "6(c)": (figure_6("c"), 4),
}


@pytest.mark.parametrize("method", METHODS)
def test_the_figures_take_so_many_values(method: Method) -> None:
    for name, (graph, least) in FIGURES.items():
        assert solve_by(method, graph).nbytes == least, name


def test_the_text_prefers_one_location_and_one_value_in_figure_6b() -> None:
    choice = solve(figure_6("b"))
    assert (choice.saved, choice.stored) == (("o5",), ("d1",))


def test_the_choice_that_the_text_makes_for_figure_5_is_sufficient_and_not_least() -> None:
    choice = choose(figure_5(), saved=["o4", "o6"], stored=["t"])
    assert (choice.begins, choice.recomputed, choice.nbytes) == (("c",), ("dp/dc", "dr/dt"), 3)
    with pytest.raises(BadInput, match="'c' is needed again and not stored, and 'o4' overwrites"):
        choose(figure_5(), saved=["o6"], stored=["t"])


def test_a_product_of_derivatives_is_stored_instead_of_all_arguments() -> None:
    assert solve(assignments(20)).stored == ("P20",)
    assert solve(assignments(20)).recomputed == ()


def test_what_is_stored_is_paid_at_the_price_of_the_level() -> None:
    graph = ValueGraph(
        arguments={"u": (), "psi": ("u",), "d": ("psi",)},
        required=["d"],
        overwrites={"u": ["next u"]},
        nbytes={"u": 10, "psi": 10, "d": 30},
        recompute={"psi": 5.0, "d": 1.0},
    )
    assert solve(graph).stored == ("psi",)
    slow, fast = (
        Level(name="archive", write=Affine(1.0, 0.5), read=Affine(0.5, 0.5), discard=Affine(0.5)),
        Level(name="ram", write=Affine(0.0, 0.1), read=Affine(0.0, 0.1)),
    )
    on_ram = solve(graph, cost=cost_on(fast))
    assert (on_ram.stored, on_ram.storing, on_ram.recomputing) == (("psi",), 2.0, 1.0)
    on_archive = solve(graph, cost=cost_on(slow))
    assert (on_archive.saved, on_archive.stored) == ((), ("psi",))
    assert on_archive.seconds == 13.0


def test_what_is_saved_is_as_large_as_the_largest_value() -> None:
    given: dict[str, Any] = {
        "arguments": {"a": (), "b": (), "c": (), "y": ("a", "b", "c")},
        "required": ["y"],
        "overwrites": {"a": ["o"], "b": ["o"], "c": ["o"]},
        "nbytes": {"a": 3, "b": 8, "c": 4, "y": 100},
    }
    assert solve(ValueGraph(**given)).nbytes == 8


def test_what_cannot_be_done_is_not_done() -> None:
    given: dict[str, Any] = {
        "arguments": {"x": (), "y": ("x",), "z": ("y",)},
        "required": ["z"],
        "overwrites": {"x": ["o"]},
    }
    assert solve(ValueGraph(**given)).stored == ("z",)
    assert solve(ValueGraph(**given, unstorable=["z"])).stored == ("y",)
    assert solve(ValueGraph(**given, unstorable=["y", "z"])).stored == ("x",)
    assert solve(ValueGraph(**given, unstorable=["x", "y", "z"])).saved == ("o",)
    assert solve(ValueGraph(**given, recompute={"z": inf}, nbytes={"z": 9})).stored == ("z",)
    for refusing in ({"unstorable": ["z"], "recompute": {"z": inf}},):
        for method in METHODS:
            with pytest.raises(BadInput, match="is needed again and not stored"):
                solve_by(method, ValueGraph(**given, **refusing))


def values_of(graph: ValueGraph, inputs: dict[Name, int]) -> dict[Name, int]:
    """What the program computes: each value depends on all of its arguments and on its name."""
    values = dict(inputs)
    for name, arguments in graph.arguments.items():
        if arguments:
            values[name] = hash((name, *(values[argument] for argument in arguments)))
    return values


def test_an_adjoint_that_has_what_is_stored_computes_all_that_it_needs() -> None:
    random, computed = Random(5), 0
    for case in range(60):
        graph = solvable(
            random,
            **SMALL,
            bytes_=20,
            seconds=10,
            refused=0.1,
        )
        inputs = {name: random.random() for name, given in graph.arguments.items() if not given}
        values = values_of(graph, inputs)  # type: ignore[arg-type]
        choice = solve(graph, cost=None if case % 2 else float)
        there = {name: values[name] for name in choice.stored}
        for name in inputs:  # what lies in variables, or was saved when they were overwritten
            if set(graph.overwrites.get(name, ())) <= set(choice.saved):
                there[name] = values[name]
        for name in choice.recomputed:
            there[name] = hash((name, *(there[argument] for argument in graph.arguments[name])))
            computed += 1
        assert {name: there[name] for name in graph.required} == {
            name: values[name] for name in graph.required
        }
        assert set(choice.begins) <= there.keys()
    assert computed > 400


BAD = [
    ({"arguments": {"y": ("x",), "x": ()}}, "'y' is computed from 'x', which does not come before"),
    ({"arguments": {"x": ("x",)}}, "'x' is computed from 'x'"),
    ({"required": ["z"]}, "required names 'z', which is not a value"),
    ({"required": "y z"}, "is one name, but several are expected"),
    ({"overwrites": {"z": ["o"]}}, "overwrites names 'z'"),
    ({"overwrites": {"y": ["o"]}}, "only minimal values are variables"),
    (
        {"arguments": {"x": (), "w": (), "y": ("x", "w")}, "overwrites": {"y": ["o"]}},
        "'y' is overwritten, but it is computed from 'x'; only",
    ),
    ({"overwrites": {"x": "out"}}, "'out' is one name"),
    ({"nbytes": {"x": -1}}, "nbytes of 'x' = -1"),
    ({"nbytes": {"x": 0.5}}, "nbytes of 'x' = 0.5"),
    ({"nbytes": {"z": 1}}, "nbytes names 'z'"),
    ({"unstorable": ["o"]}, "unstorable names 'o'"),
    ({"recompute": {"y": -1.0}}, "recompute of 'y'"),
    ({"recompute": {"y": float("nan")}}, "recompute of 'y'"),
    ({"recompute": {"y": "1"}}, "recompute of 'y'"),
    ({"recompute": {"o": 1.0}}, "recompute names 'o'"),
]


@pytest.mark.parametrize(("given", "message"), BAD)
def test_a_graph_that_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {"arguments": {"x": (), "y": ("x",)}, "required": ["x"]}
    with pytest.raises(BadInput, match=message):
        ValueGraph(**right | given)


def test_prices_are_checked() -> None:
    with pytest.raises(BadInput, match="cost of 1 bytes"):
        solve(figure_2(), cost=lambda _: -1.0)


FILE = """
required = ["cos a", "3 a**2"]
unstorable = ["a in z"]
recompute = {"cos a" = 1e-6, "3 a**2" = inf}

[arguments]
"a in y" = []
"cos a" = ["a in y"]
"a in z" = []
"3 a**2" = ["a in z"]

[overwrites]
"a in y" = ["a = 0"]
"a in z" = ["a = 0", "a = 1"]

[nbytes]
"a in y" = 8
"cos a" = 8
"a in z" = 8
"3 a**2" = 16
"""


def test_a_graph_is_read_from_text() -> None:
    assert ValueGraph(**tomllib.loads(FILE)) == ValueGraph(
        arguments={"a in y": (), "cos a": ("a in y",), "a in z": (), "3 a**2": ("a in z",)},
        required=["cos a", "3 a**2"],
        overwrites={"a in y": ["a = 0"], "a in z": ["a = 0", "a = 1"]},
        nbytes={"a in y": 8, "cos a": 8, "a in z": 8, "3 a**2": 16},
        recompute={"cos a": 1e-6, "3 a**2": inf},
        unstorable=["a in z"],
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arguments": {"u": []}, "nbytes": {"u": -3}}, "nbytes of 'u' = -3"),
        ({"arguments": {"u": "w"}}, "'w' is one name, but several are expected"),
        ({"arguments": {}, "required": ["w"]}, "required names 'w', which is not a value"),
    ],
)
def test_values_that_are_no_graph_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ValueGraph(**{"required": [], **given})
