"""What a hostile author does to the files of a level: changes anything, then mends the checks."""

import json
import resource
import sys
import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
import xxhash
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ckio.actions import nbytes_of
from ckio.backends.contents import Stored, sound
from ckio.backends.directory.format import BLOCK, LIVE, MAGIC
from ckio.errors import CkioError
from ckio.testing import raw, x

from .common import in_child

_BATCH = 25
"""Inputs that are made of one seed."""

T = TypeVar("T")
Mutation = tuple[Any, ...]

_POWERS = (15, 16, 31, 32, 53, 63, 64)
EXTREMES = (0, 1, 7, BLOCK, *(2**bits - less for bits in _POWERS for less in (0, 1)))
TOKENS = (
    b"99999999999999999999", b"-1", b"-0", b"1e999", b"NaN", b"null", b"[[[[[[", b"]]]]", b"{}",
    b'"|O"', b'"O8"', b'"V9"', b'"U1"', b'"M8"', b'"(9,9)f8"', b'"f8,f8"', b"0,0,0", b'","',
    b"../../x", b"\\u0000", b"\xed\xa0\x80",
)  # fmt: skip


def changes(random: Random, /) -> list[Mutation]:
    """Changes to a file: small ones, integers that are extreme, pages that are doubled."""

    def one() -> Mutation:
        spots = random.randrange(1 << 31), random.randrange(1 << 31)
        return random.choice(
            (
                ("flip", spots[0], random.randrange(8)),
                ("put", spots[0], random.choice((1, 2, 4, 8)), random.choice(EXTREMES)),
                ("add", spots[0], random.randint(-300, 300)),
                ("token", spots[0], random.choice(TOKENS)),
                ("splice", *spots, random.randint(1, 200)),
                ("page", *spots),
                ("swap", *spots),
                ("cut", spots[0]),
                ("extend", random.randrange(3 * BLOCK)),
            )
        )

    return [one() for _ in range(random.choice((1, 1, 1, 2, 4)))]


def random_json(random: Random, /, *, depth: int = 3) -> Any:
    """Any value that JSON has, of the sort that might be mistaken for one of ours."""
    dtypes = "<f8", "|O", "|u1", "(3,)f8", "U9", "f8,f8", "M8[s]", "V0"
    words = (*dtypes, "x", "t", "", "é\0", "a" * 99)
    numbers = (0, 1, 3, -1, 2**31, 2**63, 10**30, 0.5, float("inf"), float("nan"), True, None)
    match random.choice(("word", "number", "list", "list", "list", "object")) if depth else "word":
        case "word":
            return random.choice(words)
        case "number":
            return random.choice(numbers)
        case "list":
            return [random_json(random, depth=depth - 1) for _ in range(random.randrange(6))]
        case _:
            names = random.sample(("format", "run", "codec", "lossless", "layout"), 3)
            return {name: random_json(random, depth=depth - 1) for name in names}


def random_fields(random: Random, /) -> list[Any]:
    """What might be a layout."""
    dtypes = ("<f8", "|u1", "|O", "V0", "f8,f8", "(2,)i4", "S", "U0", "M8", "<c16", "O,O", "x")
    sizes = (0, 1, 2, 9, -1, 2**31, 2**62, 2**64, True, 1.0)
    return [
        [
            random.choice(("u", "", "\ud800", "../u", 3)) if random.random() < 0.1 else "u",
            random.choice(dtypes),
            [random.choice(sizes) for _ in range(random.choice((0, 1, 2, 3, 40)))],
            "m",
        ][: random.choice((4, 4, 4, 4, 3))]
        for _ in range(random.randrange(4))
    ]


def random_bytes(random: Random, /) -> bytes:
    """Any bytes, or text."""
    match random.randrange(5):
        case 0:
            return random.randbytes(random.randrange(100))
        case 1:
            return json.dumps(random_json(random)).encode()
        case 2:
            return random.choice((*TOKENS, b"[" * 10**5, b"[" * 10**5 + b"]" * 10**5, b"1" * 5000))
        case _:
            return json.dumps(random_fields(random)).encode()


def mutated(original: bytes, changes: Iterable[Mutation], /) -> bytearray:
    """A file after some changes, which are made where there is something but zeros."""
    data = bytearray(original)
    for name, *how in changes:
        if data:
            _change(data, name, *how)
    return data


