"""What plain h5py reads of an archive, in a process that has never heard of ckio."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ckio.actions import Key, Kind, Layout

_SCRIPT = """
import hashlib, json, sys
import h5py, numpy as np

def stored(path):
    found = []
    with h5py.File(path) as file:
        for group in (file[name] for name in file if name != "README"):
            keys = group["keys"][:]
            names = [name for name in group if name != "keys"]
            for slot in np.flatnonzero(keys["state"] == b"stored").tolist():
                fields = {}
                for name in names:
                    array = group[name][slot]
                    digest = hashlib.sha256(array.tobytes()).hexdigest()
                    fields[name] = [array.dtype.str, list(array.shape), digest]
                found.append([keys["kind"][slot].decode(), int(keys["step"][slot]), fields])
    return found

for line in sys.stdin:
    try:
        found = stored(json.loads(line))
    except (OSError, KeyError, RuntimeError):
        found = None
    print(json.dumps(found), flush=True)
"""

Seen = dict[str, list[Any]]
"""Of each field: its dtype, its shape, and a digest of its bytes."""


class Reader:
    """A process with h5py, for many files."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def stored(self, path: Path) -> dict[Key, Seen] | None:
        """Every slot of an archive that says that it is stored; None if h5py cannot read it."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(str(path)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if json.loads(answer) is None:
            return None
        found = {Key(Kind[kind.upper()], step): it for kind, step, it in json.loads(answer)}
        assert len(found) == len(json.loads(answer))
        return found


@contextmanager
def reader() -> Iterator[Reader]:
    """Yield a process that reads with h5py alone."""
    argv = [sys.executable, "-c", _SCRIPT]
    with subprocess.Popen(argv, stdin=-1, stdout=-1, text=True) as process:
        try:
            yield Reader(process)
        finally:
            assert process.stdin
            process.stdin.close()


def as_seen(layout: Layout, data: Iterable[bytes | memoryview]) -> Seen:
    """How a checkpoint must be seen."""
    seen: Seen = {}
    for field, view in zip(layout, data, strict=True):
        dtype = np.dtype(field.dtype)
        if 0 not in field.shape:
            shape = [*field.shape, *dtype.shape]
            seen[field.name] = [dtype.base.str, shape, hashlib.sha256(view).hexdigest()]
    return seen
