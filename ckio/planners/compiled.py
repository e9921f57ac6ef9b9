"""Compiled code: with numba, plans of a million steps take seconds.

numba takes a second to be loaded. Therefore a planner imports a module with kernels only when it
needs one; `import ckio` loads none of them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

from ckio.planners.base import log

_Function = TypeVar("_Function", bound=Callable[..., Any])

_WITH_KERNELS = ("ckio.planners.dp.recurrence",)
"""The modules with kernels that most planners need; `warm_up()` calls each kernel once."""

_prepared: set[tuple[str, ...]] = set()
"""The names of the modules that are prepared in this process."""


def prepare(*modules: str) -> None:
    """Compile the kernels of `modules`, or load them from the disk, before the next plan.

    The log says once in a process that compiled code is used. Each module has a function
    `warm_up()`. If no module is named, the kernels that most planners need are prepared. A second
    call does nothing.
    """
    modules = modules or _WITH_KERNELS
    if modules in _prepared:
        return
    import numba

    if not _prepared:
        log.info(
            "the planner uses compiled code (numba %s); the first plan on a machine compiles it,"
            " which takes up to a minute",
            numba.__version__,
        )
    for module in modules:
        import_module(module).warm_up()
    _prepared.add(modules)


def kernel(function: _Function, /) -> _Function:
    """Return the function compiled by numba, at its first call; the code is cached on the disk.

    The function works on numbers and arrays. Integers wrap on overflow, and no index is checked. It
    must not allocate an array: kernels pass tuples of arrays to one another in their inner loops.
    They are inlined, and numba's reference counting is off, because it would take ten times longer
    than the work itself.
    """
    return _compiled(function, {})


def inner_kernel(function: _Function, /) -> _Function:
    """Return a kernel that only other kernels call.

    It cannot be called from Python. The code that takes tuples of arrays from Python would need a
    third of the compile time.
    """
    return _compiled(function, {"no_cpython_wrapper": True, "no_cfunc_wrapper": True})


def _compiled(function: _Function, wrappers: dict[str, bool]) -> _Function:
    import numba

    options: dict[str, Any] = _ALWAYS | wrappers
    with _kept_by_version():
        try:
            return cast(_Function, numba.njit(cache=True, **options)(function))
        except RuntimeError:  # no directory can be written
            return cast(_Function, numba.njit(**options)(function))


_ALWAYS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "forceinline": True,
    "_nrt": False,  # numba does not document this option
}


@contextmanager
def _kept_by_version() -> Iterator[None]:
    """Make numba cache code in a directory whose name depends on the source of all kernels.

    Without this, numba would check the age of a kernel's own file, but not the age of the files of
    the kernels that are inlined in it. If this directory cannot be written, numba looks for another
    one.
    """
    import numba

    config: Any = numba.config  # numba creates its attributes from environment variables
    given = config.CACHE_DIR
    parent = Path(given) if given else Path(__file__).with_name("__pycache__")
    config.CACHE_DIR = str(parent / f"ckio-{version(Path(__file__).parent)}")
    try:
        yield
    finally:
        config.CACHE_DIR = given


@cache
def version(directory: Path, /) -> str:
    """Return a short hash of the source of all modules with kernels in a directory."""
    sources = [path.read_bytes() for path in sorted(directory.rglob("*.py"))]
    kernels = [source for source in sources if b"kernel\ndef " in source]
    return sha256(b"".join(kernels)).hexdigest()[:12]
