"""Verdicts on 1,000 random wrong gradients, and on right ones, in single and double precision.

It takes about six minutes.
"""

from collections import Counter

import numpy as np

from bench import record
from ckio import ArrayModel, check_gradient

WRONG, RIGHT, STEPS = 1000, 500, 10
DECADES = ((-2, 0), (-4, -2), (-6, -4), (-8, -6), (-10, -8))


class Waves(ArrayModel):
    """Amplitudes u' = w + a f sin w with w = u (1 + a k), and J = Σ u² over all steps.

    dJ/J is about `a` times the relative change of k or f. The parts of step `at` in the gradient of
    k and f are multiplied by `factor`.
    """

    def __init__(self, dtype, a, *, at=-1, factor=1.0):
        u, k = np.linspace(0.5, 1.5, 8).astype(dtype), np.full(8, 0.5, dtype)
        self.a, self.at, self.factor = dtype(a), at, dtype(factor)
        super().__init__(
            {"u": u, "J": np.zeros((), dtype)},
            control={"u": u, "k": k, "f": np.asarray(0.3, dtype)},
            tape=["u"],
        )

    def step(self, state, i):
        u = state["u"]
        u *= 1 + self.a * self.control["k"]
        u += self.a * self.control["f"] * np.sin(u)
        state["J"] += (u**2).sum()

    def adjoint_step(self, adjoint, tape, i):
        u, bar = tape["u"], adjoint["u"]
        part = self.factor if i == self.at else 1
        w = u * (1 + self.a * self.control["k"])
        bar += 2 * (w + self.a * self.control["f"] * np.sin(w)) * adjoint["J"]
        self.gradient["f"] += part * (self.a * np.sin(w) * bar).sum()
        bar *= 1 + self.a * self.control["f"] * np.cos(w)
        self.gradient["k"] += part * self.a * u * bar
        bar *= 1 + self.a * self.control["k"]


def verdict(number, random, *, wrong):
    """Return the dtype, the decades of dJ/J, and the verdict on one random gradient."""
    dtype = (np.float32, np.float64)[number % 2]
    low, high = DECADES[number // 2 % len(DECADES)]
    a = 10 ** random.uniform(low, high) / STEPS
    factor = 1 + random.choice((-1, 1)) * 10 ** random.uniform(-3, 0) if wrong else 1.0
    in_step, at = random.random() < 0.5, int(random.integers(STEPS))
    model = Waves(dtype, a, at=at if in_step else -1, factor=factor)
    model.record(0, STEPS)
    model.reverse(0, STEPS)
    gradient = dict(model.gradient)
    if not in_step:
        name = random.choice(list(gradient))
        gradient[name] = (gradient[name] * factor).astype(dtype)
    check = check_gradient(lambda: Waves(dtype, a), STEPS, gradient, seed=number)
    return dtype.__name__, (low, high), check.verdict


def table(wrong=WRONG, right=RIGHT):
    random = np.random.default_rng(43)
    rows = []
    for is_wrong, total in ((True, wrong), (False, right)):
        found = Counter(verdict(number, random, wrong=is_wrong) for number in range(total))
        for dtype in ("float64", "float32"):
            for low, high in reversed(DECADES):
                counts = [
                    found[dtype, (low, high), word]
                    for word in ("verified", "inconclusive", "wrong")
                ]
                kind = "wrong" if is_wrong else "right"
                row = (f"{kind}, {dtype}", f"1e{low} to 1e{high}", *map(str, counts))
                rows.append(row)
    header = ("gradient", "dJ/J", "verified", "inconclusive", "wrong")
    return record.columns(header, rows)


if __name__ == "__main__":
    record.main("gradient_check", table)
