"""The use of numba: what is compiled, and when."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

from ckio.planners import compiled
from ckio.planners.dp import certificates, hrevolve, hulls, min_plus

from .cases import chain, platform

MACHINE = platform((2, 1, 1), (9, 5, 5))


def in_a_fresh_interpreter(*lines: str) -> list[str]:
    """What these lines print, and log, in an interpreter that has loaded nothing."""
    script = "\n".join(
        (
            "import logging, sys",
            "logging.basicConfig(level=logging.INFO, format='%(message)s', stream=sys.stdout)",
            *lines,
        )
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


PLAN = (
    "from ckio import Chain, Level, Platform",
    "from ckio.planners import hrevolve",
    "def plan(steps):",
    "    chain = Chain(steps=steps, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)",
    "    return len(hrevolve(chain, Platform((Level(name='ram', capacity=3),))))",
)
"""On one level that takes no time, with three slots."""

ORDER = "hrevolve: levels in the order ram, of 1 tried"


def test_a_short_chain_is_planned_without_loading_numba() -> None:
    found = in_a_fresh_interpreter(*PLAN, "print(plan(2001) > 4000, 'numba' in sys.modules)")
    assert found == [ORDER, "True False"]


def test_two_levels_with_tapes_are_planned_without_loading_numba() -> None:
    lines = (
        "from ckio import Affine, Chain, Level, Platform",
        "from ckio.planners import auto",
        "disk = Level(name='disk', capacity=30, write=Affine(3), read=Affine(2))",
        "node = Platform((Level(name='ram', capacity=12), disk), working_memory=2)",
        "chain = Chain(steps=500, advance=1, record=1, reverse=2, restart=3, tape=2, adjoint=1)",
        "print(len(auto(chain, node)) > 1000, 'numba' in sys.modules)",
    )
    assert in_a_fresh_interpreter(*lines)[-1] == "True False"


def test_that_code_is_compiled_is_said_once() -> None:
    long = "print(plan(20_000) > 40_000)"
    found = in_a_fresh_interpreter(*PLAN, long, long)
    expected = f"the planner uses compiled code (numba {numba.__version__})"
    assert found[0].startswith(expected)
    assert found[1:] == [ORDER, "True", ORDER, "True"]


def kernels() -> dict[str, list[Any]]:
    """The signatures that each kernel has been compiled for."""
    modules = (hulls, certificates, min_plus)
    found = {
        f"{module.__name__}.{name}": function.signatures
        for module in modules
        for name, function in vars(module).items()
        if hasattr(function, "py_func") and function.__module__ == module.__name__
    }
    assert len(found) > 15
    return found


def test_prepared_code_is_not_compiled_again_for_a_plan() -> None:
    compiled.prepare()
    before = {name: list(signatures) for name, signatures in kernels().items()}
    assert before["ckio.planners.dp.min_plus._solve"]
    hrevolve(chain(3000), MACHINE)
    assert kernels() == before


def test_an_inner_kernel_is_called_by_kernels_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    @compiled.inner_kernel
    def inner(pair: tuple[int, int], number: int) -> int:
        return pair[0] + pair[1] * number

    @compiled.kernel
    def outer(number: int) -> int:
        return inner((1, number), 2) + inner((2, 3), 4) + inner((number, number), number)

    assert outer(5) == 11 + 14 + 30


def test_without_a_place_for_it_code_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real, given = numba.njit, []

    def njit(**options: Any) -> Any:
        if "cache" in options:
            raise RuntimeError("refused")
        given.append(options["_nrt"])
        return real(**options)

    monkeypatch.setattr(numba, "njit", njit)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    @compiled.kernel
    def twice(number: int) -> int:
        return 2 * number

    assert given == [False]
    assert twice(21) == 42
    assert Path(numba.config.CACHE_DIR) == tmp_path


def test_code_is_kept_by_the_version_of_all_kernels(tmp_path: Path) -> None:
    def version() -> str:
        compiled.version.cache_clear()
        return compiled.version(tmp_path)

    (tmp_path / "first.py").write_text("@kernel\ndef f(): ...")
    (tmp_path / "other.py").write_text("def g(): ...")
    before = version()
    (tmp_path / "other.py").write_text("def g(x): ...")
    assert version() == before
    (tmp_path / "second.py").write_text("@kernel\ndef h(): ...")
    assert version() != before


KERNELS = """
calls = []
def warm_up():
    calls.append(1)
"""


def test_kernels_are_prepared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(compiled, "_prepared", set())
    for name in ("first_kernels", "other_kernels"):
        (tmp_path / f"{name}.py").write_text(KERNELS)
    for modules in (("first_kernels",), ("first_kernels",), ("other_kernels",)):
        compiled.prepare(*modules)
    for name in ("first_kernels", "other_kernels"):
        assert sys.modules[name].calls == [1]
