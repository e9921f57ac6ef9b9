"""Programs as objects: pickled, loaded again, interrupted, and used by several threads."""

import _thread
import copy
import doctest
import importlib
import json
import pickle
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from ckio.errors import BadInput
from ckio.programs.compiled import CompiledProgram, program
from ckio.programs.interface import primops

from .running import picture, stored


@program
def halting(n):
    while n > 1:
        n = n - 1
    return n


def test_programs_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(halting)) is halting
    assert copy.deepcopy(halting) is halting


def in_a_doctest() -> None:
    """
    >>> @program
    ... def doubled(x):
    ...     while x < 10:
    ...         x = x * 2
    ...     return x
    >>> doubled(1), primops(doubled, 1)
    (16, (16, 6))
    """


def test_programs_are_written_in_doctests() -> None:
    (found,) = doctest.DocTestFinder().find(in_a_doctest, "it", globs=globals())
    assert doctest.DocTestRunner(verbose=False).run(found) == (0, 2)


# Modules

EVEN = """
from ckio.programs.compiled import program
import {odd} as other
@program
def even(n):
    return True if n == 0 else other.odd(n - 1)
@program
def halves(x, n):
    for _ in range(n):
        x = half(x)
    return x
def half(x):
    return x * 0.5
"""
ODD = """
from ckio.programs.compiled import program
import {even} as other
@program
def odd(n):
    return n != 0 and other.even(n - 1)
"""
MADE = iter(range(10**6))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Two modules that import each other; the first of them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions within a second
    number = next(MADE)
    names = {"even": f"even_module{number}", "odd": f"odd_module{number}"}
    (tmp_path / f"{names['even']}.py").write_text(EVEN.format(**names), encoding="utf-8")
    (tmp_path / f"{names['odd']}.py").write_text(ODD.format(**names), encoding="utf-8")
    importlib.invalidate_caches()
    return importlib.import_module(names["even"])


def test_programs_of_two_modules_call_each_other(module: ModuleType) -> None:
    state, _, _ = module.even.advance(module.even.start(6), 5)
    assert {frame.code.name for frame in state.now} == {"even", "odd"}
    assert module.even.result(module.even.advance(stored(module.even, state))[0]) is True


def test_a_module_is_loaded_again(module: ModuleType) -> None:
    before = module.halves
    state, _, _ = before.advance(before.start(8.0, 3), 2)
    packed = before.pack(state)
    importlib.reload(module)
    assert module.halves is not before
    with pytest.raises(BadInput, match="other code"):
        module.halves.advance(state)
    for p in (before, module.halves):
        assert p.result(p.advance(p.unpack(*packed))[0]) == 1.0


def test_a_file_that_changes_is_not_what_runs(module: ModuleType) -> None:
    """The fingerprint is that of the code in memory, whatever the file says by now."""
    assert module.__file__ is not None
    path, old = Path(module.__file__), module.halves.fingerprint
    text = path.read_text(encoding="utf-8")
    importlib.reload(module)
    path.write_text(text.replace("0.5", "0.25"), encoding="utf-8")
    edited = module.halves.fingerprint
    assert primops(module.halves, 8.0, 1)[0] == 4.0
    importlib.reload(module)
    assert primops(module.halves, 8.0, 1)[0] == 2.0
    assert module.halves.fingerprint not in (old, edited)
    path.write_text(text, encoding="utf-8")
    importlib.reload(module)
    assert module.halves.fingerprint == old


# Interrupts and threads


@program
def long(u, n):
    inner = u[1:]
    for _ in range(n):
        inner += 1.0
    return u


@pytest.mark.parametrize("taped", [False, True])
def test_an_interrupt_leaves_everything_as_it_was(taped: bool) -> None:
    state, _, _ = long.advance(long.start(np.zeros(4), 10**9), 5)
    before = picture(long, state)
    threading.Timer(0.2, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        if taped:
            long.pullback(state, 10**8, {})
        else:
            long.advance(state)
    assert picture(long, state) == before
    assert long.advance(state, 3)[1:] == (3, False)
    assert long.pullback(state, 3, {"0.inner": np.ones(4)})["0.inner"].tolist() == [1.0] * 4


def test_an_interrupt_while_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    p = nested()
    with monkeypatch.context() as patch:
        patch.setattr(CompiledProgram, "renew", lambda _: _thread.interrupt_main())
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            p.start(0)
            threading.Event().wait(1.0)
    renewed = []
    renew = CompiledProgram.renew
    monkeypatch.setattr(CompiledProgram, "renew", lambda it: (renewed.append(it), renew(it)))
    assert primops(p, 0)[0] == 20
    assert len(renewed) == 2  # what was interrupted is done again


def nested() -> CompiledProgram:
    """A program that nobody has used yet."""

    @program
    def outer(x):
        for _ in range(20):
            x = inner(x)
        return x

    @program
    def inner(x):
        return x + 1

    return outer


def test_threads_may_use_a_program_first_at_the_same_time() -> None:
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    results: list[Any] = []
    try:
        for _ in range(30):
            p, barrier = nested(), threading.Barrier(4)

            def use(p: CompiledProgram = p, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                state = p.start(0)
                for _ in range(5):
                    state, _, _ = p.advance(stored(p, state), 3)
                results.append(p.result(p.advance(state)[0]))

            threads = [threading.Thread(target=use) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(switching)
    assert results == [20] * 120


class Pair(NamedTuple):
    """Which a program never names."""

    u: float
    rate: Any


def doubled(u):
    return 2 * u


TABLE = {"doubled": doubled, "sine": np.sin}


@program
def by_reference(pair, name):
    i = 0
    kind, function, other = type(pair.u), TABLE[name], np.cos
    while i < 3:
        pair = pair._replace(u=kind(function(pair.rate(other(pair.u)))))
        i = i + 1
    return pair.u


@program
def by_name(u, name):
    i = 0
    function = getattr(np, name)
    while i < 3:
        u = function(u)
        i = i + 1
    return u


def test_a_state_has_only_functions_and_classes_of_the_code_and_of_the_inputs() -> None:
    for name in TABLE:
        x = Pair(0.3, np.square), name
        arrays, meta = by_reference.pack(by_reference.advance(by_reference.start(*x), 2)[0])
        another = program(by_reference.function)
        with pytest.raises(BadInput, match="Pair, which is neither"):
            another.unpack(arrays, meta)
        another.start(*x)
        end, _, _ = another.advance(another.unpack(arrays, meta))
        assert another.result(end) == by_reference(*x)
        text = json.dumps(meta)
        for function in ("numpy:square", f"{__name__}:Pair"):
            assert function in text
            for forged in ("os:system", "numpy:load", f"{__name__}:module"):
                with pytest.raises(BadInput, match=f"was {forged}, which is neither"):
                    another.unpack(arrays, json.loads(text.replace(function, forged)))
        forged = text.replace(f"{__name__}:Pair", f"{__name__}:doubled")
        with pytest.raises(BadInput, match="no named tuple"):
            another.unpack(arrays, json.loads(forged))
    with pytest.raises(BadInput, match="numpy:sin, which is neither"):
        by_name.pack(by_name.advance(by_name.start(0.3, "sin"), 2)[0])
