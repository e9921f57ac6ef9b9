"""Functions of traced values against plain numpy: values to the bit, derivatives by differences."""

import warnings

import numpy as np

from ckio.programs.tape import Tape, Traced


def close(found, expected, scale=1.0):
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6 * scale)


def gradients(function, inputs):
    """Result and cotangents of a random functional, and that functional of plain inputs."""
    tape = Tape()
    traced = [tape.input(it) for it in map(copied, inputs)]
    result = function(*traced)
    plain = function(*map(copied, inputs))
    leaves, expected = flat(result), flat(plain)
    assert len(leaves) == len(expected)
    rng = np.random.default_rng(7)
    seeds = []
    for leaf, value in zip(leaves, expected, strict=True):
        mine = leaf.value if type(leaf) is Traced else leaf
        same(mine, value)
        weight = rng.normal(size=np.shape(value))
        if np.iscomplexobj(value):
            weight = weight + 1j * rng.normal(size=np.shape(value))
        seeds.append(weight)
    given = [(leaf, seed) for leaf, seed in zip(leaves, seeds, strict=True)]

    def functional(*values):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = flat(function(*map(copied, values)))
        return sum(np.real(np.sum(np.conj(w) * r)) for w, r in zip(seeds, results, strict=True))

    return tape.backward(given, traced), functional


def same(mine, value):
    assert type(mine) is type(value)
    if isinstance(value, np.ndarray):
        assert (mine.dtype, mine.shape) == (value.dtype, value.shape)
        assert value.size == 0 or mine.strides == value.strides
    assert np.asarray(mine).tobytes() == np.asarray(value).tobytes()


def copied(value):
    """What a function may write into."""
    return value.copy(order="K") if isinstance(value, np.ndarray) else value


def flat(result):
    return [x for it in result for x in flat(it)] if isinstance(result, tuple | list) else [result]


def differences(functional, inputs, number):
    """Central differences: of a complex input dJ/dx + i dJ/dy, the direction of steepest ascent."""
    x = np.asarray(inputs[number])
    found = np.zeros(x.shape, x.dtype)
    for index in np.ndindex(x.shape):
        for unit in (1, 1j)[: 2 if x.dtype.kind == "c" else 1]:
            ends = []
            for sign in (1, -1):
                moved = np.array(x)
                moved[index] += sign * 1e-6 * unit
                args = list(inputs)
                kind = type(inputs[number])
                args[number] = moved if kind is np.ndarray else kind(moved[()])
                ends.append(functional(*args))
            found[index] += unit * (ends[0] - ends[1]) / 2e-6
    return found


def check(function, *inputs):
    """Values are those of numpy to the last bit, and cotangents those of central differences."""
    found, functional = gradients(function, inputs)
    for number, value in enumerate(inputs):
        expected = differences(functional, inputs, number)
        mine = found[number]
        if mine is None:
            mine = np.zeros(np.shape(value))
        else:
            assert mine.shape == np.shape(value)
            assert mine.dtype == np.asarray(value).dtype
        close(mine, expected, max(1.0, np.max(np.abs(expected), initial=0)))
