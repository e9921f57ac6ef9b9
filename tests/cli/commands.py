"""The command as a user runs it, and what is true of every answer and of every error."""

import importlib
import io
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from ckio.cli import console
from ckio.cli.entry import COMMANDS, main
from ckio.planners import compiled

CKIO = Path(sys.executable).with_name("ckio")
"""The installed command; a test that needs no process of its own takes `ckio` instead."""

LASTING = (sys.prefix, sys.base_prefix, str(Path(importlib.import_module("ckio").__path__[0])))
"""Where modules lie that a command may leave behind in this process; a model's are forgotten."""

for module in (*(f"ckio.cli.{name}" for name in COMMANDS), "ckio.models.vorticity", "h5py"):
    importlib.import_module(module)  # once, for all forks


def ckio(*words: object, at: Path, status: int = 0) -> "subprocess.CompletedProcess[str]":
    """Run the command in this process: no traceback, whatever happens.

    Where a signal is to end it, as `status` or the variable KILL of a model says, or where its time
    counts from the start of its process, it runs in a fork of this process. Either differs from a
    new process only in what is imported already, which is most of its time.
    """
    command = list(map(str, words))
    forks = status not in (0, 1, 2) or "KILL" in os.environ or "--walltime" in command
    if forks and any(word.startswith(("--overlap", "overlapped")) for word in command):
        compiled.prepare("ckio.planners.overlap")  # once, for all forks from now on
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        code = (_forked if forks else run_in)(at, command, out, err)
        done = subprocess.CompletedProcess(command, code, _all(out), _all(err))
    assert done.returncode == status, done.stderr or done.stdout
    assert "Traceback" not in done.stderr
    return done


def _forked(at: Path, command: list[str], out: IO[str], err: IO[str]) -> int:
    with warnings.catch_warnings(action="ignore"):  # NumPy has threads, which do nothing now
        child = os.fork()
    if child == 0:
        status = 1
        try:
            status = run_in(at, command, out, err)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_in(at: Path, command: list[str], out: IO[str], err: IO[str]) -> int:
    """Return the exit status of the command, in a directory and with output of its own."""
    with _modules(), _streams(out, err), _signals(), warnings.catch_warnings():
        warnings.resetwarnings()
        before = Path.cwd()
        os.chdir(at)
        try:
            main(command)
        except SystemExit as error:
            return error.code if isinstance(error.code, int) else 1
        except Exception:
            traceback.print_exc()
            return 1
        finally:
            os.chdir(before)
    raise AssertionError("a command ends with an exit status")


@contextmanager
def _modules() -> Iterator[None]:
    """Forget the modules of models afterwards, and where they were found.

    Their bytecode is not stored: Python would take it for that of the next file of this name, if
    that has the same length and is written in the same second.
    """
    modules, path, finders = set(sys.modules), list(sys.path), set(sys.path_importer_cache)
    stored, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = stored
        for name in sys.modules.keys() - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file and not file.startswith(LASTING):
                del sys.modules[name]
        sys.path[:] = path
        for place in sys.path_importer_cache.keys() - finders:
            del sys.path_importer_cache[place]


@contextmanager
def _streams(out: IO[str], err: IO[str]) -> Iterator[None]:
    """Print to two files, also what is written to the descriptors; log as before afterwards."""
    logger, streams = logging.getLogger("ckio"), (sys.stdout, sys.stderr)
    logs = list(logger.handlers), logger.propagate, logger.level
    for stream in streams:
        stream.flush()
    kept, claimed = (os.dup(1), os.dup(2)), ExitStack()
    for number, file in ((1, out), (2, err)):
        os.dup2(file.fileno(), number)
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
    claim = console.claim_stdout  # for as long as a process lasts
    console.claim_stdout = lambda: claimed.enter_context(claim())
    try:
        with claimed:
            yield
    finally:
        console.claim_stdout = claim
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = streams
        for number, fd in zip((1, 2), kept, strict=True):
            os.dup2(fd, number)
            os.close(fd)
        logger.handlers, logger.propagate = logs[:2]
        logger.setLevel(logs[2])


@contextmanager
def _signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _all(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def answer(*words: object, at: Path) -> dict[str, Any]:
    """The one JSON object that a command prints."""
    out = ckio(*words, "--json", at=at).stdout
    assert out.count("\n") == 1
    return json.loads(out)


def complaint(*words: object, at: Path, status: int = 2) -> str:
    """The one line that a command has to say about its input; nothing is written."""
    before = _files(at)
    done = ckio(*words, at=at, status=status)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert _files(at) == before
    return done.stderr


def _files(at: Path) -> list[Path]:
    return sorted(path for path in at.rglob("*") if "__pycache__" not in path.parts)
