"""Ctrl-C at any moment: afterwards a level holds what it says, and goes on."""

import gc
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ckio.backends.directory import Directory
from ckio.errors import MissingCheckpoint
from ckio.testing import get, put, raw, x

from .common import Struck
from .workload import Kind, held, plain

SIZE = 3000
STRIDE = 7
"""Of so many moments, one is tried; prime, so that loops do not hide any."""


class Interrupt:
    """Raises KeyboardInterrupt before one bytecode instruction of ckio's."""

    def __init__(self, at: int) -> None:
        self.left, self.raised = at, False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if "/ckio/backends/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and not self.raised:
            self.left -= 1
            if self.left == 0:
                self.raised = True
                raise KeyboardInterrupt
        return self


def interrupted(turn: Callable[[], object], at: int) -> bool:
    """Whether a turn was interrupted at its moment `at`; False if it was over before."""
    before, interrupt = sys.gettrace(), Interrupt(at)
    gc.disable()  # the end of another level, in its `__del__`, is no moment of this turn
    sys.settrace(interrupt)
    try:
        turn()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
        gc.enable()
    return interrupt.raised


NEW_SIZE = "write of another size"
TURNS: dict[str, Callable[[Any], object]] = {
    "write": lambda level: put(level, x(5), raw(SIZE)),
    NEW_SIZE: lambda level: put(level, x(5), raw(50 * SIZE)),
    "read": lambda level: get(level, x(1), raw(SIZE)),
    "discard": lambda level: level.discard(x(1)),
    "reserve": lambda level: level.reserve({2 * SIZE: 6, 100: 2}),
}


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("kind", "turn"),
    # A new group of an archive takes many thousand moments: prefixes of that are tried by kills.
    [
        (kind, turn)
        for kind in plain("process", "fdatasync")
        for turn in TURNS
        if kind.backend is Directory or (kind.durability == "process" and turn != NEW_SIZE)
    ],
    ids=str,
)
def test_an_interrupt_leaves_a_level_as_it_says_it_is(
    kind: Kind, turn: str, tmp_path: Path
) -> None:
    interrupts, raised = 0, True
    while raised:
        level = kind.open(tmp_path)
        before = {x(step): put(level, x(step), raw(SIZE), seed=step) for step in range(3)}
        level.discard(x(2))
        del before[x(2)]
        raised = interrupted(partial(TURNS[turn], level), 1 + STRIDE * interrupts)
        said = held(level)
        undone = [before, before | {x(5): said.get(x(5))}, {x(0): before[x(0)]}]
        assert said in undone, interrupts
        level.close()
        level = kind.open(tmp_path)
        assert held(level) == said, interrupts
        level.remove()  # type: ignore[attr-defined]
        interrupts += raised
    assert interrupts > 10


@pytest.mark.campaign
@pytest.mark.parametrize("kind", plain("process"), ids=str)
def test_what_was_interrupted_and_discarded_does_not_come_back(kind: Kind, tmp_path: Path) -> None:
    interrupts, raised = 0, True
    while raised:
        level = kind.open(tmp_path)
        level.reserve({SIZE: 5})
        put(level, x(0), raw(SIZE))
        raised = interrupted(partial(TURNS["write"], level), 1 + STRIDE * interrupts)
        if x(5) not in held(level):
            put(level, x(5), raw(SIZE))
        level.discard(x(5))
        for step in range(20, 23):
            put(level, x(step), raw(SIZE))
        level.close()
        level = kind.open(tmp_path)
        assert set(level.keys()) == {x(0), x(20), x(21), x(22)}, interrupts
        with pytest.raises(MissingCheckpoint):
            level.discard(x(5))
        level.remove()  # type: ignore[attr-defined]
        interrupts += raised
    assert interrupts > 10


def test_an_interrupt_while_a_file_of_slots_is_made_leaves_none(tmp_path: Path) -> None:
    files = Struck("size", error=KeyboardInterrupt(), times=1)
    level = Directory(tmp_path / "level", files=files)
    files.left = 0
    with pytest.raises(KeyboardInterrupt):
        put(level, x(0), raw(100))
    assert files.times == 0
    assert list((tmp_path / "level").iterdir()) == []
    stored = put(level, x(0), raw(100))
    assert get(level, x(0), raw(100)) == stored
    level.remove()
    assert list(tmp_path.iterdir()) == []
