"""States on disk, and processes that go on with them, or are killed.

    python killing.py on NAME PLACE EVERY       take all states that lie there to their ends, and a
                                                cotangent back to every so many of them
    python killing.py back NAME PLACE TICKS     the gradient, with all that is stored in
                                                PLACE/stored; killed after so many ticks

What is named is an example, or "MODE:NAME" in JAX. States are on the level PLACE/level. What was
found is left in PLACE/found.npz.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Field, Key, Kind
from ckio.backends.directory import Directory
from ckio.model import as_bytes
from ckio.programs import Options, checkpoint_vjp, primops
from ckio.programs.heap import leaves, rebuild

Arrays = Mapping[str, NDArray[Any]]
Packed = tuple[Arrays, Any]


class OnLevel:
    """States as the checkpoints of a level, their structure as text in one more field."""

    def __init__(self, place: Path) -> None:
        self.level = Directory(place)

    def put(self, ticks: int, packed: Packed) -> None:
        arrays, meta = packed
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        fields = {"structure": text} | {n: np.asarray(a, order="C") for n, a in arrays.items()}
        layout = tuple(Field(name, a.dtype.str, a.shape) for name, a in fields.items())
        data = [as_bytes(array) for array in fields.values()]
        self.level.write(Key(Kind.RESTART, ticks), layout, data)

    def get(self, ticks: int) -> Packed:
        key = Key(Kind.RESTART, ticks)
        layout = self.level.layout(key)
        memory = [np.empty(field.shape, field.dtype) for field in layout]
        self.level.read(key, [as_bytes(array) for array in memory])
        names = [field.name for field in layout[1:]]
        return dict(zip(names, memory[1:], strict=True)), json.loads(memory[0].tobytes())

    def ticks(self) -> list[int]:
        keys = self.level.keys()
        return sorted(key.step for key in keys)

    def close(self) -> None:
        self.level.close()


def states(program: Any, x: tuple[Any, ...], every: int = 1) -> Iterator[Any]:
    """The state after each tick, the first and the last among them."""
    state, finished = program.start(*x), False
    yield state
    while not finished:
        state, _, finished = program.advance(state, every)
        yield state


def weights(leaf: Any) -> NDArray[Any]:
    """A cotangent of a leaf of a result, whose entries differ."""
    array = np.asarray(leaf)
    return np.cos(0.5 + np.arange(array.size)).astype(array.dtype).reshape(array.shape)


def by_leaf(y: Any) -> dict[str, NDArray[Any]]:
    """A cotangent of a finished state."""
    return {name: weights(leaf) for name, leaf in leaves(y, "y").items()}


def rest(program: Any, state: Any) -> tuple[dict[str, NDArray[Any]], int]:
    """The result to which a state leads, and in how many ticks."""
    last, ticks, finished = program.advance(state)
    assert finished
    found = leaves(program.result(last), "y")
    return {name: np.asarray(leaf) for name, leaf in found.items()}, ticks


def gone_on(program: Any, state: Any, back: bool) -> dict[str, NDArray[Any]]:
    """All that can be computed from a state: the result, and its derivative by the state."""
    found, ticks = rest(program, state)
    if back:
        cotangent = {name: weights(leaf) for name, leaf in found.items()}
        pulled = program.pullback(state, ticks, cotangent)
        found |= {f"by {name}": np.asarray(array) for name, array in pulled.items()}
    return found


class Found(NamedTuple):
    """What another process found, by the ticks after which its state was taken."""

    process: int
    values: dict[int, dict[str, NDArray[Any]]]


def process(*words: object) -> subprocess.CompletedProcess[str]:
    """Another process, until it ends."""
    command = [sys.executable, __file__, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def in_a_new_process(name: str, place: Path, every: int) -> Found:
    """What another process makes of the states in a place."""
    done = process("on", name, place, every)
    assert done.returncode == 0, done.stderr
    values: dict[int, dict[str, NDArray[Any]]] = {}
    with np.load(place / "found.npz") as found:
        for label in found.files:
            ticks, leaf = label.split(" ", 1)
            values.setdefault(int(ticks), {})[leaf] = found[label]
    return Found(int(done.stdout), values)


def killed(name: str, place: Path, ticks: int) -> bool:
    """Whether a process was killed that was to find the gradient, or to go on with it."""
    done = process("back", name, place, ticks)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def found_in(place: Path) -> dict[str, NDArray[Any]]:
    with np.load(place / "found.npz") as found:
        return dict(found)


class Mortal:
    """A program that kills its process after so many ticks, run forward or back."""

    def __init__(self, program: Any, ticks: int) -> None:
        self.program, self.left = program, ticks

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def advance(self, state: Any, limit: float = inf, /) -> Any:
        found = self.program.advance(state, min(limit, self.left))
        self.pass_by(found[1])
        return found

    def pullback(self, state: Any, ticks: int, cotangent: Arrays, /) -> Any:
        if self.left < ticks:  # fewer ticks on a tape would be refused, as those of another run
            self.program.advance(state, self.left)
            self.pass_by(ticks)
        found = self.program.pullback(state, ticks, cotangent)
        self.pass_by(ticks)
        return found

    def pass_by(self, ticks: int) -> None:
        self.left -= ticks
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def like_result(program: Any, x: tuple[Any, ...]) -> Any:
    """A cotangent in the structure of the result."""
    return rebuild(primops(program, *x)[0], "y", lambda _, leaf: weights(leaf))


STEP = 8
"""Ticks of a step of those gradients."""


def taken_back(
    program: Any, x: tuple[Any, ...], ybar: Any, **options: Any
) -> dict[str, NDArray[Any]]:
    """The result and the gradient, with checkpoints."""
    y, bar = checkpoint_vjp(program, x, ybar, Options(base=STEP, **options))
    found = leaves(y, "y") | leaves(bar, "x")
    return {name: np.asarray(leaf) for name, leaf in found.items()}


def program_of(name: str) -> tuple[Any, tuple[Any, ...]]:
    """An example by its name; JAX is told to compute in double precision."""
    from examples import PLAIN, in_jax

    mode, _, jax_name = name.partition(":")
    if not jax_name:
        return PLAIN[name]
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)
    return in_jax(jax_name, mode)


def go_on(name: str, place: Path, every: int) -> None:
    """All that is stored to its end."""
    program, _ = program_of(name)
    stored = OnLevel(place / "level")
    found = {}
    for number, ticks in enumerate(stored.ticks()):
        state = program.unpack(*stored.get(ticks))
        found |= {
            f"{ticks} {leaf}": array
            for leaf, array in gone_on(program, state, number % every == 0).items()
        }
    stored.close()
    leave(found, place)


def go_back(name: str, place: Path, ticks: int) -> None:
    """The gradient, if there is time enough."""
    program, x = program_of(name)
    ybar = like_result(program, x)
    leave(
        taken_back(Mortal(program, ticks), x, ybar, directory=place / "stored", every=1e-9), place
    )


def leave(found: Arrays, place: Path) -> None:
    with (place / "found.npz").open("wb") as file:
        np.savez(file, **dict(found))


if __name__ == "__main__":
    {"on": go_on, "back": go_back}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    sys.stdout.write(str(os.getpid()))
