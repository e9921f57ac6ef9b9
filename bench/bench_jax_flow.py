"""A quick check of `jax_flow`: of a short loop, rows are measured and gradients agree."""

import numpy as np
import pytest

pytest.importorskip("jax_cfd")

import jax_flow


def test_ckio_and_nested_checkpoints_are_measured() -> None:
    names = jax_flow.NESTED, "ckio", "ckio, priced directory"
    (row, right), *others = (jax_flow.measured(name, 20) for name in names)
    assert row.first > row.later > 0
    for _, gradient in others:
        assert np.allclose(gradient, right, rtol=1e-3, atol=1e-4 * abs(right).max())
