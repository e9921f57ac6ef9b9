# ruff: noqa
"""What Python has for those who write in it, in programs: most of it is strange on purpose."""

import math
from typing import Any

import numpy as np

from ckio.programs.compiled import CompiledProgram, program

G = 3.0


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
def over_everything(a, d):
    total, seen = 0.0, []
    for row in a:
        row *= 2.0
        for value in row:
            total += value
    for key in d:
        seen.append(key + "!")
    for key, value in d.items():
        seen.append((key, value))
    for value in d.values():
        total += value
    for i, (x, y) in enumerate(zip(range(3), range(5, 99), strict=False)):
        total += i * x - y
    for x in reversed([1.0, 2.0]):
        total = total / x
    for letter in "ab":
        seen.append(letter * 2)
    for x in list(map(abs, [-1, -2])):
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
    a[plain_push(log, 1)] += push(log, 10.0) + plain_push(log, a[1])
    a[plain_push(log, 0)], a[plain_push(log, 2)] = push(log, 5.0), plain_push(log, 6.0)
    e = a.sum() + push(log, a.mean()) * len(log)
    a[1:3] *= push(log, 2.0)
    f = plain_push(log, 1) < push(log, 2) and push(log, 2) < push(log, 2)
    g = push(log, 0) or push(log, "") or plain_push(log, []) or push(log, "last")
    h = push(log, 1) and plain_push(log, 0) and push(log, "never")
    i = push(log, "yes") if push(log, n > 2) else push(log, "no")
    j = "%.3f %r" % (plain_push(log, 1.5), push(log, "text"))  # noqa: UP031
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
    u = list(map(lambda v, w=plain_push(log, "default"): [v, w], push(log, [1, 2])))  # noqa: B008
    return log, a, b, c, d, e, f, g, h, i, j, k, m, p, r, s, t, u


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
        unused: int
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


@program
def sub(x, /, y=2.0, *, k=3):
    for _ in range(2):
        x = x + k
    return x * y


@program
def kwonly(a, *, b=np.arange(3.0), c: "float" = G):
    "doc"
    "another string"
    for i in range(2):
        a = a + b * c
    return a


@program
def targets(n):
    d = {}
    a = [0] * 5
    for i in range(n):
        (x, (y, *z)), w = (i, (i + 1, 2, 3)), [i]
        [p, q] = w[0], i
        d[i % 2], a[i] = (x, y), z
        a[1:4:2] = [i, i]
        a[::-1][0] = 7
        *first, last = range(i + 2)
        e = f = g = [i]
        e.append(i)
        d["k"] = d.get("k", 0) + len(first)
        d["k"] += 2
        del_ = last
    return d, a, p, q, e, f is g, del_, x, w


@program
def chains(n):
    out = []
    for i in range(n):
        if 0 < i <= 3 != 5 > i:
            out.append(i)
        elif i in (4, 5) and not i is None:
            out.append(-i)
        else:
            out += [f"{i:>{n}} {G!r} {out[-1:] or None}"]
        if sub(i) > 0 and sub(i) < sub(i, y=3.0) and sub(i, y=3.0) < sub(i, k=9):
            out.append("big")
    return out


@program
def comps(n):
    k = 2
    rows = [[i * k for i in range(j) if i % k == 0] for j in range(n)]
    for _ in range(2):
        d = {key: v * k for key, v in enumerate(rows)}
        s = sorted(d, key=lambda t: (-len(d[t]), t * k))
        m = max(rows, key=lambda r, kk=k: len(r) * kk)
        k = k + 1
        t = tuple(x for x in range(k))
        st = list({x % 2 for x in range(k)})
        f = list(map(lambda x: x + k, s))
        gg = any(x > n for x in s)
        r = [i for i in range(3)]
        i = 5
    return rows, d, s, m, k, t, sorted(st), f, gg, r, i


@program
def stars(n):
    a = [1, 2]
    for i in range(n):
        a = [*a, *range(i), i]
        b = (*a, *sub(np.arange(2.0)))
        c = {**{"x": 1}, "y": a[-1], **{"x": i}}
        d = (
            dict(
                x=1,
                **c,
            )
            if "x" not in c
            else dict(**c)
        )
        e = max(*a, 3)
        z = sub(*[1.0], **{"k": i})
        zz = sub(*(1.0, 2), **dict(k=2))
    return a, b, c, d, e, z, zz