def _change(data: bytearray, name: str, *how: Any) -> None:
    filled = np.flatnonzero(np.frombuffer(bytes(data), np.uint8))
    numbers = [number for number in how[:2] if isinstance(number, int)]
    places = [int(filled[n % len(filled)]) if len(filled) else 0 for n in numbers]
    match name:
        case "flip":
            data[places[0]] ^= 1 << how[1]
        case "put":
            width = how[1]
            at = places[0] // width * width
            data[at : at + width] = (how[2] % (1 << 8 * width)).to_bytes(width, "little")
        case "add":
            at = places[0] // 8 * 8
            number = int.from_bytes(data[at : at + 8], "little") + how[1]
            data[at : at + 8] = (number % (1 << 64)).to_bytes(8, "little")
        case "token":
            data[places[0] : places[0] + len(how[1])] = how[1]
        case "splice":
            a, b = places
            data[a : a + how[2]] = data[b : b + how[2]]
        case "page":
            a, b = (at // BLOCK * BLOCK for at in places)
            data[a : a + BLOCK] = data[b : b + BLOCK]
        case "swap":
            a, b = (at // BLOCK * BLOCK for at in places)
            one, other = bytes(data[a : a + BLOCK]), bytes(data[b : b + BLOCK])
            data[a : a + BLOCK], data[b : b + BLOCK] = other, one
        case "cut":
            del data[places[0] :]
        case "extend":
            data.extend(bytes(how[0]))


def mend_slots(data: bytearray, stride: int, /) -> None:
    """Give the heads of a file of slots the checks that they need."""
    if data.startswith(MAGIC):
        data[24:40] = xxhash.xxh3_128_digest(bytes(data[:24]))
    for at in range(BLOCK, len(data), stride):
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        if data[at : at + 8] == LIVE and 152 <= length <= len(data) - at:
            body = bytes(data[at + 8 : at + length - 16])
            data[at + length - 16 : at + length] = xxhash.xxh3_128_digest(body, at)


# What must be true, whatever is in the files


def examine(backend: Any, path: Path, nbytes: int, /, *, write: bool) -> None:
    """List a level and use it; nothing but our own errors may come of that.

    What is said to be stored must be no more than the `nbytes` of its files.
    """
    with suppress(CkioError):
        for found in backend.contents(path):
            if isinstance(found, Stored):
                assert found.nbytes <= nbytes
                sound(found)
    try:
        level = backend(path)
    except CkioError:
        return
    try:
        for key in list(level.keys()):
            _examine_key(level, key, nbytes)
        if not write:
            return
        with suppress(CkioError):
            level.write(x(10**6), raw(3), [memoryview(b"new")])
            into = memoryview(bytearray(3))
            level.read(x(10**6), [into])
            assert into == b"new"
    finally:
        level.close()


def _examine_key(level: Any, key: Any, nbytes: int) -> None:
    with suppress(CkioError):
        layout = level.layout(key)
        # What the caller has to make room for is no more than what is there.
        assert nbytes_of(layout) <= nbytes
        level.read(key, [memoryview(bytearray(nbytes_of((field,)))) for field in layout])
    with suppress(CkioError):
        level.discard(key)


# How it is made sure


def campaign(make: Callable[[Random], T], count: int, try_one: Callable[[T], None], /) -> None:
    """Try at least so many inputs, in a process of its own: that it crashes would be seen, too.

    It may take 256 MiB more memory than it has.
    """

    def body() -> None:
        tried = 0
        _take_no_more_than(256 << 20)

        @settings(
            max_examples=-(-count // _BATCH),
            phases=[Phase.generate],
            deadline=None,
            database=None,
            report_multiple_bugs=False,
        )
        @given(st.integers(0, 2**64 - 1))
        def tries(seed: int) -> None:
            nonlocal tried
            random = Random(seed)  # hypothesis itself would take longer than what it draws for
            for number in range(_BATCH):
                tried += 1
                given = make(random)
                try:
                    try_one(given)
                except BaseException as error:
                    error.add_note(f"seed {seed}, input {number}: {given!r:.2000}")
                    raise

        with warnings.catch_warnings(action="error", category=DeprecationWarning):
            tries()  # NumPy has names of dtypes that it does not like any more: none gets there
        assert tried >= count

    in_child(body)


def _take_no_more_than(nbytes: int) -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + nbytes, most))


@contextmanager
def allocating_at_most(nbytes: int, /) -> Iterator[None]:
    """Python may allocate so many bytes, at the most, at any one time."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= nbytes


_CALLS = ("open", "os.mkdir", "os.remove", "os.rename", "os.link", "os.truncate", "os.rmdir")
_TWO = ("os.rename", "os.link")
_touched: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _touched is not None and event in _CALLS:
        _touched.extend(
            str(path) for path in arguments[: 1 + (event in _TWO)] if isinstance(path, (str, Path))
        )


@cache
def _begin_to_watch() -> None:
    sys.addaudithook(_watch)  # which cannot be taken back


@contextmanager
def touching_nothing_but(place: Path, /) -> Iterator[None]:
    """No file may be opened, made or removed that is not in a place."""
    global _touched  # noqa: PLW0603 - an audit hook is global
    _begin_to_watch()
    _touched = touched = []
    try:
        yield
    finally:
        _touched = None
    allowed = {place, Path(sys.base_prefix), Path(sys.prefix)}  # Python's modules are its own
    outside = [path for path in touched if not allowed & {Path(path), *Path(path).parents}]
    assert not outside, outside
