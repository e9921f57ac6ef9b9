"""The use of numba: what makes plans of a million steps a matter of seconds.

Modules with kernels need numba (`pip install ckio[fast]`), so whoever plans with them asks
`available` first and imports them only then; `import ckio` loads none of them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar, cast

from ckio.planners.base import log

_Function = TypeVar("_Function", bound=Callable[..., Any])

_WITH_KERNELS = ("ckio.planners.dp.pieces",)
"""Modules whose `warm_up()` calls each of their kernels once, and which most planners need."""

_taken: dict[tuple[str, ...], float] = {}
"""The seconds that the kernels of such modules took in this process."""


@cache
def available() -> bool:
    """Return whether numba can be imported."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


@cache
def announce() -> None:
    """Say once that kernels are used; whoever uses them calls this."""
    import numba

    log.info(
        "planning with compiled code (numba %s); it is compiled once on each machine, which takes"
        " up to a minute",
        numba.__version__,
    )


def prepare(*modules: str) -> None:
    """Compile kernels, or load them from the disk, so that the next plan takes its own time.

    Of these modules, which have a `warm_up()`; if none are named, of those that most planners need.
    Does nothing the second time, nor without numba.
    """
    modules = modules or _WITH_KERNELS
    if modules in _taken or not available():
        return
    start = perf_counter()
    announce()
    for module in modules:
        import_module(module).warm_up()
    _taken[modules] = perf_counter() - start


def seconds_of_loading() -> float:
    """Return the seconds that `prepare` took in this process; 0 if nothing has asked for it."""
    return sum(_taken.values())


def kernel(function: _Function, /) -> _Function:
    """A function on numbers and arrays, compiled when it is first called and kept on the disk.

    Integers wrap, and nothing is checked in it. It makes no array: kernels hand tuples of arrays
    to one another in their inner loops, and are inlined and spared numba's counting of references,
    which would take ten times as long as the work.
    """
    import numba

    with _kept_by_version():
        for more in _WAYS:
            try:
                options: dict[str, Any] = _ALWAYS | more
                return cast(_Function, numba.njit(**options)(function))
            except (RuntimeError, KeyError):
                continue
    raise AssertionError("numba takes functions without options")


_ALWAYS = {"nogil": True, "error_model": "numpy", "forceinline": True}
_WAYS: tuple[dict[str, bool], ...] = (
    {"cache": True, "_nrt": False},
    {"cache": False, "_nrt": False},  # RuntimeError: no directory can be written
    {"cache": True},  # KeyError: numba does not document `_nrt`, and may drop it
    {},
)


@contextmanager
def _kept_by_version() -> Iterator[None]:
    """Have numba keep code in a directory that belongs to the kernels as they are now.

    It looks at the age of the file of a kernel by itself, but not of the kernels that are inlined
    there. Where this directory cannot be written, numba looks for another one.
    """
    import numba

    config: Any = numba.config  # its names are made from those in the environment
    given = config.CACHE_DIR
    parent = Path(given) if given else Path(__file__).with_name("__pycache__")
    config.CACHE_DIR = str(parent / f"ckio-{version(Path(__file__).parent)}")
    try:
        yield
    finally:
        config.CACHE_DIR = given


@cache
def version(directory: Path, /) -> str:
    """A short name for all modules with kernels in a directory."""
    sources = [path.read_bytes() for path in sorted(directory.rglob("*.py"))]
    return sha256(b"".join(source for source in sources if b"@kernel" in source)).hexdigest()[:12]
