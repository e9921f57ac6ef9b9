"""Which functions of numpy have a derivative, and by which rule."""

from typing import Any

import numpy as np

from ckio.programs.tape import equivalents, gathers, linear, moves, reductions
from ckio.programs.tape.rules import Path, Rule

__all__ = ["CONSTANT_FUNCTIONS", "FUNCTIONS", "PLAIN", "SEVERAL", "Path"]

FUNCTIONS: dict[Any, Rule] = (
    gathers.RULES | moves.RULES | reductions.RULES | linear.RULES | equivalents.RULES
)
FUNCTIONS[np.diff] = moves.diff(FUNCTIONS[np.diff])
"""Rules by function."""

SEVERAL = linear.SEVERAL

PLAIN = frozenset(
    (
        np.shape,
        np.ndim,
        np.size,
        np.argmax,
        np.argmin,
        np.argsort,
        np.nonzero,
        np.flatnonzero,
        np.argwhere,
        np.count_nonzero,
        np.searchsorted,
        np.digitize,
        np.isclose,
        np.allclose,
        np.array_equal,
        np.array_equiv,
        np.any,
        np.all,
        np.isreal,
        np.iscomplex,
        np.isrealobj,
        np.iscomplexobj,
        np.isposinf,
        np.isneginf,
        np.may_share_memory,
        np.shares_memory,
        np.result_type,
        np.can_cast,
        np.min_scalar_type,
        np.common_type,
        np.array_repr,
        np.array_str,
        np.array2string,
        np.lexsort,
        np.isin,
        np.linalg.matrix_rank,
        np.nanargmax,
        np.nanargmin,
        np.argpartition,
    )
)
"""Functions whose results are indices, shapes and truth values: plain."""

CONSTANT_FUNCTIONS = frozenset(
    (
        np.zeros_like,
        np.ones_like,
        np.empty_like,
        np.full_like,
        np.round,
        np.around,
        np.fix,
    )
)
"""Functions whose results have no derivative, but may be written into."""