@program
def shadow(len, max=2):
    range = 0
    for x in [1, 2, 3]:
        range += x * max
    items = [range for range in [1, 2]]
    return len, range, items


@program
def annotated(x: float, n: "undefined_name" = 3) -> "also undefined":
    y: float = x
    z: undefined_annotation
    (y): int = 4.0
    u = np.zeros(3)
    u[1]: float = 3
    for i in range(n):
        y += x
    return y, u


@program
def empty():
    pass


@program
def justdoc():
    """hi"""


@program
def ret_none(n):
    while n:
        n -= 1
        if n == 1:
            return


@program
def ternaries(n):
    a = 0
    for i in range(n):
        a += (sub(i) if i % 2 else sub(i, 1)) if i else -1
        b = i and sub(i) or sub(2)
        c = (i, sub(i))[sub(i) > 3]
        d = [sub(i)][0 : int(sub(1)) : int(sub(0, 1, k=1))]
        e = {"k": sub(i)}["k"]
        f = not sub(i)
        g = "%.2f %10r" % (sub(i), sub(i))  # noqa: UP031
        h = -(sub(i) ** 2) // 3 @ np.eye(1) if False else 1
    return a, b, c, d, e, f, g, h


@program
def augs(n):
    a = np.zeros((3, 3))
    d = {"x": [1.0]}
    for i in range(n):
        a[i % 3, ...] += sub(i)
        a[:2, None][0] += sub(0, 0, k=0) + 1
        a[:, i % 3] *= a[i % 3, ::-1]
        d["x"] += [sub(i)]
        d["x"][0] **= sub(1, 1.0, k=0)
        a.T[0] += i
        a @= np.eye(3) * 0.5
        i <<= 2
        a[a > 1] = 0.5
        a[[0, 1], [1, 2]] += 1
    return a, d, i


@program
def unpack_loops(n):
    out = []
    for i, (a, b) in enumerate(zip("abc", [1, 2, 3])):
        for k, *v in [(1, 2, 3), (4,)]:
            out.append((i, a, b, k, v))
    for out2 in out:
        pass
    for x in (1,):
        ...
    for i in range(3):
        i = i * 10
        out.append(i)
    return out, out2, i, x


@program
def modifies_list(n):
    xs = list(range(n))
    for x in xs:
        if x % 2:
            xs.remove(x)
    return xs


@program
def dict_loop(n):
    d = {i: i for i in range(n)}
    s = []
    for k in d:
        d[k] = -k
        s.append(d[k])
    for k in list(d):
        d.pop(k)
        break
    for k, v in sorted(d.items()):
        s.append(v)
    return s, d


@program
def gen_default(n, rng=None):
    rng = np.random.default_rng(n) if rng is None else rng
    s = 0.0
    for _ in range(n):
        s = s + rng.normal()
    return s


@program
def np_scalars(x):
    for i in np.arange(3):
        x = x + i
    for row in np.eye(2):
        x = x + row[0]
    y = np.float32(1)
    for j in np.array([1.5, 2.5], dtype=np.float32):
        y = y * j
    z = np.int8(100)
    for b in (True, np.bool_(False)):
        z = z ^ b
    return x, y, z


@program
def strs(n):
    s = ""
    for i in range(n):
        s += f"{i}xy"
        s = s.replace("0", "zero") % () if False else s
    return s, b"bytes"[1:], r"\d", "ü"


WRITTEN: list[tuple[CompiledProgram, tuple[Any, ...]]] = [
    (tree, (0.7, 4)),
    (ackermann, (2, 2)),
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
    (kwonly, (1.0,)),
    (targets, (3,)),
    (chains, (7,)),
    (comps, (4,)),
    (stars, (3,)),
    (shadow, (1,)),
    (annotated, (1.0,)),
    (empty, ()),
    (justdoc, ()),
    (ret_none, (3,)),
    (ret_none, (0,)),
    (ternaries, (4,)),
    (augs, (4,)),
    (unpack_loops, (1,)),
    (modifies_list, (5,)),
    (dict_loop, (4,)),
    (gen_default, (4,)),
    (np_scalars, (1.0,)),
    (strs, (3,)),
]
