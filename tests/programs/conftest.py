"""What several tests of programs need."""

from collections.abc import Iterator

import pytest

CONFIG = "jax_enable_x64", "jax_disable_most_optimizations"


@pytest.fixture
def doubles_in_jax() -> Iterator[None]:
    """JAX in double precision, and code that takes less time to compile."""
    jax = pytest.importorskip("jax")
    before = {name: jax.config.values[name] for name in CONFIG}
    for name in CONFIG:
        jax.config.update(name, True)
    yield
    for name in CONFIG:
        jax.config.update(name, before[name])
