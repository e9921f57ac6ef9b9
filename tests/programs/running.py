"""What compiled programs are held to, at each of their ticks."""

import json
from copy import copy
from typing import Any

import numpy as np

from ckio.programs import heap
from ckio.programs.compiled import CompiledProgram, Frames


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, of the same types, with the same strides."""
    names, others = (heap.rebuild(it, "", lambda path, _: path) for it in (a, b))
    if type(a) is not type(b) or names != others:
        return False
    pairs = zip(heap.leaves(a, "").items(), heap.leaves(b, "").items(), strict=True)
    return all(m == n and alike(u, v) for (m, u), (n, v) in pairs)


def alike(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        parts = (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)
        return parts and a.tobytes() == b.tobytes()
    return repr(a) == repr(b)


def copied(x: Any) -> Any:
    """Inputs that a function may change."""
    return heap.rebuild(x, "", lambda _, v: v.copy("K") if isinstance(v, np.ndarray) else copy(v))


def stored(p: CompiledProgram, state: Frames) -> Frames:
    """Through bytes."""
    arrays, meta = p.pack(state)
    bytes_of = {n: (a.tobytes(), a.dtype.str, a.shape) for n, a in arrays.items()}
    state_arrays = {n: np.frombuffer(b, d).reshape(s) for n, (b, d, s) in bytes_of.items()}
    return p.unpack(state_arrays, json.loads(json.dumps(meta)))


def picture(p: CompiledProgram, state: Frames) -> Any:
    """All that a state is."""
    arrays, meta = p.pack(state)
    return json.dumps(meta), {n: (a.dtype.str, a.shape, a.tobytes()) for n, a in arrays.items()}


def check_every_tick(p: CompiledProgram, x: tuple[Any, ...]) -> None:
    """It is the function, to the last bit, from each of its states that was stored."""
    expected, before = p.function(*copied(x)), copied(x)
    end, ticks, finished = p.advance(p.start(*x))
    assert finished
    assert ticks > 0
    assert same(p.result(end), expected)
    assert same(p(*copied(x)), expected)
    assert same(x, before)
    state, kept = p.start(*x), []
    for n in range(ticks):
        kept.append((state, picture(p, state)))
        assert picture(p, p.advance(p.start(*x), n)[0]) == kept[-1][1]
        last, rest, finished = p.advance(stored(p, state))
        assert (rest, finished) == (ticks - n, True)
        assert same(p.result(last), expected)
        again, _, _ = p.advance(stored(p, state), 1)
        state, done, finished = p.advance(state, 1)
        assert picture(p, again) == picture(p, state)
        assert (done, finished) == (1, n == ticks - 1)
    assert picture(p, state) == picture(p, end)
    assert all(picture(p, one) == earlier for one, earlier in kept)
