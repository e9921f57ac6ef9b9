"""The bench of the levels still runs, and what it writes comes back."""

from pathlib import Path

import backends
import pytest

from ckio.actions import Key, Kind


@pytest.mark.parametrize("name", backends.LEVELS)
def test_write_and_read(benchmark, tmp_path: Path, name: str) -> None:
    layout, data = backends.flow(1 << 10, 4)
    into = [memoryview(bytearray(view.nbytes)) for view in data]
    level = backends.LEVELS[name](tmp_path)
    benchmark(backends.timed, level, layout, data, into, 3)
    assert into == data
    level.close()


def test_the_contenders_do_what_they_are_compared_for(tmp_path: Path) -> None:
    layout, data = backends.flow(1 << 10, 4)
    bare = [
        backends.Copy(data, into := [memoryview(bytearray(view.nbytes)) for view in data], 1),
        backends.Call(tmp_path / "call", 1 << 10),
        backends.Checked(tmp_path / "checked", 1 << 10),
    ]
    for contender in bare:
        contender.write(key := Key(Kind.RESTART, 0), layout, data)
        for view in into:
            view[:] = bytes(view.nbytes)
        contender.read(key, into)
        assert into == data
        contender.close()
    low = backends.LowLevel(tmp_path / "low.h5", 1 << 10, 1)
    low.write(key, layout, data)
    low.read(key, into)
    low.close()


def test_every_case_is_measured() -> None:
    took = backends.measure(backends.Case("tiny", 1 << 10, 4, 3), sets=2, rounds=2)
    assert {target.level for target in backends.TARGETS} <= set(took)
    assert all(seconds.shape == (2, 2 * 2) and (seconds > 0).all() for seconds in took.values())
