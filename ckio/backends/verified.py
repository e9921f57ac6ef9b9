"""What of a level is sound, read once in whole: after a process that was killed, say."""

from ckio.actions import Key, Layout, nbytes_of
from ckio.backends.base import Backend
from ckio.errors import StorageError


def verified(backend: Backend, /) -> tuple[set[Key], list[str]]:
    """The keys whose bytes are sound, and what was wrong with the others, which are discarded.

    Raises StorageError where one cannot be discarded.
    """
    sound, corrupt = set[Key](), list[str]()
    room: dict[tuple[int, int], memoryview] = {}
    for key in list(backend.keys()):
        try:
            into = [
                room.setdefault((number, nbytes), memoryview(bytearray(nbytes)))
                for number, nbytes in enumerate(_parts(backend.layout(key)))
            ]
            backend.read(key, into)
        except StorageError as error:
            corrupt.append(f"{error}; it was discarded")
            backend.discard(key)
        else:
            sound.add(key)
    return sound, corrupt


def _parts(layout: Layout) -> list[int]:
    """Bytes of each buffer of a checkpoint."""
    return [nbytes_of((field,)) for field in layout]
