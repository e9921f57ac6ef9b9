"""Programs with everything that one may have in it, and what is the same about two values."""

import json
import math
from typing import Any

import numpy as np

from ckio.programs import heap
from ckio.programs.compiled import CompiledProgram, Frames, program


def turns(x: float, i: int, n: int) -> int:
    k = math.floor(3.0 ** float(x))
    return 2 ** (int(math.log2(n)) - int(math.log2(1 + (1007 * k * i) % n)))


@program
def listing1(x, n, eps):
    y = x
    for i in range(1, n + 1):
        for _ in range(turns(x, i, n)):
            y = y * y
            y = np.sqrt(y + eps * np.sin(y) * x)
    return y


@program
def tree(x, depth):
    if depth == 0:
        return np.sin(x)
    a = tree(x * 1.1, depth - 1)
    return a * x + tree(x + 0.1, depth - 2 if depth > 1 else 0)


@program
def ackermann(m, n):
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann(m - 1, 1)
    return ackermann(m - 1, ackermann(m, n - 1))


@program
def burgers(u, nu, tolerance):
    """Steps as long as the error allows; those that are too long are taken back."""
    t, dt, rejected = 0.0, 0.1, 0
    u = u.copy()
    inner = u[1:-1]
    history = [u[0]]
    while t < 0.15:
        dt = min(dt, 0.15 - t)
        slope = nu * (np.roll(u, 1) - 2 * u + np.roll(u, -1)) - u * (np.roll(u, -1) - u)
        euler = u + dt * slope
        error = float(np.max(np.abs(euler - u))) * dt
        if error > tolerance:
            dt *= 0.5
            rejected += 1
            continue
        u += dt * slope
        inner *= 1.0 - 1e-3
        np.add(inner, 1e-4, out=inner)
        history.append(u[1:3])
        t += dt
        dt *= 1.3
    return {"u": u, "t": t, "rejected": rejected, "history": history}


@program
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


@program
def primes(n):
    found = []
    for k in range(2, n):
        for p in found:
            if p * p > k:
                found.append(k)
                break
            if k % p == 0:
                break
        if not found:
            found.append(k)
        if found[-1] != k:
            if all(k % p for p in found):
                found += [k]
            continue
        if len(found) > 5:
            return tuple(found), k
    return tuple(found), None


@program
def over_everything(a, d):  # noqa: PLR0912
    total, seen = 0.0, []
    for row in a:
        row *= 2.0  # noqa: PLW2901
        for value in row:
            total += value
    for key in d:
        seen.append(key + "!")  # noqa: PERF401
    for key, value in d.items():
        seen.append((key, value))
    for value in d.values():
        total += value
    for i, (x, y) in enumerate(zip(range(3), range(5, 99), strict=False)):
        total += i * x - y
    for x in reversed([1.0, 2.0]):
        total = total / x
    for letter in "ab":
        seen.append(letter * 2)  # noqa: PERF401
    for x in map(abs, [-1, -2]):
        total += x
    for x, (y, *rest) in [(1, (2, 3, 4))]:
        total += x + y + sum(rest)
    for seen[0] in (7, 8):
        pass
    for _ in []:
        total = math.nan
    growing = [1]
    for x in growing:
        if x < 5:
            growing.append(x + 1)
    return total, seen, growing, a, x


@program
def even(n):
    return True if n == 0 else odd(n - 1)


@program
def odd(n):
    return n != 0 and even(n - 1)


@program
def push(log, value):
    log.append(value)
    return value


def plain_push(log: list[Any], value: Any) -> Any:
    log.append(value)
    return value


