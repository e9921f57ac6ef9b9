"""Which bytes do the readers of ckio's files not survive?  `python bench/fuzz.py READER [SECONDS]`

Runs atheris, if it is installed (it is no dependency of ckio), on one of the readers, or on all of
them in turn. The checksums of what they read are made right: a hostile author does that, too.
Prints how many inputs each took; ends with status 1 and the input where one fails.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import xxhash

SECONDS = 30
_TEXT = b'[["zeta","<f8",[5,7],"1/s"],["mask","|b1",[11],""]]'


def form(data: bytes) -> None:
    from ckio.backends.forms import form_from

    form_from(data)


def slot(data: bytes) -> None:
    """The head of a slot of a directory, with its check made right."""
    from ckio.backends.directory.format import LIVE, length, unpack

    nbytes = len(LIVE) + 4 + len(data) + 16
    body = struct.pack("<I", nbytes) + data
    head = LIVE + body + xxhash.xxh3_128_digest(body, 4096)
    assert length(head) == nbytes
    unpack(head, 4096)


def slot_text(data: bytes) -> None:
    """A head of which only the text of the layout is somebody's own, and its bytes and begin."""
    from ckio.backends.directory.format import LIVE, unpack

    begin, nbytes = struct.unpack("<HQ", data[:10].ljust(10, b"\0"))
    text = data[10:]
    numbers = (
        152 + len(text),
        begin,
        nbytes,
        1,
        0.0,
        3,
        b"x",
        1,
        0,
        len(text),
        bytes(16),
        bytes(64),
    )
    body = struct.pack("<IIQQdQcBHI16s64s", *numbers) + text
    unpack(LIVE + body + xxhash.xxh3_128_digest(body, 0), 0)


def encoded(data: bytes) -> None:
    """What the unit of encoded bytes says."""
    from ckio.actions import Field
    from ckio.backends.encoded import MARK, unmark

    unmark((Field("encoded", "|u1", (100,), MARK + data.decode(errors="replace")),))


def manifest(data: bytes) -> None:
    from ckio.jobs import directory as rundir
    from ckio.jobs.leftovers import holdings

    place = Path(os.environ["CKIO_FUZZ_PLACE"])
    text = data.decode(errors="replace")
    if text.startswith("{"):  # its checksum is mended, so that what is behind that is reached
        text = rundir.sealed(text)
    (place / rundir.MANIFEST).write_text(text)
    holdings(place)


_MANIFEST = {
    "format": 2,
    "run": "deadcafe",
    "ckio": "1",
    "request": {"model": "m", "settings": {"grid": 4}, "planner": "revolve"}
    | {"overlap": "write_behind=0,read_ahead=0"},
    "control": "dead",
    "given": False,
    "chain": {"steps": 3, "advance": 1, "record": 1, "reverse": 1}
    | {"restart": 8, "tape": 8, "adjoint": 8},
    "variables": None,
    "platform": "beef",
    "adjoints": None,
    "every": 1.0,
    "here": "",
    "ranks": 1,
    "identity": "",
}

SEEDS = {
    form: [_TEXT],
    slot: [struct.pack("<IQQdQcBHI16s", 4096, 0, 1, 0.0, 3, b"x", 1, 0, 2, bytes(16)) + b"[]"],
    slot_text: [struct.pack("<HQ", 4096, 291) + _TEXT],
    encoded: [json.dumps({"codec": "zstd", "lossless": True, "layout": "[]"}).encode()],
    manifest: [json.dumps(_MANIFEST).encode()],
}
READERS: dict[str, Callable[[bytes], None]] = {reader.__name__: reader for reader in SEEDS}


def main() -> int:
    name, seconds = (*sys.argv[1:], *("all", str(SECONDS))[len(sys.argv) - 1 :])
    if name != "all":
        fuzz(READERS[name], int(seconds))
    failed = [reader for reader in READERS if not _in_child(reader, seconds)]
    return 1 if failed else 0


def _in_child(name: str, seconds: str) -> bool:
    """Run one reader: libFuzzer does not come back."""
    done = subprocess.run(
        [sys.executable, __file__, name, seconds], stderr=subprocess.PIPE, text=True, check=False
    )
    runs = [line for line in done.stderr.splitlines() if line.startswith("Done")]
    print(f"{name:10} {runs[-1] if runs else done.stderr[-3000:]}", flush=True)
    return done.returncode == 0


def fuzz(read: Callable[[bytes], None], seconds: int) -> None:
    """Give a reader bytes until the time is over; does not return."""
    try:
        import atheris
    except ImportError:
        sys.exit("bench/fuzz.py needs atheris: pip install atheris, in an environment of its own")

    with atheris.instrument_imports(include=["ckio"]):  # nothing of it was imported before
        from ckio.errors import CkioError

    def try_one(data: bytes) -> None:
        with suppress(CkioError):
            read(data)

    with tempfile.TemporaryDirectory(dir="/dev/shm") as room:
        place, seeds = Path(room) / "run", Path(room) / "seeds"
        place.mkdir()
        seeds.mkdir()
        os.environ["CKIO_FUZZ_PLACE"] = str(place)
        for number, seed in enumerate(SEEDS[read]):
            (seeds / str(number)).write_bytes(seed)
        with atheris.instrument_imports(include=["ckio"]):
            try_one(SEEDS[read][0])  # imports what it reads with
        limits = (
            f"-max_total_time={seconds}",
            "-rss_limit_mb=1024",
            "-timeout=10",
            "-max_len=4096",
        )
        atheris.Setup([sys.argv[0], *limits, str(seeds)], try_one)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
