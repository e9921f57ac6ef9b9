"""All that numpy offers: right with its derivative, plain where there is none, or refused."""

# ruff: noqa: E501, E741, PLR0911, PLR0912, PLW0108 - a table of calls, and one sentence for each way to fail

import copy
import inspect
import operator
import warnings

import numpy as np
import pytest

from ckio.errors import BadInput
from ckio.programs.tape import Tape, Traced

ELSEWHERE = """
DataSource load loads loadtxt genfromtxt fromfile fromregex fromstring frombuffer fromiter
fromfunction from_dlpack save savez savez_compressed savetxt memmap test info show_config
show_runtime get_include geterr seterr geterrcall seterrcall errstate setbufsize getbufsize
get_printoptions set_printoptions printoptions tofile dump dumps setflags setfield open_memmap
add_docstring add_newdoc drop_metadata finfo byte_bounds Arrayterator ndarray ctypes
"""
"""Files, processes, settings, addresses, and memory with nothing in it."""

PLAIN = "zeros_like ones_like empty_like full_like empty"
"""What is without a derivative on purpose, though it has floats: writing gives one."""

RNG = np.random.default_rng(11)
V, W = RNG.uniform(0.2, 0.8, 4), RNG.uniform(0.2, 0.8, 4)
M, N = RNG.uniform(0.2, 0.8, (3, 3)) + 2 * np.eye(3), RNG.uniform(0.2, 0.8, (3, 3))
S = M + M.T + 3 * np.eye(3)
Z = V + 1j * W
B = np.array([True, False, True, True])
X, Y, O = RNG.uniform(-0.8, 0.2, 4), RNG.uniform(-0.8, 0.2, (3, 3)), np.array(0.13)
CALLS = [
    (V,), (M,), (S,), (Z,), (V + 1.1,), (0.37,), (V, W), (M, N), (M, V[:3]), (V, 2), (M, 1), (V, 0.3),
    (2, V), (V, W, V * W), (B, V), (B, V, W), (V, B, W), (V, [0, 2]), (V, [0, 2], W[:2]), (V, 0, W[:1]),
    (M, [[0, 2, 1]] * 3, 1), (V, (2, 2)), (M, 0, 1), (V, 0.2, 0.6), ([V, W],), ([M, N], 1), ((V, W),), ([[V, W]],),
    ("ij,jk", M, N), (X, np.sort(W), V), (V, [B], [W]), ([B], [V]), ([B], [V], 0.5), (V, None, None, O), (V, None, O), (V, 0.3, 0.6, X), (V, W, O), (M, 0, None, Y[0]), (M, 0, Y[0]),
    (V, [0, 2], 0, X[:2]), (M, V[:3], Y[0]), (V, 0, 0, O), (M, N, Y), (V, X), (V, W, X), (V, None, None, X), (V, 1, X), ([V, W], 0, Y[:2].reshape(-1)[:4]), (V[:3], W[:3]), (V, [0, 2], 0.5),
    (sum, 0, M), (np.sin, M), (lambda t: t * t, V), (M, 1, 2), (V, 3, None), (M, Y), (V, np.arange(4)), (V, "float64"),
    (V, -1), (S, V[:3]), (np.sum, M, [0]), (V[0], W), (V[0], V[1], 5), (2.0, V[0]), (V, [1.0, 2.0, 3.0, 4.0]),
    (V, W[0]), ([V[0], V[1]],), ([0.5, 1.0], V), (M[None], (0, 1, 2)), (X, V), (Y, V[0]),
    (X, [1], V[0]), (X, B, V), (V, 0, 0), (V, [0, 2], [1, 3]), (), (W[0],), (4, V[0]), ((4,), V[0]), (M, 0, 1, 0),
]  # fmt: skip


