"""How many names an open file has; none, once it was deleted.

`os.fstat` would tell, and asks for the times of the file as well. Times that were seen are kept
exactly by Linux from 6.13 on: the next write stores a new one with the inode, which takes a third
of a small write. `statx` can be asked for the number alone.
"""

import ctypes
import os
from typing import Final

_NLINK: Final = 0x4
_ITSELF: Final = 0x1000  # AT_EMPTY_PATH: what is open, and nothing in it


class _Status(ctypes.Structure):
    """The `struct statx` of Linux, on all of its machines: 256 bytes."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("blksize", ctypes.c_uint32),
        ("attributes", ctypes.c_uint64),
        ("nlink", ctypes.c_uint32),
        ("rest", ctypes.c_uint8 * 236),
    )


_statx = getattr(ctypes.CDLL(None), "statx", None)
_ARGUMENTS = ctypes.c_char_p(b""), ctypes.c_int(_ITSELF), ctypes.c_uint(_NLINK)


def links(fd: int, /) -> int:
    """How many names the file has that is open as `fd`; raises OSError where nobody can tell."""
    if _statx is not None:
        found = _Status()
        if _statx(fd, *_ARGUMENTS, ctypes.byref(found)) == 0 and found.mask & _NLINK:
            return int(found.nlink)
    return os.fstat(fd).st_nlink  # a system without the call; or it says what is wrong
