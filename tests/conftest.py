"""Two tiers of tests, and what every test gets.

`pytest` runs the quick tier, which is the same each time: hypothesis draws the same examples.
`pytest -m slow` runs the slow one, whose examples are drawn anew. A test marked `slow` belongs to
the slow tier; of one marked `campaign`, the first case is quick and all others are slow.
"""

import difflib
import os
import signal
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test adds to the history of whoever runs it, or uses costs that another one has measured.
os.environ["CKIO_HISTORY"] = os.environ["CKIO_CACHE"] = "off"

pytest.register_assert_rewrite("ckio.testing")

# A busy machine must not fail a property: no test here is about time.
_NO_HURRY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "quick", _NO_HURRY, derandomize=True, database=None, max_examples=25, print_blob=True
)
settings.register_profile("campaign", _NO_HURRY, max_examples=50)
settings.register_profile("thorough", _NO_HURRY, max_examples=2000)


GOLDEN = Path(__file__).with_name("golden")
"""Texts as they are printed. `pytest --update-golden` writes them anew; read the difference."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the file of that name in tests/golden, or write that file."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        expected = path.read_text() if path.exists() else ""
        lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), name, "now", "", "")
        assert text == expected, "\n".join(["pytest --update-golden accepts this:", *lines])

    return compare


def pytest_configure(config: pytest.Config) -> None:
    """Draw the same examples each time in the quick tier, and others in a campaign."""
    if not config.getoption("--hypothesis-profile", default=None):
        settings.load_profile("campaign" if _is_campaign(config) else "quick")


def _is_campaign(config: pytest.Config) -> bool:
    return "slow" in config.getoption("-m").replace("not slow", "")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all cases of a campaign but the first as slow, before it is chosen what runs."""
    begun = set[str]()
    for item in items:
        if item.get_closest_marker("campaign"):
            function = item.nodeid.partition("[")[0]
            if function in begun:
                item.add_marker(pytest.mark.slow)
            begun.add(function)


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> Iterator[None]:
    """Ctrl-C does what it does for a person: what runs in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def few_passes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Measure concurrent transfers in a few passes in the quick tier.

    No test of that tier depends on how exact the result is.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not _is_campaign(request.config):
            patch.setattr(import_module("ckio.calibrate.overlap"), "_PASSES", 6)
        yield


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Of signals: whoever leaves another one behind fails, not a test that comes much later."""
    yield
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    assert found is signal.default_int_handler
