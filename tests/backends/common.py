"""What the tests of several levels share."""

import ctypes
import errno
import os
import traceback
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ckio.actions import Buffers, Field, Layout
from ckio.backends.base import Backend
from ckio.backends.files import Files
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
        except pytest.skip.Exception as reason:
            os.write(1, str(reason.msg).encode())
            status = _SKIPPED
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == _SKIPPED:
        pytest.skip("this machine does not let us; the output says what")
    assert status == 0


_SKIPPED = 77
_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER
_READ_ONLY, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 32, 4096, 16384, 1 << 18


def with_own_mounts(body: Callable[[], None]) -> None:
    """Run `body` in a child whose mounts nobody else sees, and which go away with it."""

    def alone() -> None:
        user, group = os.geteuid(), os.getegid()
        if user != 0:
            if _LIBC.unshare(_NEW_USERS | _NEW_MOUNTS):
                pytest.skip("users may not have mounts of their own here")
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {user} 1")
            Path("/proc/self/gid_map").write_text(f"0 {group} 1")
        elif _LIBC.unshare(_NEW_MOUNTS):
            pytest.skip("even root may not have mounts of its own here")
        _mount("none", Path("/"), "", _PRIVATE | _RECURSIVE, "")
        body()

    in_child(alone)


def mount_small(place: Path, options: str, /) -> None:
    """A file system in memory: "size=1m,nr_inodes=8", say."""
    _mount("tmpfs", place, "tmpfs", 0, options)


def make_read_only(place: Path, /) -> None:
    """Let nothing be made or removed under a directory, nor opened for writing, from now on."""
    _mount(str(place), place, "", _BIND, "")
    _mount(str(place), place, "", _BIND | _REMOUNT | _READ_ONLY, "")


def _mount(source: str, place: Path, kind: str, flags: int, options: str) -> None:
    texts = [text.encode() for text in (source, str(place), kind)]
    if _LIBC.mount(*texts, ctypes.c_ulong(flags), options.encode()):
        pytest.skip(f"mount {kind} on {place}: {os.strerror(ctypes.get_errno())}")


def use_up(place: Path, /) -> None:
    """Leave no space on a file system, whichever way it packs its bytes."""
    for size in (1 << 20, 4096):
        with (place / f"other-{size}").open("wb", buffering=0) as other, suppress(OSError):
            while other.write(os.urandom(size)):
                pass
            os.fsync(other.fileno())


class Struck(Files):
    """A system of which some calls fail once `left` of them are done; so many `times`, or ever."""

    def __init__(
        self, *calls: str, error: BaseException, left: int = 1 << 30, times: int = 1 << 30
    ) -> None:
        self.left, self.times, self._error = left, times, error
        for call in calls:
            setattr(self, call, partial(self._strike, getattr(super(), call)))

    def _strike(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left < 0 < self.times:
            self.times -= 1
            raise self._error
        return call(*given, **named)


BROKEN = OSError(errno.EIO, "Input/output error")


class Hasty(Files):
    """A system whose calls do less than they were asked to."""

    def pwritev(self, fd: int, data: Buffers, offset: int, /) -> int:
        return super().pwritev(fd, _some(data), offset)

    def preadv(self, fd: int, into: Buffers, offset: int, /) -> int:
        return super().preadv(fd, _some(into), offset)


def _some(data: Buffers) -> Buffers:
    views = [view for view in data if view.nbytes]
    return [views[0][: max(1, views[0].nbytes // 2)]]
