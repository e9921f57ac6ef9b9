"""Any system call of a level fails, or does half: the level says which, and holds what it held.

One workload, struck at its calls in turn with one fault each. Memory makes no such calls.
"""

import errno
import gc
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ckio.actions import Buffers, Key
from ckio.backends.base import Backend
from ckio.backends.files import Files
from ckio.errors import BadInput, LevelFull, MissingCheckpoint, StorageError
from ckio.testing import get, raw, t, x

from .workload import ANY_DURABILITY, KEYS, LARGE, SMALL, Kind, Step, bytes_of, do, held, kinds

CALLS = (
    *("open", "close", "make_directory", "rename", "unlink", "pwritev", "preadv"),
    *("sync", "sync_directory", "extend", "size", "cut", "occupied"),
)
"""What can be struck; `read` and `write` are made of these."""

ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EINTR)
"""EINTR: Python asks again by itself when it is real; a file system of users may return it."""

SHORT = ("half", "a byte", "nothing")

FULL = ("ENOSPC", "EDQUOT")

Fault = int | str

WORKLOAD = (
    Step("reserve", layout=SMALL),
    Step("write", x(0), SMALL, 1),
    Step("write", x(5), LARGE, 2),
    Step("read", x(0)),
    Step("discard", x(0)),
    Step("reopen"),
    Step("write", x(0), SMALL, 3),
    Step("read", x(5)),
    Step("discard", x(5)),
    Step("write", t(5), raw(20_000), 7),
    Step("reopen"),
)


@pytest.fixture(autouse=True)
def no_garbage() -> None:
    """Levels that other tests have left close their files now, and not while files are counted."""
    gc.collect()


