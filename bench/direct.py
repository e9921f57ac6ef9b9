"""How near does direct I/O come to bare O_DIRECT, and what does it cost the processor?

Everything is measured in the same rounds, on one prewritten file, from memory in huge pages unless
said: a slot for each contender, written and then read. Bare means: two threads, each with a block
of the same size in one system call after the other.
"""

import mmap
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import record

from ckio.actions import Buffers, Field, Key, Kind
from ckio.backends.directory import Directory
from ckio.backends.directory.direct import Direct
from ckio.backends.files import Files

NBYTES, FIELDS, ROUNDS = 64 << 20, 8, 15
BLOCK, LANES = 16 << 20, 2
BARE = "bare O_DIRECT"
KEY = Key(Kind.RESTART, 0)


class Contender(NamedTuple):
    """One way to move a payload; `before` happens outside the measured time."""

    write: Callable[[], object]
    read: Callable[[], object]
    before: Callable[[], object] = lambda: None


class Took(NamedTuple):
    """Seconds of a call, and the part of a core that it kept busy."""

    seconds: float
    core: float


def took(action: Callable[[], object]) -> Took:
    busy, start = time.process_time(), time.perf_counter()
    action()
    seconds = time.perf_counter() - start
    return Took(seconds, (time.process_time() - busy) / seconds)


def memory(nbytes: int, *, huge: bool = True) -> memoryview:
    """Touched memory that begins with a page, with noise in it."""
    room = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    room.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    view = memoryview(room)
    view[:] = np.random.default_rng(1).bytes(nbytes)
    return view


def fields(data: memoryview, shift: int = 0) -> list[memoryview]:
    """Equal fields, one behind the other; of an odd size if they are to begin anywhere."""
    size = len(data) // FIELDS - shift
    return [data[begin * size : (begin + 1) * size] for begin in range(FIELDS)]


class Bare:
    """What no library can beat: blocks in two threads, and nothing else."""

    def __init__(self, fd: int, offset: int, data: memoryview, block: int = BLOCK) -> None:
        self._fd, self._offset, self._data, self._block = fd, offset, data, block
        self._threads = ThreadPoolExecutor(LANES)

    def close(self) -> None:
        self._threads.shutdown()

    def write(self) -> None:
        self._move(lambda part, at: os.pwrite(self._fd, part, at))

    def read(self) -> None:
        self._move(lambda part, at: os.preadv(self._fd, [part], at))

    def write_and_sync(self) -> None:
        self.write()
        os.fdatasync(self._fd)

    def _move(self, move: Callable[[memoryview, int], int]) -> None:
        def lane(first: int) -> None:
            for begin in range(first, len(self._data), LANES * self._block):
                part = self._data[begin : begin + self._block]
                assert move(part, self._offset + begin) == len(part)

        for done in [self._threads.submit(lane, i * self._block) for i in range(LANES)]:
            done.result()


def ours(io: Direct, fd: int, offset: int, data: Buffers, *, checksum: bool) -> Contender:
    digests: list[bytes] = [b""]

    def write() -> None:
        digests[0] = io.write(fd, data, offset, checksum=checksum)

    def read() -> None:
        assert io.read(fd, data, offset, digests[0])

    return Contender(write, read)


def level(directory: Directory, data: Buffers) -> Contender:
    layout = tuple(Field(f"f{i}", "|u1", (len(view),)) for i, view in enumerate(data))
    directory.reserve({sum(map(len, data)): 1})

    def clear() -> None:
        held = directory.keys()
        if held:
            directory.discard(KEY)

    return Contender(
        write=lambda: directory.write(KEY, layout, data),
        read=lambda: directory.read(KEY, data),
        before=clear,
    )


@contextmanager
def contenders(place: Path, nbytes: int) -> Iterator[dict[str, Contender]]:
    huge, plain = memory(nbytes), memory(nbytes, huge=False)
    odd = fields(memory(nbytes)[16:], shift=24)  # as numpy's arrays lie, and not of whole pages
    files, path = Files(), place / "slots"
    with ExitStack() as stack:
        ordinary = files.open(path)
        stack.callback(os.close, ordinary)
        slots = iter(range(0, 6 * nbytes, nbytes))
        files.extend(ordinary, 0, 6 * nbytes, prewrite=True)
        fd = os.open(path, os.O_RDWR | os.O_DIRECT)
        stack.callback(os.close, fd)
        io = Direct(files, place)

        def bare(data: memoryview, block: int = BLOCK) -> Bare:
            return stack.enter_context(closing(Bare(fd, next(slots), data, block)))

        first, small, synced, scattered = bare(huge), bare(huge, 4 << 20), bare(huge), bare(plain)
        table = {
            BARE: Contender(first.write, first.read),
            "  blocks of 4 MiB": Contender(small.write, small.read),
            "  then fdatasync": Contender(synced.write_and_sync, synced.read),
            "  from small pages": Contender(scattered.write, scattered.read),
        }
        for name, data in {
            "Direct": fields(huge),
            "Direct, odd fields": odd,
        }.items():
            offset = next(slots)
            table[name] = ours(io, ordinary, offset, data, checksum=False)
            table[name + ", checksum"] = ours(io, ordinary, offset, data, checksum=True)
        for number, name in enumerate(("directory, direct", "directory, direct, checksum")):
            made = Directory(place / name, durability="direct", checksum=bool(number))
            stack.callback(made.remove)
            table[name] = level(made, fields(huge))
        yield table


def measure(place: Path, nbytes: int, rounds: int) -> dict[str, tuple[list[Took], list[Took]]]:
    """By contender: what writing took in each round, and reading."""
    with contenders(place, nbytes) as table:
        results: dict[str, tuple[list[Took], list[Took]]] = {name: ([], []) for name in table}
        for turn in range(1 + rounds):  # the first one warms up
            # In another order each time, so that none always follows the same other one.
            for name, contender in random.Random(turn).sample(list(table.items()), len(table)):
                contender.before()
                pair = took(contender.write), took(contender.read)
                if turn:
                    results[name][0].append(pair[0])
                    results[name][1].append(pair[1])
    return results


def table(nbytes: int = NBYTES, rounds: int = ROUNDS) -> str:
    with tempfile.TemporaryDirectory() as place:
        results = measure(Path(place), nbytes, rounds)
    rows = []
    for name, accesses in results.items():
        row = [name]
        for access, bare in zip(accesses, results[BARE], strict=True):
            seconds = statistics.median(each.seconds for each in access)
            share = statistics.median(
                b.seconds / a.seconds for a, b in zip(access, bare, strict=True)
            )
            core = statistics.median(each.core for each in access)
            row += [f"{seconds * 1e3:.2f}", f"{nbytes / seconds / 1e9:.2f}"]
            row += [f"{share:.2f}", f"{core:.0%}"]
        rows.append(row)
    head = ["", "write ms", "GB/s", "of bare", "core", "read ms", "GB/s", "of bare", "core"]
    return (
        f"{nbytes >> 20} MiB in {FIELDS} fields, blocks of {BLOCK >> 20} MiB,"
        f" {LANES} in flight; medians of {rounds} interleaved rounds\n"
        "of bare: speed as a part of that of bare O_DIRECT in the same round;"
        " core: processor time over time\n\n" + record.columns(head, rows)
    )


if __name__ == "__main__":
    record.save("direct", table())
