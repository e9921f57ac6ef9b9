"""Which files are not collected: adapters of frameworks that are not installed here.

And what all processes of the tests share: the bytecode of ckio, and the compiled code of planners.
"""

import compileall
import gc
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

# Each process of numpy would start a thread of linear algebra for each core, and wait in it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_NEEDED = {
    "checkpoint_schedules": ["checkpoint_schedules"],
    "jax": ["jax"],
    "pyadjoint": ["pyadjoint", "checkpoint_schedules"],
    "pyrevolve": ["pyrevolve"],
    "torch": ["torch"],
}
"""What each adapter imports; others import theirs when they are used."""

collect_ignore_glob = [
    f"ckio/adapters/{adapter}{where}"
    for adapter, needed in _NEEDED.items()
    if not all(map(find_spec, needed))
    for where in ("/*", ".py")
]
collect_ignore_glob.append("docs/_site/write.py")  # a script beside its modules
collect_ignore_glob.append("bench/peers/petsc_peer.py")  # a script that needs petsc4py
collect_ignore_glob.append("bench/upstream/*")  # scripts that need what they report on


_PREPARE = "import gc, sys; from ckio.planners.compiled import prepare; gc.disable(); "
_TABLES = _PREPARE + "prepare('ckio.planners.dp.recurrence')"
_OVERLAP = (
    _PREPARE
    + "prepare('ckio.planners.overlap.engine'); sys.stdin.read(); prepare('ckio.planners.overlap')"
)
_preparing: list[subprocess.Popen[bytes]] = []
"""Compile kernels while the workers of xdist collect the tests.

The planner with overlap needs all kernels. Its process compiles those of the engine, waits until
the other process has ended, and then compiles only the rest.
"""


def pytest_configure(config: pytest.Config) -> None:
    """Compile ckio once: where nothing compiled is kept, every process would do it."""
    compileall.compile_dir(Path(__file__).with_name("ckio"), quiet=2)
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        tables = subprocess.Popen([sys.executable, "-c", _TABLES], stdout=subprocess.PIPE)
        overlap = subprocess.Popen([sys.executable, "-c", _OVERLAP], stdin=tables.stdout)
        assert tables.stdout is not None
        tables.stdout.close()
        _preparing.extend((tables, overlap))
    else:
        gc.disable()  # until all tests are collected


def pytest_collection_finish() -> None:
    """Spare the garbage collector what collecting has made: it remains until the end."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Spare it what the tests of each file leave behind, too: compiled code, and what is cached.

    An error that says that a level is in use comes after a full collection, and there are many.
    """
    result = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Import the tests of a directory, where each worker of xdist begins with another one.

    In a fresh clone, most of the time of collecting is the compilation of assertions. A worker
    keeps the bytecode, and does not compile what another one has compiled before.
    """
    report = yield
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1 and isinstance(collector, pytest.Directory) and report.passed:
        modules = [node for node in report.result if isinstance(node, pytest.Module)]
        number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        first = number * len(modules) // workers
        for module in modules[first:] + modules[:first]:
            with suppress(Exception, pytest.skip.Exception):  # whoever collects it reports this
                _ = module.obj
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished() -> None:
    """Begin with the tests when all kernels are compiled: each is compiled by one process."""
    while _preparing:
        _preparing.pop().wait()


def pytest_unconfigure() -> None:
    """Leave no process behind where the tests never began."""
    pytest_xdist_node_collection_finished()
