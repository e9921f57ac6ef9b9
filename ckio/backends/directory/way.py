"""Which way the payloads of a directory go: through the page cache, or past it."""

import errno
from contextlib import ExitStack
from pathlib import Path

from ckio.backends.directory.slotfiles import TRIAL
from ckio.backends.files import FULL, Files, failure
from ckio.backends.payload import Buffered, Payload
from ckio.errors import BadInput


def payload_for(files: Files, place: Path, /, *, direct: bool) -> Payload:
    """The way for payloads to files in a directory; raises BadInput if it has no direct I/O."""
    if not direct:
        return Buffered(files)
    from ckio.backends.directory.direct import Direct

    way = Direct(files)
    try:
        _try(files, way, place / TRIAL)
    except OSError as error:
        if error.errno in FULL:  # that is told to those who want to write
            return way
        way.close()
        if error.errno == errno.EINVAL:
            raise BadInput(
                f"directory {place}: its file system has no direct I/O (O_DIRECT);"
                ' choose durability="fdatasync", or a place on a local disk'
            ) from None
        raise failure(files, place, error, f"directory {place}: direct I/O") from error
    return way


def _try(files: Files, way: Payload, path: Path) -> None:
    """Write one page past the page cache, to a file that is removed again."""
    with ExitStack() as ends:
        ends.callback(files.close, files.open(path))
        ends.callback(files.unlink, path)
        direct = files.open_direct(path)
        ends.callback(files.close, direct)
        way.write(direct, [memoryview(b"?")], 0, checksum=False)
