"""The state of a program: which functions are running, where each is, and its live variables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ckio.programs import values
from ckio.programs.compiled.code import Unset
from ckio.programs.compiled.compiling import Code
from ckio.programs.values import Copying, Unclear


@dataclass(frozen=True, slots=True)
class Started:
    """Before the first tick: the inputs."""

    inputs: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """A function that is running.

    Attributes
    ----------
    code : Code
        Its blocks.
    block : int
        The one that is next, once all functions that this one called have returned.
    values : tuple
        Of the variables that it needs then; without the result that it waits for.
    """

    code: Code
    block: int
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """After the last tick: the result."""

    result: Any


Now: TypeAlias = Started | tuple[Frame, ...] | Finished
"""The frames are those of the function that was started, of the one that it called, and so on."""


@dataclass(frozen=True, slots=True)
class Frames:
    """The state of a program after some ticks; it is a value, and nothing in it is to be changed.

    Attributes
    ----------
    ticks : int
        How many since the start.
    now : Started, tuple of Frame, or Finished
        Where it is.
    """

    ticks: int
    now: Now


def named(now: Now, /) -> dict[str, Any]:
    """All values of a state by name: x, y, or number of the frame and variable.

    What is unset has no value.
    """
    match now:
        case Started(inputs=inputs):
            return {"x": inputs}
        case Finished(result=result):
            return {"y": result}
        case _:
            return dict(_variables(now))


def renamed(now: Now, values: Mapping[str, Any], /) -> Now:
    """A state like this one with other values: what has no name in `values` is unset."""
    match now:
        case Started():
            return Started(values["x"])
        case Finished():
            return Finished(values["y"])
        case _:
            return tuple(
                Frame(frame.code, frame.block, tuple(values.get(n, Unset) for n in names))
                for frame, names in zip(now, _names(now), strict=True)
            )


def copied(now: Now, /) -> Now:
    """The same in memory of its own; raises BadInput for what a checkpoint cannot hold."""
    copy = Copying().copy
    try:
        match now:
            case Started(inputs=inputs):
                return Started(copy(inputs))
            case Finished(result=result):
                return Finished(copy(result))
            case _:
                return tuple(
                    Frame(f.code, f.block, tuple(v if v is Unset else copy(v) for v in f.values))
                    for f in now
                )
    except (Unclear, RecursionError):
        return renamed(now, values.copy(named(now)))


def _names(frames: tuple[Frame, ...]) -> Iterator[tuple[str, ...]]:
    """The names of the values of each frame; only the last one waits for nothing."""
    for number, frame in enumerate(frames):
        graph = frame.code.graph
        last = number == len(frames) - 1
        live = graph.live[frame.block] if last else graph.waiting(frame.block)
        yield tuple(f"{number}.{name}" for name in live)


def _variables(frames: tuple[Frame, ...]) -> Iterator[tuple[str, Any]]:
    for frame, names in zip(frames, _names(frames), strict=True):
        for name, value in zip(names, frame.values, strict=True):
            if value is not Unset:
                yield name, value


def expected(frames: tuple[Frame, ...], /) -> Iterator[tuple[str, bool]]:
    """Each variable that frames of these functions hold here, and whether it may be unset."""
    for frame, names in zip(frames, _names(frames), strict=True):
        unset = frame.code.graph.unset[frame.block]
        for name in names:
            yield name, name.partition(".")[2] in unset
