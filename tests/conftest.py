"""What every test gets."""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("ckio.testing")

# A busy machine must not fail a property: no test here is about time. Examples are drawn anew each
# time, so that fewer of them see as much in the end; for many: --hypothesis-profile=thorough.
settings.register_profile("ckio", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("ckio")


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> Iterator[None]:
    """Ctrl-C does what it does for a person: what runs in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Of signals: whoever leaves another one behind fails, not a test that comes much later."""
    yield
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    assert found is signal.default_int_handler
