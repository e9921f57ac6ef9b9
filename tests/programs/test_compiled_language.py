"""Python as people write it, as programs: its statements, lambdas, defaults and random numbers."""

import functools
import re

import numpy as np
import pytest

from ckio.errors import BadInput
from ckio.programs.compiled import NotResumable, program
from ckio.programs.interface import primops, vjp

# Lambdas and generators read variables when they are called


@program
def late(n):
    calls, i = [], 0
    calls.append(lambda: i)
    while i < n:
        i += 1
    return calls[0]()


@program
def late_in_a_map(n):
    k = 1
    shifted = map(lambda v: v + k, [1, 2])  # noqa: C417
    while k < n:
        k += 1
    return list(shifted)


@program
def late_generator(n):
    k = 1
    rest = iter(v * k for v in range(3))
    while k < n:
        k += 1
    return list(rest)


@program
def late_and_not_set(n):
    calls = []
    for i in range(n):
        calls.append(lambda: word)  # noqa: B023
        if i > 5:
            word = "set"
    return calls[0]()


def test_what_would_be_read_later_raises_rather_than_be_wrong() -> None:
    for p in (late, late_in_a_map, late_generator, late_and_not_set):
        with pytest.raises(NameError) as caught:
            p.advance(p.start(3))
        assert "must not be used after its statement" in caught.value.__notes__[-1]


@program
def iterated(f, x, n):
    for _ in range(n):
        x = f(x)
    return x


@program
def in_time(x, k, shift):
    for _ in range(2):
        k = k + 1
        x = iterated(lambda v: v * k, x, 2)  # noqa: B023 - given to a program
        order = sorted([3, 1, 2], key=lambda t: -t * k)
        z = sum(t * k for t in order)
        if any(t > k for t in order):
            x = x + 1
    calls = [shift]
    calls.append(functools.partial(lambda a, b: a + b + shift, 1))  # of what never changes
    for _ in range(2):
        z = z + calls[1](1)
    return x, z


def test_what_is_read_at_once_is_fine() -> None:
    expected = in_time(1.0, 2.1, 0.5)
    assert primops(in_time, 1.0, 2.1, 0.5)[0] == expected
    y, (_, k_bar, _) = vjp(in_time, (1.0, 2.1, 0.5), (1.0, 0.0))
    assert y == expected
    h = 1e-6
    difference = in_time(1.0, 2.1 + h, 0.5)[0] - in_time(1.0, 2.1 - h, 0.5)[0]
    assert k_bar == pytest.approx(difference / (2 * h))


# Defaults


def remembers_a_dict(x, memo={}):  # noqa: B006
    return memo.setdefault(x, len(memo))


def remembers_a_list(x, *, log=[]):  # noqa: B006
    return log


def remembers_random_numbers(x, rng=np.random.default_rng(1)):  # noqa: B008
    return x + rng.normal()


def adds_to_an_array(x, total=np.zeros(2)):  # noqa: B008
    total += x
    return total


def sets_an_item(x, total=np.zeros(2)):  # noqa: B008
    total[0] = x
    return total


def writes_by_out(x, total=np.zeros(2)):  # noqa: B008
    return np.add(total, x, out=total)


def test_a_default_that_remembers_is_refused() -> None:
    for function in (
        *(remembers_a_dict, remembers_a_list, remembers_random_numbers),
        *(adds_to_an_array, sets_an_item, writes_by_out),
    ):
        with pytest.raises(NotResumable, match="for all calls; make it None"):
            program(function)


RNG = np.random.default_rng(0)


def noise() -> float:
    return float(np.random.rand())


@program
def of_global_numbers(x):
    return x + RNG.normal()


@program
def of_numpys_numbers(x):
    return x + noise()


@program
def of_given_numbers(x, rng):
    again = np.random.default_rng(3)
    for _ in range(3):
        x = x + rng.normal() + again.normal()
    return x


def test_random_numbers_that_go_on_between_runs_are_refused() -> None:
    with pytest.raises(BadInput, match=r"RNG.normal in of_global_numbers is random"):
        of_global_numbers.start(1.0)
    with pytest.raises(BadInput, match=r"np.random.rand in noise is random"):
        of_numpys_numbers.start(1.0)
    given = [of_given_numbers(1.0, np.random.default_rng(7)) for _ in range(2)]
    assert primops(of_given_numbers, 1.0, np.random.default_rng(7))[0] == given[0] == given[1]


# What a limit is, and states that are too deep


@program
def linked(n):
    stack, total = None, 0
    for i in range(n):
        stack = (i, stack)
    while stack is not None:
        total += stack[0]
        stack = stack[1]
    return total


def test_a_limit_that_is_no_whole_number_is_not_passed() -> None:
    state = linked.start(9)
    assert [linked.advance(state, limit)[1] for limit in (2.5, 0.9, True, np.int64(2), -1)] == [
        2, 0, 1, 2, 0,
    ]  # fmt: skip


def test_what_is_too_deep_is_refused_in_words() -> None:
    assert primops(linked, 3000)[0] == linked(3000)
    state, _, _ = linked.advance(linked.start(3000), 2999)
    for use in (linked.pack, linked.advance):
        with pytest.raises(BadInput, match=r"0\.stack has .* too deep"):
            use(state)


# What a loop writes into what it goes over


@program
def shifted(u, rows):
    """Each item is taken when its turn comes, as python does it."""
    found = []
    for i, value in enumerate(u):
        u[(i + 1) % len(u)] += value
        found.append(value)
    for number, (value, row) in enumerate(zip(u, rows, strict=False), 2):
        u[-1] += number * value
        rows.append(row + 1)
        if len(rows) > 9:
            break
        found.append(value + row)
    for value, (k, other) in zip(u, enumerate(u), strict=True):
        u[:] += 0.5 * value + k
        found.append(other)
    return np.stack(found).sum(), u


@program
def unequal(u, v):
    total = 0.0
    for a, b in zip(u, v, strict=True):
        total = total + a * b
    return total


def test_items_are_what_they_are_when_their_turn_comes() -> None:
    u = np.linspace(0.1, 0.5, 5)
    wanted = shifted(u.copy(), [1.0, 2.0, 3.0])
    state = shifted.start(u, [1.0, 2.0, 3.0])
    while True:
        state, _, finished = shifted.advance(state, 1)
        state = shifted.unpack(*shifted.pack(state))
        if finished:
            break
    found = shifted.result(state)
    assert found[0] == wanted[0]
    assert found[1].tolist() == wanted[1].tolist()
    _, (bar, _) = vjp(shifted, (u, [1.0, 2.0, 3.0]), (1.0, np.ones(5)))
    step = 1e-6 * np.arange(1.0, 6.0)
    ends = [shifted(u + h * step, [1.0, 2.0, 3.0]) for h in (1, -1)]
    slope = sum(s * (e[0] + e[1].sum()) for s, e in zip((0.5, -0.5), ends, strict=True))
    assert np.dot(bar, step) == pytest.approx(slope, rel=1e-6)


def test_rows_that_must_end_together() -> None:
    for lengths in ((3, 3), (3, 2), (2, 3), (0, 1), (0, 0)):
        check_rows(*(np.ones(length) for length in lengths))


def check_rows(u: np.ndarray, v: np.ndarray) -> None:
    try:
        wanted = unequal(u, v)
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            primops(unequal, u, v)
    else:
        assert primops(unequal, u, v)[0] == wanted