@program
def order(n):
    """Calls between everything that has an effect."""
    log = []
    a = np.arange(4.0)
    b = plain_push(log, 1) + push(log, 2) * plain_push(log, 3) - push(log, n)
    c = [plain_push(log, "x"), push(log, "y"), *plain_push(log, ["z"]), *push(log, ("w",))]
    d = {plain_push(log, "k"): push(log, "v"), push(log, "q"): plain_push(log, "r")}
    a[push(log, 1)] += push(log, 10.0) + plain_push(log, a[1])
    a[plain_push(log, 0)], a[push(log, 2)] = push(log, 5.0), plain_push(log, 6.0)
    e = a.sum() + push(log, a.mean()) * len(log)
    a[1:3] *= push(log, 2.0)
    f = plain_push(log, 1) < push(log, 2) < push(log, 2) < push(log, 99)
    g = push(log, 0) or push(log, "") or plain_push(log, []) or push(log, "last")
    h = push(log, 1) and plain_push(log, 0) and push(log, "never")
    i = push(log, "yes") if push(log, n > 2) else push(log, "no")
    j = f"{plain_push(log, 1.5):.3f} {push(log, 'text')!r}"
    k = min(plain_push(log, 4), push(log, 3), key=lambda v: v + n)
    m = (-push(log, 2), not push(log, 0), log[push(log, 3)], log[push(log, 0) : push(log, 2)])
    o = p = push(log, [1])
    o.append(2)
    push(log, "alone")
    push(value=plain_push(log, "named"), log=log)
    push(*(log, "starred"))
    assert push(log, True)
    while push(log, len(log)) < 55 and len(log) % 7:
        continue
    for q in push(log, range(2)):
        (r, s), *t = push(log, ((q, 1), 2, 3))
    return log, a, b, c, d, e, f, g, h, i, j, k, m, p, r, s, t


@program
def with_defaults(x, /, y=2.0, *, scale=3.0):
    return x * y * scale


@program
def calls_with_defaults(x):
    return with_defaults(x), with_defaults(x, scale=1.0), with_defaults(x, y=x)


@program
def aliases(u):
    v = u
    views = [u[::2], u[::-1], u.reshape(2, -1).T]
    pair = (views, views)
    i = 0
    while True:
        v += 1.0
        views[0][:] *= 2.0
        views[1][i] -= 0.5
        views[2][0, 0] = i
        pair[0].append(i)
        i += 1
        if i == 4:
            break
    return u, v, views, pair[1], u is v, pair[0] is pair[1]


@program
def maybe_unset(n):
    for i in range(n):
        last: float = i * 2.0
        unused: int  # noqa: F842
    while n > 0:
        n -= 1
    if n == 0:
        return last
    return 0


@program
def idle(n):
    while n > 0:
        n = n - 1
    for _ in range(3):
        pass
    for _ in range(3):
        continue
    while True:
        if n < 10:
            n += 1
            continue
        break


U = np.sin(np.linspace(0.0, 6.0, 12)) + 1.5

ZOO: list[tuple[CompiledProgram, tuple[Any, ...]]] = [
    (listing1, (3.0, 12, 1e-3)),
    (listing1, (np.float64(3.0), 1, 0.0)),
    (tree, (0.7, 4)),
    (ackermann, (2, 2)),
    (burgers, (U, 0.1, 1e-3)),
    (gcd, (1071, 462)),
    (gcd, (5, 0)),
    (primes, (30,)),
    (primes, (3,)),
    (over_everything, (np.arange(6.0).reshape(2, 3), {"a": 1.0, "b": 2})),
    (even, (7,)),
    (even, (6,)),
    (order, (3,)),
    (order, (1,)),
    (calls_with_defaults, (1.5,)),
    (aliases, (np.arange(8.0),)),
    (aliases, (np.asfortranarray(np.arange(8.0).reshape(2, 4)).T.reshape(-1),)),
    (maybe_unset, (2,)),
    (idle, (4,)),
]


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, of the same types, with the same strides."""
    if type(a) is not type(b) or not heap.same(a, b):
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
    return tuple(v.copy() if hasattr(v, "copy") else v for v in x)


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


def resumed_from_every_tick(p: CompiledProgram, x: Any) -> None:
    """It is the function, to the last bit, from each of its states that was stored."""
    expected = p.function(*copied(x))
    end, ticks, finished = p.advance(p.start(*x))
    assert finished
    assert same(p.result(end), expected)
    state = p.start(*x)
    for n in range(ticks):
        last, rest, finished = p.advance(stored(p, state))
        assert (rest, finished) == (ticks - n, True)
        assert same(p.result(last), expected)
        state, done, _ = p.advance(state, 1)
        assert done == 1
    assert picture(p, state) == picture(p, end)
