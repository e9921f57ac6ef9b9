"""Programs against the plain functions that they are: bit for bit, from every tick on."""

import itertools
import math
import traceback
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ckio.errors import BadInput
from ckio.programs.compiled import CompiledProgram, program
from ckio.programs.interface import primops

from .running import check_every_tick, stored
from .solvers import SOLVERS
from .written import WRITTEN, aliases, even, idle, maybe_unset, tree, with_defaults

STEPS = SimpleNamespace(halve=lambda x: x / 2.0)

CASES = [*WRITTEN, *SOLVERS]


@pytest.mark.parametrize(
    ("p", "x"), CASES, ids=[f"{p.function.__name__}-{n}" for n, (p, _) in enumerate(CASES)]
)
def test_a_program_is_the_function_from_every_tick_on(
    p: CompiledProgram, x: tuple[Any, ...]
) -> None:
    check_every_tick(p, x)
    ticks = primops(p, *x)[1]
    assert isinstance(p.pullback(p.start(*x), ticks, {}), dict)  # what is taped is the same code


def test_ticks_pass_in_every_iteration_and_call() -> None:
    _, ticks, _ = idle.advance(idle.start(100))
    assert ticks >= 100 + 3 + 3 + 10
    _, ticks, _ = even.advance(even.start(50))
    assert ticks >= 100


@program
def forever():
    while True:
        pass


def test_a_loop_without_an_end_returns_after_its_limit() -> None:
    state, ticks, finished = forever.advance(forever.start(), 1000)
    assert (ticks, finished, state.ticks) == (1000, False, 1000)
    assert forever.pack(state)[0] == {}


@program
def deep(u, n):
    if n == 0:
        return u * 1.0
    v = u + 1.0
    return deep(u, n - 1) + v


@pytest.mark.slow
def test_recursion_is_as_deep_as_memory() -> None:
    state, _, finished = deep.advance(deep.start(np.zeros(1), 10_000), 15_000)
    assert not finished
    assert len(state.now) > 5_000
    end, _, finished = deep.advance(stored(deep, state))
    assert finished
    assert deep.result(end) == [10_000.0]


@program
def few_are_live(u, v, n):
    w = u * v
    unused = w + 1.0  # noqa: F841
    s = np.zeros(3)
    for i in range(n):
        s += w * i
        temporary = s * 2.0
        s = temporary / 2.0
    again = s + v
    return again.sum()


def test_only_live_variables_are_stored() -> None:
    x = (np.ones(3), np.ones(3), 3)
    state, seen = few_are_live.start(*x), []
    while True:
        arrays, meta = few_are_live.pack(state)
        seen.append((set(arrays), set(meta["values"])))
        if meta["at"] == "end":
            break
        state, _, _ = few_are_live.advance(state, 1)
    loop = {"0.s", "0.v", "0.w"}
    assert seen[0] == ({"x.0", "x.1"}, {"x"})
    assert all(arrays == loop for arrays, _ in seen[1:-2])
    assert all(names == {*loop, "0.@1", "0.@2"} for _, names in seen[1:-2])
    assert seen[-2][0] <= loop
    assert seen[-1] == (set(), {"y"})


@program
def caller(u, v):
    kept = u + 1.0
    given = u * 2.0
    got = callee(given, v)
    return kept * got


@program
def callee(u, v):
    for _ in range(3):
        u = u + v
    return u


def test_a_frame_that_waits_keeps_what_it_needs_afterwards() -> None:
    names = {
        name
        for n in range(2, 4)
        for name in caller.pack(caller.advance(caller.start(np.ones(2), np.ones(2)), n)[0])[0]
    }
    assert names == {"0.kept", "1.u", "1.v"}


@program
def assigned_anew(x, n):
    for _ in range(n):
        got = callee(x, x)
        x = got * 0.5
    return x


def test_a_variable_that_a_call_sets_is_not_kept_before() -> None:
    state = assigned_anew.start(np.ones(2), 3)
    loop, found = {"0.@1", "0.@2"}, set()
    while True:
        state, _, finished = assigned_anew.advance(state, 1)
        if finished:
            break
        names = set(assigned_anew.pack(state)[1]["values"])
        found.add(frozenset(name for name in names - loop if name.startswith("0.")))
    assert found == {frozenset(), frozenset({"0.x"}), frozenset({"0.@3"})}


def test_inputs_are_each_memory_of_their_own() -> None:
    u = np.ones(3)
    state = few_are_live.start(u, u, 1)
    assert set(few_are_live.pack(state)[0]) == {"x.0", "x.1"}
    u[:] = 7.0
    assert few_are_live.result(few_are_live.advance(state)[0]) == few_are_live(*[np.ones(3)] * 2, 1)


def test_a_result_is_no_part_of_its_state() -> None:
    end, _, _ = aliases.advance(aliases.start(np.arange(8.0)))
    aliases.result(end)[0][:] = -1.0
    assert not np.any(aliases.result(end)[0] == -1.0)


def test_a_state_that_is_not_the_end_has_no_result() -> None:
    with pytest.raises(BadInput, match="has not finished after 3 ticks"):
        tree.result(tree.advance(tree.start(1.0, 3), 3)[0])


# Errors


