"""The machine fails, or the process is killed, after any operation: nothing acknowledged is lost.

Each test performs one workload for real, and opens the level in the states in which the disk may
have been left (`disk.py` says which those are): in the normal run in some hundreds for
each kind of level, in all of them under `slow`.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ckio.actions import Key
from ckio.backends.base import Backend
from ckio.backends.contents import Stored
from ckio.errors import BadInput, CkioError, CorruptCheckpoint, MissingCheckpoint, StorageError
from ckio.testing import a, get, put, raw

from .disk import Recorder, State, Trace, contents, crashes, kills
from .workload import (
    ANY_DURABILITY,
    KEYS,
    WORKLOAD,
    Kind,
    bytes_of,
    do,
    kinds,
    plain,
    plain_first,
)

Versions = frozenset[bytes | None]
DEEP = "new"
"""A directory that is made for the level: its name, too, has to outlive the machine."""

NOTHING: Versions = frozenset({None})


@dataclass(frozen=True)
class Begun:
    """A note: something is about to happen to a key; then it has these bytes, or None."""

    key: Key
    data: bytes | None


@dataclass(frozen=True)
class Acknowledged:
    """A note: what had begun has ended well."""


# What is recorded, and what must then be there


def recorded(kind: Kind, files: Recorder, root: Path) -> Trace:
    """The trace of the workload on a level of this kind."""
    root = root / DEEP
    level = kind.open(root, files)
    for step in WORKLOAD:
        match step.verb:
            case "reopen":
                level.close()
                level = kind.open(root, files)
            case "reserve":
                do(level, step)
            case _:
                files.note(Begun(step.key, bytes_of(step) if step.layout else None))
                do(level, step)
                files.note(Acknowledged())
    level.close()
    return files.trace


def allowed(notes: Iterable[object]) -> dict[Key, Versions]:
    """What each key may hold after these notes: one thing, or either if it was in the hand."""
    held: dict[Key, Versions] = dict.fromkeys(KEYS, NOTHING)
    last = None
    for note in notes:
        match note:
            case Begun(key, data):
                last = note
                held[key] = held[key] | {data}
            case Acknowledged():
                assert last is not None
                held[last.key] = frozenset({last.data})
    return held


def found(level: Backend) -> dict[Key, Versions]:
    """What each key holds; what is not there must be missing, and not damaged."""
    keys = level.keys()
    there = {key: frozenset({get(level, key, level.layout(key))}) for key in keys}
    for key in set(KEYS) - set(there):
        with pytest.raises(MissingCheckpoint):
            level.layout(key)
    return dict.fromkeys(KEYS, NOTHING) | there


def agrees(there: Mapping[Key, Versions], may_be: Mapping[Key, Versions]) -> bool:
    return there.keys() == may_be.keys() and all(there[key] <= may_be[key] for key in there)


def listed(kind: Kind, root: Path, may_be: Mapping[Key, Versions]) -> None:
    """Whoever only looks sees nothing damaged, and no key that cannot be there."""
    try:
        stored = kind.contents(root / DEEP)
    except BadInput:  # no level was made yet
        assert all(None in versions for versions in may_be.values())
        return
    assert {type(one) for one in stored} <= {Stored}
    keys = Counter(one.key for one in stored if isinstance(one, Stored))
    for key, versions in may_be.items():
        assert (None in versions) if not keys[key] else (versions != NOTHING)


def survives(kind: Kind, state: State, root: Path) -> None:
    """A level of this kind, opened in this state, holds what it must, and can go on."""
    may_be = allowed(state.notes)
    state.write(root)
    listed(kind, root, may_be)
    level = kind.open(root / DEEP)
    there = found(level)
    assert agrees(there, may_be)
    more = put(level, a(1), raw(3000), seed=99)
    level.close()
    level = kind.open(root / DEEP)
    assert found(level) == there | {a(1): frozenset({more})}
    level.close()


def all_survive(kind: Kind, states: Iterable[State], memory: Path) -> int:
    """Check each state, under `memory`; how many there were."""
    count = 0
    for state in states:
        count += 1
        root = memory / "state"
        root.mkdir()
        try:
            survives(kind, state, root)
        except (AssertionError, CkioError, OSError, pytest.fail.Exception) as error:
            raise AssertionError(f"{kind}, {state.story}: {error}") from error
        shutil.rmtree(root)
    return count


# Levels


@pytest.mark.parametrize("kind", plain_first(*ANY_DURABILITY), ids=str)
def test_every_change_of_a_levels_files_is_recorded(kind: Kind, tmp_path: Path) -> None:
    *_, last = kills(recorded(kind, Recorder(tmp_path), tmp_path))
    assert last.files == contents(tmp_path)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", kinds("fdatasync", "direct"), ids=str)
@pytest.mark.parametrize(("most", "states"), [(4, 50), (40, 250)])
def test_a_failing_machine_loses_nothing_acknowledged(
    kind: Kind, most: int, states: int, tmp_path: Path, memory: Path
) -> None:
    trace = recorded(kind, Recorder(tmp_path), tmp_path)
    assert all_survive(kind, crashes(trace, most=most), memory) >= states


@pytest.mark.campaign
@pytest.mark.parametrize("kind", kinds("process"), ids=str)
def test_a_killed_process_loses_nothing_acknowledged(
    kind: Kind, tmp_path: Path, memory: Path
) -> None:
    trace = recorded(kind, Recorder(tmp_path), tmp_path)
    assert all_survive(kind, kills(trace), memory) >= 60


@pytest.mark.campaign
@pytest.mark.parametrize("most", [3, 40])
@pytest.mark.parametrize("kind", kinds("process"), ids=str)
def test_a_failing_machine_gives_no_wrong_bytes_where_nothing_was_synced(
    kind: Kind, most: int, tmp_path: Path, memory: Path
) -> None:
    """Durability "process" promises nothing then; what it still gives must be what was written."""
    versions = {step.key: set[bytes]() for step in WORKLOAD}
    for step in WORKLOAD:
        versions[step.key].add(bytes_of(step))
    trace = recorded(kind, Recorder(tmp_path), tmp_path)
    read = refused = 0
    for number, state in enumerate(crashes(trace, most=most)):
        root = memory / str(number)
        root.mkdir()
        state.write(root)
        try:
            with closing(kind.open(root / DEEP)) as level:
                stored = level.keys()
                for key in stored:
                    try:
                        assert get(level, key, level.layout(key)) in versions[key]
                        read += 1
                    except CorruptCheckpoint:
                        refused += 1
        except (StorageError, BadInput):
            refused += 1
        shutil.rmtree(root)
    assert read > 100
    assert refused > 0


@pytest.mark.campaign
@pytest.mark.parametrize("most", [0, 20])
@pytest.mark.parametrize("kind", kinds("fdatasync"), ids=str)
def test_a_machine_may_fail_again_while_a_level_is_opened(
    kind: Kind, most: int, tmp_path: Path, memory: Path
) -> None:
    """Opening may repair and tidy; what it does is as safe as what it found."""
    trace = recorded(kind, Recorder(tmp_path), tmp_path)
    repaired = 0
    for state in crashes(trace, most=most):
        root = memory / "first"
        root.mkdir()
        state.write(root)
        again = Recorder(root)
        kind.open(root / DEEP, again).close()
        if again.trace.operations:
            repaired += 1
            states = (replace(s, notes=state.notes) for s in crashes(again.trace, most=most))
            all_survive(kind, states, memory)
        shutil.rmtree(root)
    assert repaired > 0


class Careless(Recorder):
    """A system whose syncs of files, or of directories, do nothing."""

    def __init__(self, root: Path, forgets: str) -> None:
        super().__init__(root)
        self._forgets = forgets

    def sync(self, fd: int, /) -> None:
        if self._forgets != "files":
            super().sync(fd)

    def sync_directory(self, path: Path, /) -> None:
        if self._forgets != "directories":
            super().sync_directory(path)


@pytest.mark.parametrize("forgets", ["files", "directories"])
@pytest.mark.parametrize("kind", plain("fdatasync"), ids=str)
def test_a_level_that_does_not_sync_is_found_out(
    kind: Kind, forgets: str, tmp_path: Path, memory: Path
) -> None:
    trace = recorded(kind, Careless(tmp_path, forgets), tmp_path)
    with pytest.raises(AssertionError, match=f"{kind}, after "):
        all_survive(kind, crashes(trace, most=2), memory)
