"""The code of docs/adapters/own_code.md, which is that of an example: checkpointed in place."""

import importlib
import re
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import EXAMPLES
from small_models import reverse_all

from ckio import Chain, Directory, Level, Platform, Ram, run, sizes_of
from ckio.actions import Buffers, Key, Kind, Layout
from ckio.adapters import registry
from ckio.model.gradient import check_gradient

PAGE = (Path(__file__).parents[2] / "docs" / "adapters" / "own_code.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:c|python|fortran)\n(.*?)```", PAGE, re.DOTALL)
NAMES = ("heat.c", "solver.py", "heat.py", "heat.f90")
FILES = {name: (EXAMPLES / "c_solver" / name).read_text(encoding="utf-8") for name in NAMES}
STEPS = 40

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def place(where: Path) -> Path:
    """A directory with the files of the example."""
    for name, text in FILES.items():
        (where / name).write_text(text)
    return where


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return place(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def makers(here: Path) -> Iterator[dict[str, Any]]:
    """The models of the page; importing them compiles the kernel."""
    sys.path.insert(0, str(here))
    modules = heat, solver = [importlib.import_module(name) for name in ("heat", "solver")]
    yield {"Heat": heat.Heat, "solver": solver.solver}
    sys.path.remove(str(here))
    for module in modules:
        del sys.modules[module.__name__]


BOTH = pytest.mark.parametrize("name", ["Heat", "solver"])


def reference(make: Any, steps: int = STEPS) -> Any:
    return reverse_all(make(), steps)


def machine(model: Any, **options: Any) -> tuple[Chain, Platform]:
    """Three checkpoints in memory and more on another level; seconds that suit the kernel."""
    chain = Chain(steps=STEPS, advance=1e-4, record=1e-4, reverse=2e-4, **sizes_of(model))
    levels = Level(name="ram", capacity=3 * chain.restart), Level(name="disk", **options)
    return chain, Platform(levels, working_memory=chain.tape)


def test_the_page_shows_parts_of_the_files_and_links_to_them() -> None:
    assert BLOCKS
    assert all(any(block in text for text in FILES.values()) for block in BLOCKS)
    assert all(f"(../../examples/c_solver/{name})" in PAGE for name in FILES)


def test_the_first_script_runs_as_it_stands_and_prints_what_the_page_says(tmp_path: Path) -> None:
    words = [sys.executable, "solver.py"]
    done = subprocess.run(words, cwd=place(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"```console\n$ python solver.py\n{done.stdout}```" in PAGE
    there = {path.name for path in tmp_path.iterdir()}
    assert there == {*FILES, "libheat.so"} | ({"__pycache__"} & there)


@BOTH
def test_the_gradient_is_right(makers: dict[str, Any], name: str) -> None:
    found = check_gradient(makers[name], STEPS, reference(makers[name]).gradient)
    assert found.verified, found.summary()


def test_both_are_the_same_computation(makers: dict[str, Any]) -> None:
    heat, solver = (reference(makers[name]) for name in ("Heat", "solver"))
    assert heat.functional == solver.functional
    for control in ("u", "k"):
        assert np.array_equal(heat.gradient[control], solver.gradient[control])


def address(view: memoryview) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data


class Watched(Ram):
    """A level that notes where the bytes lie that it is given, or is to fill."""

    def __init__(self) -> None:
        super().__init__()
        self.written: set[int] = set()
        self.read_into: set[int] = set()

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        if key.kind is Kind.RESTART:
            self.written.add(address(data[0]))
        return super().write(key, layout, data)

    def read(self, key: Key, into: Buffers, /) -> int:
        if key.kind is Kind.RESTART:
            self.read_into.add(address(into[0]))
        return super().read(key, into)


def test_a_level_gets_the_memory_of_the_library_itself(makers: dict[str, Any]) -> None:
    model = makers["solver"]()
    memory, chain = model.control["u"].ctypes.data, machine(model)[0]
    platform = Platform((Level(name="ram", capacity=3 * chain.restart),), chain.tape)
    level = Watched()
    run(registry.find("planners", "revolve")(chain, platform), platform, model, [level])
    assert level.written == {memory}
    assert memory not in level.read_into
    assert len(level.read_into) == 1


@BOTH
def test_a_checkpoint_is_written_and_read_in_no_memory_of_its_own(
    makers: dict[str, Any], tmp_path: Path, name: str
) -> None:
    model, key = makers[name](ny=512, nx=512), Key(Kind.RESTART, 0)
    layout, level = model.layout(key), Directory(tmp_path / "level")
    level.reserve({sizes_of(model)["restart"]: 1})
    before = model.dump(key)[0].tobytes()

    def there_and_back() -> None:
        level.write(key, layout, model.dump(key))
        with model.load(key, layout) as buffers:
            level.read(key, buffers)
        level.discard(key)

    there_and_back()  # what is made once
    tracemalloc.start()
    there_and_back()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(before) / 20
    assert model.dump(key)[0].tobytes() == before
    level.remove()


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="there is no Fortran compiler")
def test_the_same_in_fortran(makers: dict[str, Any], here: Path) -> None:
    library = here / "libheat_fortran.so"
    build = ["gfortran", "-O2", "-shared", "-fPIC", "-o", library, here / "heat.f90"]
    subprocess.run(build, check=True)

    def make() -> Any:
        return makers["Heat"](library=library)

    fortran, c = reference(make), reference(makers["Heat"])
    assert check_gradient(make, STEPS, fortran.gradient).verified
    assert np.allclose(fortran.gradient["u"], c.gradient["u"], rtol=1e-10, atol=0)
    assert fortran.functional == pytest.approx(c.functional, rel=1e-12)
