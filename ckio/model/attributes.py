"""Whether a step changes data outside of the state: the attributes of a model, and what they hold.

`ArrayModel.record` leaves its last step to be computed when the state after it is needed. If the
step is reversed before, its `step` is never called. This is right if `adjoint_step` reads the tape
only; it would be wrong for a model whose `step` leaves something for the adjoint in an attribute.

>>> class Leaving:
...     def __init__(self):
...         self.calls, self.factor = 0, np.ones(3)
...
...     def step(self):
...         self.calls += 1
>>> model = Leaving()
>>> before = values_in(model)
>>> model.step()
>>> values_in(model) == before
True
>>> model.factor[0] = 2.0
>>> values_in(model) == before
False
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import numpy as np
import xxhash

_MOST: Final = 10_000
"""Maximum number of objects that are looked at: some milliseconds."""

_COUNTED: Final = (bool, int, str, bytes, type(None))
"""Numbers of calls, names and switches: nothing that an adjoint computes with."""


def values_in(model: object, /, *, without: Collection[str] = ()) -> tuple[object, ...] | None:
    """Return arrays, as hashes, and numbers in the attributes of a model, and in theirs.

    Attributes `without` are left out. Return None if there is too much to look at. Two results
    are equal if no array and no number has changed, and no other object was replaced.
    """
    own = {name: value for name, value in vars(model).items() if name not in without}
    found = tuple(value for value, _ in zip(_values(own, {id(model)}), range(_MOST), strict=False))
    return None if len(found) == _MOST else found


def _values(value: Any, seen: set[int]) -> Iterator[object]:
    if isinstance(value, _COUNTED) or id(value) in seen:
        return
    if isinstance(value, float | complex | np.generic):
        yield repr(value)
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        yield value.shape, xxhash.xxh3_64_intdigest(np.ascontiguousarray(value).view(np.uint8).data)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _values(item, seen)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _values(item, seen)
    elif isinstance(value, type) or callable(value) or not hasattr(value, "__dict__"):
        yield id(value)
    else:
        yield from _values(vars(value), seen)
