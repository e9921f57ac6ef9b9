"""What cannot be resumed is refused where it is decorated, with its line and what to do."""

import functools
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckio.programs.compiled import NotResumable, program
from ckio.programs.interface import primops

REFUSED = {
    "try": "try:\n    x = 1\nexcept ValueError:  # 2\n    pass",
    "with": "y = 1\nwith open(x) as f:\n    pass",
    "global": "global G\nG = 1",
    "function": "def g(y):\n    return y",
    "class": "class A:\n    pass",
    "match": "match x:\n    case 1:\n        pass",
    "del": "y = 1\ny = 2\ndel y",
    "import": "import math",
    "from": "from math import sqrt",
    "walrus": "while (y := x):\n    x -= y",
    "generator": "y = (i for i in x)",
    "kept lambda": "y = [lambda z: z]",
    "yield": "yield x",
    "while else": "while x:\n    x -= 1\nelse:\n    x = 3",
    "for else": "for i in x:\n    pass\nelse:\n    x = 3",
    "global array": "G[0] = 1.0",
    "global part": "G[0].T[1] += 1.0",
    "module": "np.seterr = 1",
    "in a tuple": "x, (G[1], *_) = 1, (2,)",
    "for target": "for G[0] in x:\n    pass",
    "out": "np.add(x, 1, out=G)",
    "alias": "y = G\nfor i in range(2):\n    y += x",
    "alias, a part": "y = G\ny[0] = 1.0",
    "alias, out": "y = z = G\nnp.add(x, 1.0, out=z)",
    "locals": "return locals()",
    "comprehension": "return [f(y) for y in x]",
    "generator of calls": "return sum(f(y) for y in x)",
    "target": "y = [0, 0]\ny[f(0)] = 1",
    "target of a change": "y = [0, 0]\ny[f(0)] += 1",
    "target of a loop": "y = [0, 0]\nfor y[f(0)] in x:\n    pass",
    "chain": "return 0 < f(x) < 1",
    "text": "return f'{f(x)}'",
}
LINES = {
    "target": 2,
    "target of a change": 2,
    "target of a loop": 2,
    "with": 2,
    "del": 3,
    "while else": 4,
    "for else": 4,
}


def load(path: Path, text: str) -> dict[str, Any]:
    """Run a file, and what it defines."""
    path.write_text(text, encoding="utf-8")
    space: dict[str, Any] = {"__name__": path.stem}
    exec(compile(text, str(path), "exec"), space)
    return space


HEAD = """\
import numpy as np
from ckio.programs.compiled import program

G = np.zeros(3)
"""


def test_it_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    for name, lines in REFUSED.items():
        body = textwrap.indent(lines, "    ")
        text = f"{HEAD}\n@program\ndef f(x):\n    # a comment\n{body}\n    return x\n"
        line = HEAD.count("\n") + 4 + LINES.get(name, 1)
        with pytest.raises(NotResumable) as caught:
            load(path, text)
        message = str(caught.value)
        assert message.startswith(f"{path}:{line}: program f: "), name
        assert "; " in message, name


def test_any_number_of_arguments_is_refused(tmp_path: Path) -> None:
    for signature in ("*args", "x, **options"):
        with pytest.raises(NotResumable, match="any number of arguments; name them"):
            load(tmp_path / "mine.py", f"{HEAD}\n@program\ndef f({signature}):\n    return 1\n")


def test_an_async_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotResumable, match="async function"):
        load(tmp_path / "mine.py", f"{HEAD}\n@program\nasync def f(x):\n    return 1\n")


def test_a_function_without_source_is_refused() -> None:
    space: dict[str, Any] = {}
    exec("def f(x):\n    return x", space)
    with pytest.raises(NotResumable, match=r"it has no source file.*write it into a file"):
        program(space["f"])


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    space = load(path, "def f(x, y):\n    return x\n")
    path.write_text("def f(z):\n    return z + 1.0\n\n", encoding="utf-8")
    with pytest.raises(NotResumable, match="has changed since it was imported"):
        program(space["f"])


MAKER = """\
from ckio.programs.compiled import program

def make(rate):
    @program
    def f(x):
        return x * rate
    return f
"""


def test_a_program_that_is_made_after_an_edit_is_refused(tmp_path: Path) -> None:
    """It would otherwise run as the file says by now, and the function itself as it was."""
    path = tmp_path / "mine.py"
    make = load(path, MAKER)["make"]
    assert primops(make(4.0), 2.0)[0] == make(4.0)(2.0) == 8.0
    for text in (
        *(MAKER.replace("x * rate", "x / rate"), MAKER.replace("def make", "\ndef make")),
        *(MAKER.replace("return x", "return (x"), "f = 1\n"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(NotResumable, match="has changed since it was imported; start Python"):
            make(4.0)
    path.write_text(MAKER, encoding="utf-8")
    assert primops(make(4.0), 2.0)[0] == 8.0


def test_a_method_is_refused() -> None:
    with pytest.raises(NotResumable, match=r"it is a method of .*Mine; write a function"):

        class Mine:
            @program
            def step(self, x):
                return x


def test_lambdas_and_other_objects_are_refused() -> None:
    with pytest.raises(NotResumable, match="a lambda cannot be a program; write it with def"):
        program(lambda x: x)
    with pytest.raises(NotResumable, match="needs a function, but this is a ufunc"):
        program(np.sin)
    with pytest.raises(NotResumable, match="this is a partial"):
        program(functools.partial(load, Path()))


def test_another_decorator_has_to_be_outside() -> None:
    def twice(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def wrapped(x):
            return f(f(x))

        return wrapped

    with pytest.raises(NotResumable, match="write @program in the line next to def"):

        @program
        @twice
        def f(x):
            return x


COUNT, TABLE = 3, np.ones(2)


def helper(x):
    try:
        return 1.0 / x
    except ZeroDivisionError:
        return 0.0


@program
def allowed(x, rows):
    """What looks alike and is fine."""
    own = np.zeros(2)
    own[0], own[1] = 1.0, helper(x)
    np.multiply(own, 2.0, out=own)
    key = 2.0
    best = min(rows, key=lambda row: abs(row - key))
    total = sum(row * key for row in rows) + sum([row * key for row in rows])
    same = {row: [key + 1 for key in rows] for row in rows}
    locals = key  # noqa: A001
    count, mine, other = COUNT, TABLE, TABLE.copy()
    count = COUNT
    count += 1
    mine = TABLE
    mine = mine + count
    other += 1.0
    same["mine"] = mine + other
    return own, best, total, same, key, locals


def test_what_is_fine_is_not_refused() -> None:
    expected = allowed(0.0, [1, 3])
    found = allowed.result(allowed.advance(allowed.start(0.0, [1, 3]))[0])
    assert repr(found) == repr(expected)
