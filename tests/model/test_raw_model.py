"""The raw `Model` on docs/own_model.md: what belongs in the checkpoint of its adjoint."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import reverse_all

from ckio import check_gradient
from ckio.testing import a, restore, save, x

PAGE = (Path(__file__).parents[2] / "docs" / "own_model.md").read_text(encoding="utf-8")
CODE = Path(__file__).with_name("growth.py").read_text(encoding="utf-8")
STEPS = 50


@pytest.fixture
def growth() -> Callable[..., Any]:
    names: dict[str, Any] = {}
    exec(compile(CODE, "growth.py", "exec"), names)
    return names["Growth"]


def reference(make: Callable[..., Any]) -> Any:
    return reverse_all(make(), STEPS)


def resumed(make: Callable[..., Any], without: str = "") -> Any:
    """A new model with the adjoint of another one at step 20, with zeros for one field."""
    first, second = make(), make()
    start = save(second, x(0))
    first.record(0, STEPS)
    first.reverse(20, STEPS)
    names = [field.name for field in first.layout(a(20))]
    adjoint = dict(zip(names, save(first, a(20)), strict=True))
    if without:
        adjoint[without] = bytes(len(adjoint[without]))
    restore(second, a(20), list(adjoint.values()))
    restore(second, x(0), start)
    second.record(0, 20)
    second.reverse(0, 20)
    return second


def same(one: Any, other: Any) -> list[bool]:
    """Whether J, dJ/dx and dJ/drate are the same to the last bit."""
    gradients = [np.array_equal(one.gradient[name], other.gradient[name]) for name in ("x", "rate")]
    return [one.functional == other.functional, *gradients]


def test_the_page_shows_its_checkpoints():
    (block,) = re.findall(r"```python\n# growth\.py\n(.*?)```", PAGE, re.DOTALL)
    assert block in CODE


def test_the_gradient_is_right(growth):
    found = check_gradient(growth, STEPS, reference(growth).gradient)
    assert found.verified, found.summary()


@pytest.mark.parametrize(
    ("without", "right"),
    [
        ("", [True, True, True]),
        ("J", [False, True, True]),
        ("of_rate", [True, True, False]),
        ("of_x", [True, False, False]),
    ],
)
def test_a_resumed_adjoint_needs_each_field_of_its_checkpoint(growth, without, right):
    assert same(resumed(growth, without), reference(growth)) == right


def test_a_read_that_fails_leaves_the_model_as_it_was(growth):
    model = reference(growth)
    for key in (x(STEPS), a(0)):
        before = save(model, key)
        with pytest.raises(StopIteration):
            fail(model, key)
        assert save(model, key) == before


def fail(model, key):
    with model.load(key, model.layout(key)) as buffers:
        buffers[0][:] = bytes(len(buffers[0]))
        raise StopIteration
