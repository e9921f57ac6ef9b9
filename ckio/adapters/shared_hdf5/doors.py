"""Who may open a shared archive: ranks of MPI, where h5py has it; and one job at a time."""

import fcntl
import os
from pathlib import Path
from typing import Any

import h5py

from ckio.backends.files import is_flocked
from ckio.errors import BadInput, LevelInUse
from ckio.parallel.team import Team


def communicator(team: Team) -> Any:
    """The communicator of these ranks, for HDF5; raises BadInput where it has no use for one."""
    if not h5py.get_config().mpi:
        raise BadInput(
            f"h5py here has no MPI: {h5py.__file__} was built without it; use hdf5, a file per"
            " rank, or install an h5py that was built with HDF5_MPI=ON"
        )
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise BadInput(f"a shared archive needs mpi4py: {error}") from None
    if team.is_alone:
        return MPI.COMM_SELF
    communicator = getattr(team.comm, "mpi", None)
    if communicator is None:
        raise BadInput("a shared archive is for the ranks of an MPI communicator; these are not")
    return communicator


def lock(path: Path, /) -> int:
    """Take the archive, by a file beside it: HDF5 and MPI-IO may lock the archive as they like.

    Raises LevelInUse.
    """
    place = _beside(path)
    fd = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_free = os.fstat(fd).st_nlink > 0  # if not, its holder has just removed it
    except BlockingIOError:
        is_free = False
    if not is_free:
        os.close(fd)
        raise LevelInUse(
            f"{path} is in use by another job or another level; wait, or use another file"
        )
    return fd


def unlock(path: Path, held: int, /) -> None:
    """Let others in."""
    _beside(path).unlink(missing_ok=True)
    os.close(held)


def is_taken(path: Path, /) -> bool:
    """Whether a job has it, as far as that can be seen here; nothing is locked or made."""
    try:
        return is_flocked(_beside(path))
    except FileNotFoundError:
        return False


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")
