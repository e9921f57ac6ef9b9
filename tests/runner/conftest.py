"""A guard for tests of runs with threads."""

import faulthandler
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture
def watchdog() -> Iterator[None]:
    """Whoever waits for ever is shown, and ended; no channel is left running."""
    faulthandler.dump_traceback_later(200, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    assert not [each.name for each in threading.enumerate() if each.name.startswith("ckio-")]
