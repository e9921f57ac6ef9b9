"""Packages import from lower layers alone, and `import ckio` stays light."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import ckio

ROOT = Path(ckio.__file__).parent
DOCS = ROOT.parent / "docs"
PAGE = DOCS / "architecture.md"

LAYERS = (
    "errors",
    "actions compression",
    "platform",
    "schedule model backends",
    "overlap parallel",
    "planners runner",
    "analysis",
    "calibrate adapters",
    "sim programs models",
    "report",
    "jobs",
    "cli testing",
    "__main__",
)
"""Packages and modules directly under ckio, the lowest layer first."""

LAYER = {name: number for number, names in enumerate(LAYERS) for name in names.split()}

FORBIDDEN = {
    "planners": "backends compression model parallel",
    "model": "backends",
    "backends": "schedule",
    "sim": "backends model parallel runner",
    "report": "sim runner backends model adapters",
    "jobs": "testing",
    "cli": "testing",
}
"""Packages that may not be imported although they lie in a lower layer."""

HEAVY = {
    "h5py": {"backends", "adapters", "jobs"},
    "simpy": {"sim"},
    "zstandard": {"compression"},
    "blosc2": {"compression"},
    "zfpy": {"compression"},
    "scipy": {"models", "calibrate", "analysis", "planners", "jobs"},
    "click": {"cli"},
    "rich": {"jobs"},
    "matplotlib": {"report"},
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
"""Heavy libraries, and the packages that may import them."""


KNOWN_TO_BACKENDS = re.compile(r"ckio\.backends\.(directory|hdf5)\.[a-z]")
"""The bytes of a level."""
BACKENDS = {ROOT / "backends"}


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def top(path: Path) -> str:
    """The module or package directly under ckio that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements in a file, without their expressions, which are most of it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield child
            yield from statements(child)


@cache
def imported(path: Path) -> set[str]:
    """Full names of what a file imports, wherever in it."""
    names: set[str] = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
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


def violations(path: Path) -> Iterator[str]:
    """Yield a sentence for each rule that the imports of a file break."""
    package = top(path)
    if package not in LAYER:
        yield f"{of(path)}: give {package} a layer in docs/architecture.md and here"
        return
    if "a relative import" in imported(path):
        yield f"{of(path)} imports relatively"
    for name in sorted(own(path) - {package}):
        if LAYER[name] >= LAYER[package]:
            yield f"{of(path)} imports {name}, which is no lower layer"
        if name in FORBIDDEN.get(package, "").split():
            yield f"{of(path)} imports {name}, which {package} may not"
    for library in sorted({name.split(".")[0] for name in imported(path)} & set(HEAVY)):
        if package not in HEAVY[library]:
            yield f"{of(path)} imports {library}, which is kept in {sorted(HEAVY[library])}"
    if not BACKENDS & set(path.parents) and any(map(KNOWN_TO_BACKENDS.match, imported(path))):
        yield f"{of(path)} imports the bytes of a level, which its backend alone knows"


def test_layers() -> None:
    """Packages import from lower layers alone, and keep heavy libraries and bytes to themselves."""
    broken = [sentence for path in modules() for sentence in violations(path)]
    assert not broken, "\n".join(broken)
    assert {top(path) for path in modules()} == set(LAYER)


def test_what_is_imported_first_needs_the_standard_library_alone() -> None:
    for name in ("errors.py", "cli/__init__.py"):
        libraries = {library.split(".")[0] for library in imported(ROOT / name)}
        assert libraries <= {"ckio", *sys.stdlib_module_names}


def test_the_page_lists_the_packages_in_the_order_of_their_layers() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Packages")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d*) *\| `(\w+)` \|", text, re.MULTILINE)
    starts = [int(number) for number, _ in rows if number]
    assert starts == list(range(1, len(LAYERS) + 1))
    assert [name for _, name in rows] == " ".join(LAYERS).split()
    firsts = [names.split()[0] for names in LAYERS]
    assert [name for number, name in rows if number] == firsts


def flows() -> ModuleType:
    """The program that writes the lists of entered files into the page."""
    spec = importlib.util.spec_from_file_location("site_flows", DOCS / "_site" / "flows.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.campaign
@pytest.mark.parametrize("heading", flows().FLOWS)
def test_the_page_lists_the_files_that_a_call_enters(heading: str) -> None:
    files = flows().entered(flows().FLOWS[heading])
    text = PAGE.read_text(encoding="utf-8").partition(f"### `{heading}`\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)
    on_page = {
        f"{package}/{module}".removesuffix("/__init__")
        for package, modules in rows
        for module in modules.replace("`", "").split()
    }
    expected = {file.removesuffix(".py").removesuffix("/__init__") for file in files}
    assert on_page == expected, "run `python docs/_site/flows.py`, which writes the lists anew"


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
    assert libraries & set(HEAVY) == set()
    assert "simpy" in loaded("import simpy")  # the test sees a library that is loaded


def test_a_function_is_not_hidden_by_a_module_of_its_name() -> None:
    for name in ckio.__all__:
        assert not isinstance(getattr(ckio, name), ModuleType), name
