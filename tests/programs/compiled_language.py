# ruff: noqa
"""What python has for those who write in it, in programs: most of it is strange on purpose."""

import math
from typing import Any

import numpy as np

from ckio.programs.compiled import CompiledProgram, program

G = 3.0


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
        if 0 < sub(i) < sub(i, y=3.0) < sub(i, k=9):
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
def nested_ifs(n):
    t = 0
    while True:
        n -= 1
        if n < 0:
            break
        for i in range(10):
            if i == n:
                continue
            if i > 4:
                break
            while t % 3:
                t += 1
                if t > 100:
                    return t
            else_ = t
            t += i if i % 2 else -i
        assert t > -1000, f"bad {t}"
    return t, else_


@program
def shadow(len, max=2):
    range = 0
    for x in [1, 2, 3]:
        range += x * max
    items = [range for range in [1, 2]]
    return len, range, items


@program
def closes_over(n):
    s = 0
    f = math.floor
    for i in range(n):
        s += f(i / 2)
    return s


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
        g = f"{sub(i):{int(sub(1, 1.0, k=0)) + 5}.{2}f} {sub(i)!r:>10}"
        h = -(sub(i) ** 2) // 3 @ np.eye(1) if False else 1
    return a, b, c, d, e, f, g, h


@program
def augs(n):
    a = np.zeros((3, 3))
    d = {"x": [1.0]}
    for i in range(n):
        a[i % 3, ...] += sub(i)
        a[sub(0, 0, k=0) : 2, None][0] += 1
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
def semis(n):
    a = 1
    b = 2
    for i in range(n):
        a += i
        b *= 2
    if a:
        pass
        c = 1
    else:
        c = 2
    return a, b, c


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
def loopvar_after(n):
    for i in range(n):
        for j in range(i):
            if j == 2:
                break
    return i, j


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


CASES: list[tuple[CompiledProgram, tuple[Any, ...]]] = [
    (kwonly, (1.0,)),
    (targets, (3,)),
    (chains, (7,)),
    (comps, (4,)),
    (stars, (3,)),
    (nested_ifs, (6,)),
    (shadow, (1,)),
    (closes_over, (4,)),
    (annotated, (1.0,)),
    (empty, ()),
    (justdoc, ()),
    (ret_none, (3,)),
    (ret_none, (0,)),
    (ternaries, (4,)),
    (augs, (4,)),
    (semis, (3,)),
    (unpack_loops, (1,)),
    (loopvar_after, (5,)),
    (modifies_list, (5,)),
    (dict_loop, (4,)),
    (gen_default, (4,)),
    (np_scalars, (1.0,)),
    (strs, (3,)),
]
