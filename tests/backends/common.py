"""What the tests of several levels share."""

import os
import traceback
import tracemalloc
from collections.abc import Callable, Iterable

from ckio.actions import Field, Layout
from ckio.backends.base import Backend
from ckio.model import Array
from ckio.testing import buffers, x

OCEAN: Layout = (
    Field("zeta", "<f8", (3, 4), "1/s"),
    Field("psi", "<f4", (3, 5), "m²/s"),
    Field("time", "<f8", (), "s"),
)


def peak_of_a_turn(level: Backend, layout: Layout, arrays: Iterable[Array]) -> int:
    """Bytes that Python allocates to write, read and discard a checkpoint, once all is warm.

    The bytes that are read are compared with those that were written.
    """
    data = buffers(arrays)
    into = [memoryview(bytearray(view.nbytes)) for view in data]

    def turn() -> None:
        level.write(x(0), layout, data)
        level.read(x(0), into)
        level.discard(x(0))

    turn()
    tracemalloc.start()
    try:
        turn()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert into == data
    return peak


def in_child(body: Callable[[], None]) -> None:
    """Run `body` in a process of its own, whose limits and user it may change."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            body()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