def offered():
    """Functions, ufuncs and their methods, methods of arrays, by name."""
    rooms = {
        "np": np, "np.linalg": np.linalg, "np.fft": np.fft, "np.emath": np.emath,
        "np.lib": np.lib, "np.lib.stride_tricks": np.lib.stride_tricks,
        "np.lib.array_utils": np.lib.array_utils, "np.polynomial.polynomial": np.polynomial.polynomial,
    }  # fmt: skip
    for room, module in rooms.items():
        for name in sorted(vars(module)):
            found = getattr(module, name, None)
            error = inspect.isclass(found) and issubclass(found, BaseException)
            if (
                callable(found)
                and not name.startswith("_")
                and name not in ELSEWHERE.split()
                and not error
            ):
                yield f"{room}.{name}", found
            if isinstance(found, np.ufunc) and room == "np":
                for method in ("reduce", "accumulate", "outer", "reduceat", "at"):
                    yield f"np.{name}.{method}", getattr(found, method)
    for name in sorted(dir(np.ndarray)):
        if name in ELSEWHERE.split() or name.startswith("_"):
            continue
        if name in ("shape", "dtype", "strides", "flags", "data", "base", "device", "nbytes"):
            continue
        yield f"ndarray.{name}", _method(name)
    for name in OPERATORS.split():
        yield f"operator.{name}", getattr(operator, name)
    numbers = divmod, round, float, int, complex, sum, max, min
    for function in (*numbers, iter, reversed, copy.copy, copy.deepcopy):
        yield f"python.{function.__name__}", function


OPERATORS = """
add sub mul truediv floordiv mod pow matmul iadd isub imul itruediv ifloordiv imod ipow imatmul
neg pos abs getitem setitem delitem contains index lt le eq ne gt ge truth concat iconcat
length_hint
"""


def _method(name):
    def call(x, *args):
        found = getattr(x, name)
        return found(*args) if callable(found) else found

    return call


def tree(given, change):
    """The same with its floats changed: a traced or a copy."""
    if isinstance(given, list | tuple):
        return type(given)(tree(it, change) for it in given)
    return change(given) if isinstance(given, float | np.ndarray) and np.asarray(given).dtype.kind in "fc" else given  # fmt: skip


def flat(result):
    if isinstance(result, list | tuple) and type(result) is not Traced:
        return [leaf for it in result for leaf in flat(it)]
    return [result]


def copied(given):
    return np.array(given, order="K") if isinstance(given, np.ndarray) else given