class Faulty(Files):
    """A system in which some calls fail, by their number; it tells which, and how."""

    def __init__(self, strikes: Mapping[int, Fault]) -> None:
        self.calls: list[str] = []
        self.struck: list[str] = []
        self._strikes = strikes
        self._direct: set[int] = set()
        self._calm = False

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Calls that are not counted, and do not fail."""
        self._calm, before = True, self._calm
        yield
        self._calm = before

    def set_direct(self, fd: int, on: bool, /) -> None:
        super().set_direct(fd, on)
        self._direct ^= {fd}

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        """A call, unless it is struck."""
        perform = partial(getattr(Files, name), self)
        if self._calm:
            return perform(*args, **options)
        self.calls.append(name)
        match self._strikes.get(len(self.calls)):
            case int() as number:
                self.struck.append(f"{name}: {errno.errorcode[number]}")
                if name == "close":  # it is closed all the same
                    perform(*args)
                raise OSError(number, os.strerror(number))
            case str() as much if name == "pwritev" or (name == "preadv" and much != "nothing"):
                self.struck.append(f"{name}: {much}")
                fd, data, offset = args
                return perform(fd, _some(data, much, sectors=fd in self._direct), offset)
        return perform(*args, **options)


def _counted(name: str) -> Any:
    return lambda self, *args, **options: self.call(name, *args, **options)


for _name in CALLS:
    setattr(Faulty, _name, _counted(_name))


def _some(data: Buffers, much: str, *, sectors: bool) -> Buffers:
    """What a call takes that stops early; only whole sectors go past the page cache."""
    first = data[0]
    count = {"half": first.nbytes // 2, "a byte": min(1, first.nbytes), "nothing": 0}[much]
    return [first[: -(-count // 512) * 512 if sectors else count]]


def told(error: Exception, kind: Kind, root: Path, step: Step) -> None:
    """An error names the place; the key, if it is about one; and the bytes, if it is full."""
    message = str(error)
    assert str(kind.place(root)) in message
    if step.verb in ("write", "read", "discard"):
        assert str(step.key) in message
    if isinstance(error, LevelFull) and step.verb in ("write", "reserve"):
        assert re.search(r"\d+ bytes are needed, \d+ bytes are free", message)


@dataclass
class Struck:
    """The workload on a level whose system is faulty, and what is known of the level.

    It holds what is in `now`; what else its files may hold of a key, where even the way back
    failed, is in `unsure`. Of errors that said that it is full when it was not, or the other way
    round, `misnamed` is the number.
    """

    kind: Kind
    root: Path
    files: Faulty
    failures: list[Exception] = field(default_factory=list)
    now: dict[Key, bytes] = field(default_factory=dict)
    unsure: dict[Key, bytes | None] = field(default_factory=dict)
    misnamed: int = 0

    def run(self, *, again: bool, twice: bool) -> None:
        """Do all, each failed step `again`; `twice`: the way back may have failed too."""
        level = self._opened()
        for step in WORKLOAD:
            if step.verb == "reopen":
                self._tried(step, level.close)
                level = self._opened(unsure=twice)
            elif (step.verb in ("read", "discard")) == (step.key in self.now):
                done = self._do(level, step)
                self._compare(level)
                if not done and again:
                    with self.files.calm():
                        assert self._do(level, step)
                        self._compare(level)
        if not self._tried(Step("remove"), level.remove):  # type: ignore[attr-defined]
            with self.files.calm():
                # Some of its files may be gone.
                self.kind.open(self.root, self.files).remove()  # type: ignore[attr-defined]
        elif twice:  # what even the way back could not remove goes now
            with self.files.calm():
                self.kind.open(self.root, self.files).remove()  # type: ignore[attr-defined]
        assert list(self.root.iterdir()) == []

    def _do(self, level: Backend, step: Step) -> bool:
        before, after = self.now.get(step.key), bytes_of(step) if step.verb == "write" else None
        if step.verb == "read":
            data: list[bytes] = []
            done = self._tried(
                step, lambda: data.append(get(level, step.key, level.layout(step.key)))
            )
            assert data == [before] * done
            return done
        done = self._tried(step, lambda: do(level, step))
        if step.verb in ("write", "discard"):
            if done:
                self.unsure.pop(step.key, None)
                self._enter(step.key, after)
            else:
                self.unsure[step.key] = after
        return done

    def _enter(self, key: Key, data: bytes | None) -> None:
        self.now.pop(key, None)
        if data is not None:
            self.now[key] = data

    def _tried(self, step: Step, call: Callable[[], object]) -> bool:
        """Whether a step was done; if not, that was told as it should be."""
        struck = len(self.files.struck)
        try:
            call()
        except (StorageError, BadInput) as error:
            told(error, self.kind, self.root, step)
            causes = self.files.struck[struck:]
            full = bool(causes) and causes[0].endswith(FULL)
            self.failures.append(error)
            self.misnamed += step.verb in ("write", "reserve") and full is not (
                type(error) is LevelFull
            )
            return False
        return True

    def _opened(self, *, unsure: bool = False) -> Backend:
        """The level, opened again if need be, with what it must hold."""
        opened: list[Backend] = []
        step = Step("open")
        if not self._tried(step, lambda: opened.append(self.kind.open(self.root, self.files))):
            with self.files.calm():
                opened.append(self.kind.open(self.root, self.files))
        (level,) = opened
        with self.files.calm():
            there = held(level)
            for key in KEYS:
                known = {self.now.get(key)}
                assert there.get(key) in known | ({self.unsure.get(key)} if unsure else set())
            for key in set(KEYS) - set(there):
                with pytest.raises(MissingCheckpoint):
                    level.layout(key)
        self.now, self.unsure = there, {}
        return level

    def _compare(self, level: Backend) -> None:
        with self.files.calm():
            assert held(level) == self.now


def struck(
    kind: Kind, memory: Path, strikes: Mapping[int, Fault], *, again: bool = True
) -> tuple[int, list[Exception]]:
    """The calls that the workload makes, and the errors it raises, when these calls are struck."""
    files, root = Faulty(strikes), memory / "root"
    root.mkdir()
    before = _descriptors()
    run = Struck(kind, root, files)
    try:
        run.run(again=again, twice=len(strikes) > 1)
        assert _descriptors() == before
        assert run.misnamed == 0 or len(strikes) > 1
        assert len(run.failures) <= len(strikes)
    except Exception as error:
        raise AssertionError(f"{kind}, {strikes} {files.struck}: {error!r}") from error
    root.rmdir()
    return len(files.calls), run.failures


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


ALL = pytest.mark.parametrize("kind", kinds(*ANY_DURABILITY), ids=str)


@pytest.mark.campaign
@ALL
def test_a_call_may_fail(kind: Kind, memory: Path) -> None:
    calls, _ = struck(kind, memory, {})
    raised, tried = 0, range(1, calls + 1, 7 if kind.compressed else 2)
    for number in tried:
        fault = (*ERRORS, *SHORT)[number % 9]
        raised += len(struck(kind, memory, {number: fault}, again=number % 4 == 1)[1])
    assert raised > len(tried) // 4


@pytest.mark.campaign
@ALL
def test_the_way_back_may_fail_too(kind: Kind, memory: Path) -> None:
    calls, _ = struck(kind, memory, {})
    for number in range(1, calls + 1, 11 if kind.compressed else 5):
        struck(kind, memory, {number: errno.EIO, number + 1: errno.EIO}, again=number % 2 == 0)
