"""A level that stores each checkpoint in a separate file."""

import errno
import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import xxhash

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.backends.base import Backend
from ckio.backends.contents import Damaged, Stored
from ckio.backends.forms import Form, form_from, form_of
from ckio.backends.ledger import Entry, Ledger
from ckio.backends.runid import NOBODY, RunId
from ckio.errors import CorruptCheckpoint, LevelFull, LevelInUse, StorageError

SUFFIX = ".checkpoint"


class OneFileEach(Backend):
    """Each file has one line of description, then the bytes; it is renamed when it is complete.

    Parameters
    ----------
    path
        A directory, which is created if it does not exist.
    capacity
        The most bytes of checkpoints that it may store; None is unlimited.
    run
        The run that it is opened for.
    """

    durable = True

    def __init__(
        self, path: str | Path, *, capacity: int | None = None, run: RunId = NOBODY
    ) -> None:
        self._place, self._run = Path(path), run
        self._place.mkdir(parents=True, exist_ok=True)
        self._folder = os.open(self._place, os.O_RDONLY)
        self._ledger: Ledger[Path] = Ledger(f"level {self._place}", capacity)
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._register()
        except BaseException as error:
            os.close(self._folder)
            if isinstance(error, BlockingIOError):
                raise LevelInUse(f"level {self._place} is in use by another process") from None
            raise

    def _register(self) -> None:
        """Register stored checkpoints, and remove files that were never completed."""
        for path in self._place.glob("*.new"):
            path.unlink()
        for item in self.contents(self._place):
            match item:
                case Stored(key=key, path=path, digest=digest):
                    self._run.check(RunId(item.run or ""), str(self._place))
                    self._ledger.enter(key, Entry(form_of(item.layout), path, digest))
                case Damaged(path=path, what=what):
                    self._ledger.damaged.append(f"{path}: {what}")

    # The seven methods of every backend

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ledger.check_reservation(sizes)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        form = self._ledger.admit(key, layout, data)
        digest = _digest(data)
        path = self._place / f"{xxhash.xxh3_64_hexdigest(str(key).encode())}{SUFFIX}"
        draft = path.with_suffix(".new")
        try:
            with draft.open("wb") as file:
                file.writelines([_head(key, form, digest, self._run), *data])
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            os.fsync(self._folder)
        except OSError as error:
            draft.unlink(missing_ok=True)
            kind = LevelFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StorageError
            raise kind(f"level {self._place} cannot take {key}: {error.strerror}") from error
        self._ledger.enter(key, Entry(form, path, digest))
        return form.nbytes

    def layout(self, key: Key, /) -> Layout:
        return self._ledger.find(key).form.layout

    def read(self, key: Key, into: Buffers, /) -> int:
        entry = self._ledger.find_for(key, into, verify=True)
        with entry.place.open("rb") as file:
            file.readline()
            whole = all(file.readinto(view) == view.nbytes for view in into)
        if not whole or _digest(into) != entry.digest:
            raise CorruptCheckpoint(f"{key} in {entry.place} fails its checksum")
        return entry.form.nbytes

    def discard(self, key: Key, /) -> None:
        self._ledger.find(key).place.unlink()
        self._ledger.strike(key)

    def keys(self) -> list[Key]:
        return self._ledger.keys()

    def close(self) -> None:
        if self._folder >= 0:
            self._ledger.close()
            os.close(self._folder)  # this also releases the lock
            self._folder = -1

    # For `ckio run`: the files of each run, to be inspected and removed

    @staticmethod
    def for_run(path: Path, run: str, /) -> Path:
        return path / run

    @staticmethod
    def contents(path: str | Path, /) -> list[Stored | Damaged]:
        return list(map(_listed, sorted(Path(path).glob(f"*{SUFFIX}"))))

    def remove(self) -> None:
        if self._folder >= 0:
            for path in self._place.glob(f"*{SUFFIX}"):
                path.unlink()
            with suppress(OSError):  # other files in it stay
                self._place.rmdir()
        self.close()


def _head(key: Key, form: Form, digest: bytes, run: RunId) -> bytes:
    """Return the first line of a file: its checksum, and the description of the checkpoint."""
    entries = [key.kind.value, key.step, key.name, form.text.decode(), digest.hex(), run.text]
    text = json.dumps(entries).encode()
    return xxhash.xxh3_64_hexdigest(text).encode() + text + b"\n"


def _listed(path: Path) -> Stored | Damaged:
    """Return what the first line of a file describes."""
    with path.open("rb") as file:
        line = file.readline()
        nbytes = os.fstat(file.fileno()).st_size
        written = os.fstat(file.fileno()).st_mtime
    seal, text = line[:16], line[16:-1]
    if xxhash.xxh3_64_hexdigest(text).encode() != seal:
        return Damaged(path=path, offset=0, nbytes=nbytes, what="its first line is damaged")
    kind, step, name, layout, digest, run = json.loads(text)
    return Stored(
        key=Key(Kind(kind), step, name),
        layout=form_from(layout.encode()).layout,
        path=path,
        spans=((len(line), nbytes - len(line)),),
        written=written,
        digest=bytes.fromhex(digest),
        run=run,
    )


def _digest(data: Buffers) -> bytes:
    state = xxhash.xxh3_128()
    for view in data:
        state.update(view)
    return state.digest()
