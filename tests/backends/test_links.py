"""How many names a file has that is open."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckio.backends import files as module
from ckio.backends.files import links


@pytest.fixture(params=["the call alone", "all of its status"])
def _system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the system call that tells it alone, and as on systems that have none."""
    if request.param == "all of its status":
        monkeypatch.setattr(module, "_statx", None)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


@pytest.mark.usefixtures("_system")
def test_names_are_counted_while_they_come_and_go(tmp_path: Path, opened: int) -> None:
    assert links(opened) == 1
    os.link(tmp_path / "file", tmp_path / "other")
    assert links(opened) == 2
    (tmp_path / "file").rename(tmp_path / "moved")
    assert links(opened) == 2
    (tmp_path / "moved").unlink()
    (tmp_path / "other").unlink()
    assert links(opened) == 0


@pytest.mark.usefixtures("_system")
def test_of_what_is_not_open_nobody_can_tell(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        links(fd)


def test_what_the_call_does_not_say_is_asked_otherwise(
    opened: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_statx", lambda *_: 0)  # it ends well, and fills in nothing
    assert links(opened) == 1