def done(function, args):
    """What it returns, and what has become of the arguments."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = function(*args)
        if hasattr(result, "__next__") and type(result) is not Traced:
            result = list(result)
    return flat([result, list(args)])


def says_what_to_do(error):
    while error is not None and not isinstance(error, BadInput):
        error = error.__cause__ or error.__context__
    advice = ("stop_gradient", "primitive", "np.", "u[k]", "view", "index")
    return error is not None and any(it in str(error) for it in advice)


def trial(name, function, args):
    """None if the call is nothing for plain values; else what is wrong with it, or ""."""
    fresh = tree(args, copied)
    try:
        expected = done(function, fresh)
    except Exception:
        return None
    if any(isinstance(it, np.ndarray) and it.dtype == object for it in expected):
        return None
    tape, inputs = Tape(), []

    def trace(value):
        inputs.append(tape.input(copied(value)))
        return inputs[-1]

    given = tree(args, trace)
    if not inputs:
        return None
    try:
        mine = done(function, given)
    except BadInput as error:
        return "" if says_what_to_do(error) else f"no advice: {error}"
    except (TypeError, ValueError, AttributeError) as error:
        if "output must be an array" in str(error):
            return ""  # so says a method of a plain array
        return "" if says_what_to_do(error) else f"{type(error).__name__}: {error}"
    if len(mine) != len(expected):
        return f"{len(mine)} results, not {len(expected)}"
    return compared(function, args, inputs, mine, expected, tape)


def compared(function, args, inputs, mine, expected, tape):  # noqa: PLR0917
    rng, seeds, weights = np.random.default_rng(5), [], []
    for one, other in zip(mine, expected, strict=True):
        value = one.value if type(one) is Traced else one
        if callable(other) and not isinstance(other, np.ndarray | np.generic):
            weights.append(None)
            continue
        if np.shape(value) == () and type(other) is np.float64:
            value = np.float64(value)  # numpy gives numbers for arrays without dimensions
        if type(value) is not type(other) and isinstance(other, np.ndarray | float | np.generic):
            return f"{type(value).__name__}, not {type(other).__name__}"
        if isinstance(other, np.ndarray) and (value.shape, value.dtype) != (other.shape, other.dtype):  # fmt: skip
            return f"{value.dtype}{value.shape}, not {other.dtype}{other.shape}"
        if np.asarray(other).dtype.kind not in "fc":
            if not isinstance(other, np.ndarray | np.generic | bool | int | str | None | slice | type | np.dtype) and not np.isscalar(other):  # fmt: skip
                return f"{type(other).__name__}, which may have lost a derivative"
            weights.append(None)
            continue
        if np.asarray(value).tobytes() != np.asarray(other).tobytes():
            return "another value"
        weight = rng.normal(size=np.shape(other)) * (1 + 0.3j if np.iscomplexobj(other) else 1)
        weights.append(weight)
        seeds.append((one, weight))

    def functional(*values):
        following = iter(values)
        try:
            found = done(function, tree(args, lambda _: next(following)))
        except Exception:
            return np.nan
        with np.errstate(all="ignore"):
            return sum(np.real(np.sum(np.conj(w) * it)) for w, it in zip(weights, found, strict=True) if w is not None)  # fmt: skip

    try:
        found = tape.backward(seeds, inputs)
    except BadInput as error:
        return f"only on the way back: {error}"
    values = []
    tree(args, lambda it: values.append(it))
    for number, (value, cotangent) in enumerate(zip(values, found, strict=True)):
        way = rng.normal(size=np.shape(value)) * (1 + 0.7j if np.iscomplexobj(value) else 1)
        slopes = []
        for h in (1e-5, 1e-6):
            ends = []
            for sign in (1, -1):
                moved = [copied(it) for it in values]
                part = np.asarray(value + sign * h * way)
                moved[number] = part if isinstance(value, np.ndarray) else type(value)(part[()])
                ends.append(functional(*moved))
            with np.errstate(invalid="ignore"):
                slopes.append((ends[0] - ends[1]) / (2 * h))
        mine = 0.0 if cotangent is None else np.real(np.sum(np.conj(cotangent) * way))
        steady = abs(slopes[0] - slopes[1]) <= 1e-4 * (1 + abs(slopes[1]))
        if steady and not np.isclose(mine, slopes[1], rtol=2e-5, atol=2e-5):
            return f"slope {mine}, not {slopes[1]}"
    return ""


def campaign(every):
    """What is wrong, and how many calls were tried: all, or one in so many."""
    wrong, tried = {}, 0
    for place, (name, function) in enumerate(offered()):
        if name.split(".")[-1] in PLAIN.split():
            continue
        for number, args in enumerate(CALLS):
            if (place + number) % every:
                continue
            if any(it in name for it in ("accumulate", "reduceat", "cum")) and any(
                it is O for it in args
            ):
                continue  # numpy itself crashes
            found = trial(name, function, args)
            tried += found is not None
            if found:
                wrong[f"{name}({', '.join(shown(it) for it in args)})"] = found
    return wrong, tried


def shown(it):
    if isinstance(it, list | tuple):
        return f"[{', '.join(map(shown, it))}]"
    return f"{it.dtype}{it.shape}" if isinstance(it, np.ndarray) else getattr(it, "__name__", str(it))  # fmt: skip


@pytest.mark.campaign
@pytest.mark.parametrize("every", [8, 1])
@np.errstate(all="ignore")
def test_nothing_of_numpy_loses_a_derivative(every):
    wrong, tried = campaign(every)
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())
    assert tried > 10000 / every
