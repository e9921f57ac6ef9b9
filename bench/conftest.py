"""Quick checks of benches take no table: concurrent transfers are measured in a few passes."""

from collections.abc import Iterator
from importlib import import_module

import pytest


@pytest.fixture(scope="session", autouse=True)
def few_passes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("ckio.calibrate.overlap"), "_PASSES", 6)
        yield
