"""The command as a user runs it, and what is true of every answer and of every error."""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import IO, Any, NoReturn

from ckio.cli.entry import COMMANDS, main
from ckio.planners import compiled

CKIO = Path(sys.executable).with_name("ckio")
"""The installed command; a test that needs no process of its own takes `ckio` instead."""

for module in (*(f"ckio.cli.{name}" for name in COMMANDS), "ckio.models.vorticity", "h5py"):
    importlib.import_module(module)  # once, for all forks


def ckio(*words: object, at: Path, status: int = 0) -> "subprocess.CompletedProcess[str]":
    """Run the command in a fork of this process: no traceback, whatever happens.

    It differs from a new process only in what is imported and compiled already, which is most of
    its time.
    """
    command = list(map(str, words))
    if any(word.startswith(("--overlap", "overlapped")) for word in command):
        compiled.prepare("ckio.planners.overlap")  # once, for all forks from now on
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with warnings.catch_warnings(action="ignore"):  # NumPy has threads, which do nothing now
            child = os.fork()
        if child == 0:
            _become(command, at, out, err)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        done = subprocess.CompletedProcess(command, code, _all(out), _all(err))
    assert done.returncode == status, done.stderr or done.stdout
    assert "Traceback" not in done.stderr
    return done


def _become(command: list[str], at: Path, out: IO[str], err: IO[str]) -> NoReturn:
    """Be the command, in a directory and with output of its own."""
    status: object = 1
    try:
        os.chdir(at)
        for number, file in ((1, out), (2, err)):
            os.dup2(file.fileno(), number)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - a stream, not a path
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        warnings.resetwarnings()
        main(command)
    except SystemExit as error:
        status = error.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


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
