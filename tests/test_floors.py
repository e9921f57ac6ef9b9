"""The house stands: modules import from lower floors or their own; `import ckio` stays light."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import ckio

ROOT = Path(ckio.__file__).parent

FLOORS = (
    "errors actions clock memory spelling wholefile",
    "columns checks carried perstep flows variables derived chain costs prices spreads profile"
    " platforms platformtext timeline overlap caching comm layout arrays raster",
    "machine versions held schedule replay texts papertext occupancy traffic",
    "planners analysis recover backends compression model arraymodel registers checkpoints"
    " pipeline gradient team",
    "sim runner remaining render report page pictures trace calibrate programs",
    "registry jobs testing cli adapters models __main__",
)
"""Modules and packages of ckio by floor, the lowest first."""

FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names.split()}

FORBIDDEN = {
    "planners": "backends compression model arraymodel pipeline gradient",
    "backends": "schedule machine replay texts papertext planners recover",
    "compression": "schedule machine replay planners",
    "sim": "runner jobs backends model",
    "runner": "sim planners",
}
"""What may not be imported although its floor would allow it."""

ROOMS = {
    "h5py": {"backends", "adapters", "jobs"},
    "simpy": {"sim"},
    "zstandard": {"compression"},
    "blosc2": {"compression"},
    "zfpy": {"compression"},
    "scipy": {"models", "calibrate", "analysis", "planners"},
    "click": {"cli"},
    "rich": {"jobs"},
    "numba": {"planners"},
    "jax": {"analysis", "programs", "adapters"},
    "torch": {"adapters"},
    "mpi4py": {"adapters"},
    "pyadjoint": {"adapters"},
    "checkpoint_schedules": {"adapters"},
    "pyrevolve": {"adapters"},
    "pytest": {"testing"},
    "hypothesis": {"testing"},
}
"""Who may import a heavy library."""


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def top(path: Path) -> str:
    """The module or package directly under ckio that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> set[str]:
    """Full names of what a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=str(module), names=aliases):
                names |= {f"{module}.{alias.name}" for alias in aliases}
            case ast.ImportFrom():
                names.add("a relative import")
    return names


def own(path: Path) -> set[str]:
    """The modules and packages of ckio that a file imports."""
    parts = (name.split(".") for name in imported(path))
    return {name[1] for name in parts if name[0] == "ckio" and name[1:] != ["__version__"]}


def of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", modules(), ids=of)
def test_a_module_imports_only_from_lower_floors_or_its_own(path: Path) -> None:
    assert top(path) in FLOOR, f"give {top(path)} a floor in docs/house.md and here"
    assert "a relative import" not in imported(path)
    higher = {name for name in own(path) if FLOOR[name] > FLOOR[top(path)]}
    assert higher == set()


@pytest.mark.parametrize("path", modules(), ids=of)
def test_some_neighbours_never_meet(path: Path) -> None:
    assert own(path) & set(FORBIDDEN.get(top(path), "").split()) == set()


@pytest.mark.parametrize("path", modules(), ids=of)
def test_a_heavy_library_is_imported_by_its_own_room(path: Path) -> None:
    libraries = {name.split(".")[0] for name in imported(path)}
    assert {name for name in libraries & set(ROOMS) if top(path) not in ROOMS[name]} == set()


def test_the_bytes_of_a_level_are_known_to_its_backend_alone() -> None:
    inside = re.compile(r"ckio\.backends\.(directory|hdf5)\.[a-z]")
    others = [path for path in modules() if top(path) != "backends"]
    assert [of(path) for path in others if any(map(inside.match, imported(path)))] == []


def test_the_words_need_the_standard_library_alone() -> None:
    for name in FLOORS[0].split():
        libraries = {library.split(".")[0] for library in imported(ROOT / f"{name}.py")}
        assert libraries <= {"ckio", *sys.stdlib_module_names}


def loaded(statement: str) -> set[str]:
    """The libraries that a fresh interpreter has loaded after this statement."""
    script = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_ckio_loads_no_heavy_library() -> None:
    libraries = loaded("import ckio")
    assert "ckio" in libraries
    assert libraries & set(ROOMS) == set()


def test_a_function_is_not_hidden_by_the_room_that_it_is_in() -> None:
    for name in ckio.__all__:
        assert not isinstance(getattr(ckio, name), type(sys)), name


def test_the_test_of_loading_sees_a_library_that_is_loaded() -> None:
    assert "simpy" in loaded("import simpy")
