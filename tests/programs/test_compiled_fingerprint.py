"""A fingerprint is that of everything a program is made of, and of nothing else."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ckio
from ckio.errors import BadInput
from ckio.programs.compiled import program
from ckio.programs.tape import primitive

MODULE = '''\
import math
import numpy as np
import {name}_other as other
from functools import lru_cache, partial
from ckio.programs.compiled import program
from ckio.programs.tape import primitive

N = 3
TABLE = np.arange(4.0)
NAMES = ("a", 2.5, [1, {{"k": None}}])
def plain(x):
    """Documented."""
    return deeper(x) + N
def deeper(x, by=1.0):
    return x * by
scaled = partial(deeper, by=4.0)
class Law:
    """Of growth."""
    def __init__(self, rate):
        self.rate = rate
    shift = 0.25
    @property
    def twice(self):
        return 2 * self.rate
    @staticmethod
    def third(x):
        return x / 3
    def __call__(self, x):
        return self.rate * deeper(x) + self.twice + self.third(x)
class Steeper(Law):
    def __call__(self, x):
        return 2 * super().__call__(x)
steeper = Steeper(0.75)
law = Law(0.5)
@lru_cache
def cached(n):
    return n * 3
vectorized = np.vectorize(lambda v: v - 5 if v not in {{"some", "set", "of", "words"}} else v)
def chosen(n):
    return n in {{"p", "q", "r", "s"}}
@program
def called(x, k=2):
    """Of two numbers."""
    if x > 0 and k > 0:
        x = x * 2.0
    return x * k + TABLE[1]
@program
def f(x, n):
    # nothing
    for i in range(n):
        x = plain(x) + called(x) + len(NAMES) + other.shift(x) + scaled(x) + law(x) + steeper(x)
        x = x + cached(n) + vectorized(n) + chosen(n)
    return np.sin(x) + math.pi
'''
OTHER = "S = 1.0\ndef shift(x):\n    return x + S\n"
MADE = iter(range(10**6))


@pytest.fixture
def prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The fingerprint of f with something else in the text of its modules."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def found(*changes: tuple[str, str]) -> str:
        name = f"fingerprinted{next(MADE)}"
        text, other = MODULE.format(name=name), OTHER
        for old, new in changes:
            assert (old in text) != (old in other)
            text, other = text.replace(old, new), other.replace(old, new)
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        (tmp_path / f"{name}_other.py").write_text(other, encoding="utf-8")
        importlib.invalidate_caches()
        fingerprint: str = importlib.import_module(name).f.fingerprint
        return fingerprint

    return found


CHANGED = {
    "code": ("np.sin(x)", "np.cos(x)"),
    "a constant": ("N = 3", "N = 4"),
    "an array": ("np.arange(4.0)", "np.arange(4.0) + 1e-15"),
    "a dtype": ("np.arange(4.0)", "np.arange(4)"),
    "nested values": ("None", "0"),
    "a plain function": ("deeper(x) + N", "deeper(x) - N"),
    "one further on": ("return x * by", "return x + by"),
    "a default": ("by=1.0", "by=2.0"),
    "a program": ("x * k +", "x / k +"),
    "its default": ("k=2", "k=3"),
    "another module": ("return x + S", "return x - S"),
    "its constant": ("S = 1.0", "S = 1.5"),
    "a partial": ("by=4.0", "by=5.0"),
    "an object": ("Law(0.5)", "Law(0.25)"),
    "its class": ("self.rate * deeper", "self.rate / deeper"),
    "an attribute of its class": ("shift = 0.25", "shift = 0.5"),
    "a property": ("2 * self.rate", "3 * self.rate"),
    "a static method": ("x / 3", "x / 4"),
    "a class of which it is one": ("return 2 * super()", "return 3 * super()"),
    "where a program may stop": ("    if x > 0 and k > 0:\n", "    if x > 0:\n     if k > 0:\n"),
    "what is cached": ("n * 3", "n * 4"),
    "what is vectorized": ("v - 5", "v + 5"),
    "a set": ('"r", "s"', '"r", "t"'),
    "another function": ("math.pi", "math.e"),
}
SAME = {
    "nothing": (),
    "a comment": (("# nothing", "# something"),),
    "a line": (("@program\ndef f", "\n\n\n@program\ndef f"),),
    "layout": (("x * k + TABLE[1]", "(x * k\n        + TABLE[ 1 ])"),),
    "docstrings": (
        ("Documented.", "Documented well."),
        ("Of growth.", "Of decay."),
        ("Of two", "Of both"),
    ),
    "what is not used": (("N = 3", "N = 3\nM = 4\ndef unused(x):\n    return f"),),
}


def test_it_changes_with_all_that_a_program_is_made_of(prints: Any) -> None:
    same = prints()
    for name, change in CHANGED.items():
        assert prints(change) != same, name
    for name, changes in SAME.items():
        assert prints(*changes) == same, name


@program
def uses_globals(x):
    return x * FACTOR + helper(x)


FACTOR = 2.0


def helper(x):
    return x + 1.0


def doubled(x):
    return 2.0 * x


@program
def resumable_helper(x):
    while x > 1.0:
        x = x / 2.0
    return x


def test_it_follows_what_names_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    before = uses_globals.fingerprint
    assert uses_globals.fingerprint == before
    state = uses_globals.start(3.0)
    arrays, meta = uses_globals.pack(state)
    monkeypatch.setitem(globals(), "helper", doubled)
    assert uses_globals.fingerprint != before
    assert uses_globals.result(uses_globals.advance(state)[0]) == 12.0
    with pytest.raises(BadInput, match="the program, or something that it uses, has changed"):
        uses_globals.unpack(arrays, meta)
    monkeypatch.setitem(globals(), "helper", resumable_helper)
    end, ticks, _ = uses_globals.advance(uses_globals.start(3.0))
    assert uses_globals.result(end) == 6.75
    assert ticks > 3
    monkeypatch.undo()
    assert uses_globals.fingerprint == before
    uses_globals.unpack(arrays, meta)


def test_closures_count() -> None:
    def made(rate: Any) -> Any:
        @program
        def f(x):
            return x * rate

        return f

    assert made(2.0).fingerprint == made(2.0).fingerprint
    assert made(2.0).fingerprint != made(3.0).fingerprint
    assert made(np.ones(2)).fingerprint != made(np.zeros(2)).fingerprint
    assert made(helper).fingerprint != made(doubled).fingerprint


def test_programs_of_one_name_are_told_apart() -> None:
    def made(inner: Any, rate: float) -> Any:
        @program
        def f(x):
            x = x * rate
            return inner(x) if inner else x

        return f

    one = made(made(made(None, 2.0), 3.0), 5.0)
    state, _, _ = one.advance(one.start(1.0), 4)
    assert len(state.now) == 3
    arrays, meta = one.pack(state)
    assert one.result(one.advance(one.unpack(arrays, json.loads(json.dumps(meta))))[0]) == 30.0


@pytest.mark.slow
def test_it_is_the_same_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(MODULE.format(name="elsewhere"), encoding="utf-8")
    (tmp_path / "elsewhere_other.py").write_text(OTHER, encoding="utf-8")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import elsewhere; print(elsewhere.f.fingerprint)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(found.pop()) == 17


def test_the_adjoint_of_a_primitive_counts() -> None:
    def made(factor: float) -> Any:
        def vjp(result, x):
            return lambda cotangent: (cotangent * factor * x,)

        @primitive(vjp=vjp)
        def square(x):
            return x * x

        @program
        def f(x):
            return square(x)

        return f

    assert made(2.0).fingerprint == made(2.0).fingerprint
    assert made(2.0).fingerprint != made(3.0).fingerprint


def test_another_version_of_ckio_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may divide a program into other blocks, so that a state would go on elsewhere."""
    before = program(resumable_helper.function).fingerprint
    assert before == resumable_helper.fingerprint
    monkeypatch.setattr(ckio, "__version__", "0.0.1")
    assert program(resumable_helper.function).fingerprint != before
