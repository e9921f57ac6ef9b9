"""What every test gets."""

import pytest

pytest.register_assert_rewrite("ckio.testing")
