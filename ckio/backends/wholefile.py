"""Files that are written whole or not at all, and never through a symbolic link."""

import errno
import os
from contextlib import suppress
from pathlib import Path


def missing_folders(path: Path, /) -> list[Path]:
    """Return the folders to create for `path` to be a directory, the innermost first."""
    return [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]


def write_whole(path: Path, content: str | bytes, /) -> None:
    """Write a file whole or not at all, and on the disk when this returns; raises OSError.

    It is made anew beside its place and renamed. What lies at either name is replaced, and where
    that is a link, what it leads to is not touched.
    """
    part = f".{path.name}.part"
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileNotFoundError):  # of a process that was killed
            os.unlink(part, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(part, flags, 0o666, dir_fd=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise
        _sync(folder)
    finally:
        os.close(folder)


def _sync(folder: int) -> None:
    """Have the names in an open directory on the disk, where its file system can."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EBADF, errno.ENOTSUP}:
            raise
