"""What every test gets."""

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("ckio.testing")

# A busy machine must not fail a property: no test here is about time.
settings.register_profile("ckio", deadline=None)
settings.load_profile("ckio")
