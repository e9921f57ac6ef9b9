"""A strategy draws plain data: it neither plans nor simulates, so it never waits for a compiler.

Hypothesis gives up where a draw takes seconds. A test plans in its body, with what was drawn.
"""

import ast
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ckio
from ckio.planners.trivial import store_all

TESTS, PACKAGE = Path(__file__).parent, Path(ckio.__file__).parent

DRAWN: dict[str, tuple[Any, ...]] = {
    "backends.test_direct.splits": (100,),
    "ckio.testing.strategies.any_schedules": (),
    "ckio.testing.strategies.complete_schedules": (),
    "ckio.testing.strategies.legal_schedules": (),
    "ckio.testing.strategies.mutated_schedules": (),
    "ckio.testing.strategies.untidy_schedules": (),
    "planners.cases.chains": (),
    "planners.cases.platforms": (),
    "planners.test_overlap.traffics": (),
    "programs.test_random_programs.inputs": (),
    "programs.test_random_programs.sources": (),
    "schedule.test_texts_variables.flows": (),
    "schedule.test_texts_variables.named_chains": (),
    "schedule.test_texts_variables.steps": (),
    "sim.test_sweep.sweeps": (),
}
"""The strategies that are functions of `draw`, with arguments for them; the package's own, too."""

SLOW = tuple(
    str(PACKAGE / part)
    for part in ("planners", "sim/engine.py", "sim/overlapped", "sim/ranks", "runner")
)
"""Where the package plans, simulates and runs."""


def is_composite(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(mark, ast.Attribute) and mark.attr == "composite"
        for mark in function.decorator_list
    )


def test_every_strategy_of_the_tests_is_looked_at() -> None:
    found = {
        ".".join((*path.relative_to(TESTS).with_suffix("").parts, node.name))
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and is_composite(node)
    }
    assert found == {name for name in DRAWN if not name.startswith("ckio.")}


class Entered:
    """The functions of slow parts of the package that are entered while it is active."""

    def __init__(self) -> None:
        self.names = set[str]()
        self._before: Any = None

    def __enter__(self) -> "Entered":
        self._before = sys.getprofile()
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SLOW):
            self.names.add(frame.f_code.co_qualname)


@pytest.mark.parametrize("name", DRAWN)
def test_a_strategy_neither_plans_nor_simulates(name: str) -> None:
    module, _, function = name.rpartition(".")
    if not module.startswith("ckio."):
        module = f"{__package__}.{module}"
    strategy = getattr(import_module(module), function)(*DRAWN[name])

    @settings(max_examples=5, database=None)
    @given(st.data())
    def draws(data: st.DataObject) -> None:
        with Entered() as entered:
            data.draw(strategy)
        assert not entered.names

    draws()


def test_a_strategy_that_plans_is_noticed() -> None:
    from planners.cases import chains, platforms

    planned = st.builds(store_all, chains(most_steps=3), platforms())

    @settings(max_examples=1, database=None)
    @given(st.data())
    def draws(data: st.DataObject) -> None:
        with Entered() as entered:
            data.draw(planned)
        assert any("store_all" in name for name in entered.names)

    draws()
