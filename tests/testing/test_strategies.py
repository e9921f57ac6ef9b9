"""What is for everybody's tests: strategies never wait for a compiler, and fakes need no pytest.

Hypothesis gives up where a draw takes seconds, so a strategy draws plain data: it neither plans nor
simulates. A test plans in its body, with what was drawn.
"""

import ast
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import drawing
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ckio.testing
from ckio.planners.trivial import store_all

TESTS, PACKAGE = Path(__file__).parents[1], Path(ckio.__file__).parent

ARGUMENTS: dict[str, tuple[Any, ...]] = {"splits": (100,)}
"""What strategies are called with that need to be told something."""

SLOW = tuple(
    str(PACKAGE / part)
    for part in ("planners", "sim/engine.py", "sim/overlapped", "sim/ranks", "runner")
)
"""Where the package plans, simulates and runs."""


PUBLIC = [name for name in vars(drawing) if name.endswith("_schedules")]


def composites() -> list[str]:
    """The strategies of the tests that are functions of `draw`."""
    return [
        ".".join(("tests", *path.relative_to(TESTS).with_suffix("").parts, node.name))
        for path in sorted({*TESTS.rglob("*.py")} - {TESTS / "drawing.py"})
        if "st.composite" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
        and any("st.composite" in ast.unparse(mark) for mark in node.decorator_list)
    ]


def entered(draw: Callable[[], object]) -> set[str]:
    """The functions of slow parts of the package that a draw enters."""
    names = set[str]()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SLOW):
            names.add(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        draw()
    finally:
        sys.setprofile(before)
    return names


def drawn(strategy: st.SearchStrategy[Any], *, examples: int) -> set[str]:
    """What is entered while a strategy draws."""
    names = set[str]()

    @settings(max_examples=examples, database=None)
    @given(st.data())
    def draws(data: st.DataObject) -> None:
        names.update(entered(lambda: data.draw(strategy)))

    draws()
    return names


@pytest.mark.parametrize("name", [*composites(), *(f"drawing.{name}" for name in PUBLIC)])
def test_a_strategy_neither_plans_nor_simulates(name: str) -> None:
    module, _, function = name.rpartition(".")
    strategy = getattr(import_module(module), function)(*ARGUMENTS.get(function, ()))
    assert drawn(strategy, examples=5) == set()


def test_a_strategy_that_plans_is_noticed() -> None:
    from tests.planners.cases import chains, platforms

    planned = st.builds(store_all, chains(most_steps=3), platforms())
    assert any("store_all" in name for name in drawn(planned, examples=1))


def test_the_fakes_need_neither_pytest_nor_hypothesis() -> None:
    script = """
import sys
sys.modules["pytest"] = sys.modules["hypothesis"] = None  # as if they were not installed
from ckio.testing import CountingModel, Throttled, VirtualClock, get, put, raw
try:
    from ckio.testing import BackendTests
except ImportError:
    print("no suite")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "no suite\n"


def test_everything_it_names_is_there() -> None:
    names = ckio.testing.__all__
    assert [name for name in names if not getattr(ckio.testing, name, None)] == []