@program
def fails(x, n):
    total = 0.0
    for i in range(n):
        total += x / (2 - i)
    return total


def test_an_error_points_to_the_line_and_names_the_tick() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        fails.advance(fails.start(1.0, 5))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert (frames[-1].filename, frames[-1].name) == (__file__, "fails")
    assert frames[-1].line == "total += x / (2 - i)"
    assert caught.value.__notes__ == ["in tick 4 of a run, in the program fails"]


def test_an_unset_variable_is_reported_as_python_does() -> None:
    with pytest.raises(UnboundLocalError) as ours:
        maybe_unset.advance(maybe_unset.start(0))
    with pytest.raises(UnboundLocalError) as theirs:
        maybe_unset.function(0)
    assert str(ours.value) == str(theirs.value)
    assert traceback.extract_tb(ours.value.__traceback__)[-1].line == "return last"


@program
def refuses(x):
    if x < 0.0:
        raise ValueError(f"{x} is too small")
    assert x < 9.0, "too large"
    return math.sqrt(x)


def test_what_a_program_raises_is_raised() -> None:
    assert primops(refuses, 4.0)[0] == 2.0
    with pytest.raises(ValueError, match="too small"):
        primops(refuses, -1.0)
    with pytest.raises(AssertionError, match="too large"):
        primops(refuses, 10.0)


def test_wrong_arguments_are_refused_at_the_start() -> None:
    with pytest.raises(
        TypeError, match=r"tree\(\) missing 1 required positional argument: 'depth'"
    ):
        tree.start(1.0)
    with pytest.raises(TypeError):
        with_defaults.start(1.0, 2.0, 3.0)


@program
def over(rows):
    total = 0
    for row in rows:
        total += row
        if total > 3:
            break
    return total


@program
def counting(which):
    total = 0
    if which == 0:
        for x in itertools.count():
            total += x
    if which == 1:
        for x in iter_of(which):
            total += x
    if which == 2:
        for _, x in enumerate(itertools.cycle([1])):
            total += x
    if which == 3:
        for x in set("ab"):
            total += len(x)
    if which == 4:
        for x in map(abs, [-1]):
            total += x
    for x in itertools.repeat(2, 3):
        total += x
    return total


def iter_of(n: int) -> Any:
    yield n


def test_what_may_not_end_is_refused() -> None:
    for which, message in enumerate(
        ["in a count", "a generator", "in a cycle", "a set", "in a map"]
    ):
        with pytest.raises(BadInput, match=message) as caught:
            counting.advance(counting.start(which))
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert any(frame.name == "counting" and frame.line.startswith("for") for frame in frames)
    assert primops(counting, 9)[0] == 6


def test_a_loop_over_what_has_no_items_is_pythons_error() -> None:
    with pytest.raises(TypeError, match="'int' object is not iterable"):
        over.advance(over.start(3))


# Other states and changed code


def test_a_state_of_other_code_is_refused() -> None:
    arrays, meta = tree.pack(tree.advance(tree.start(0.7, 3), 4)[0])
    with pytest.raises(BadInput, match="has changed since"):
        idle.unpack(arrays, meta)
    with pytest.raises(BadInput, match="other code"):
        idle.advance(tree.advance(tree.start(0.7, 3), 4)[0])


def test_a_state_that_does_not_fit_is_refused() -> None:
    arrays, meta = tree.pack(tree.advance(tree.start(0.7, 3), 1)[0])
    tree.unpack(arrays, meta)
    for change in ({"at": [["tree", 99]]}, {"at": [["bush", 0]]}, {"at": "middle"}):
        with pytest.raises(BadInput):
            tree.unpack(arrays, meta | change)


def test_a_state_without_its_arrays_is_refused() -> None:
    arrays, meta = few_are_live.pack(few_are_live.start(np.ones(3), np.ones(3), 2))
    with pytest.raises(BadInput, match=r"x\.1"):
        few_are_live.unpack({"x.0": arrays["x.0"]}, meta)
    with pytest.raises(BadInput, match="of other code"):
        few_are_live.unpack({}, {})


@program
def makes_a_function(n):
    f = STEPS.halve
    for _ in range(n):
        x = f(1.0)
    return x


def test_what_a_checkpoint_cannot_hold_is_named() -> None:
    state, _, _ = makes_a_function.advance(makes_a_function.start(2))
    assert makes_a_function.result(state) == 0.5
    state, _, _ = makes_a_function.advance(makes_a_function.start(3), 2)
    with pytest.raises(BadInput, match=r"0\.f is a function"):
        makes_a_function.pack(state)


def test_programs_in_closures_and_modules_are_found() -> None:
    @program
    def inner(x):
        return x + 1.0 if x > 3.0 else inner(x + shift)

    shift = 0.5

    @program
    def outer(x):
        return inner(x) * 2.0

    state, _, _ = outer.advance(outer.start(1.0), 5)
    assert len(state.now) > 2
    assert outer.result(outer.advance(stored(outer, state))[0]) == outer(1.0) == 9.0


def test_what_a_program_names_may_be_defined_after_it() -> None:
    @program
    def first(x):
        factors = table
        return later(x) * factors[1]

    @program
    def later(x):
        return 2.0 * x

    table = np.array([1.0, 5.0])
    assert primops(first, 3.0)[0] == 30.0
