"""Arguments of a wrong kind, or in a wrong order, are said before anything is done."""

from typing import Any

import numpy as np
import pytest

from ckio import ArrayModel, Chain, Level, Platform, Ram, run
from ckio.adapters.registry import find
from ckio.errors import BadInput
from ckio.planners import store_all
from ckio.runner import perform

CHAIN = Chain(steps=2, advance=1.0, record=1.0, reverse=1.0, restart=8, tape=8, adjoint=8)
PLATFORM = Platform((Level(name="ram"),))


@pytest.mark.parametrize("order", [(1, 0, 2, 3), (0, 1, 3, 2), (2, 0, 1, 3), (0, 1, 2, 0)])
@pytest.mark.parametrize("call", [run, perform])
def test_arguments_in_another_order(order: tuple[int, ...], call: Any) -> None:
    class Model:
        def advance(self, begin: int, end: int) -> int:
            raise AssertionError

    given = store_all(CHAIN, PLATFORM), PLATFORM, Model(), [Ram()]
    with pytest.raises(BadInput, match="give a schedule, a platform, a model and a list of open"):
        list(call(*(given[number] for number in order)))


def test_levels_of_a_platform() -> None:
    with pytest.raises(BadInput, match=r"give a sequence: Platform\(\(level,\)\)"):
        Platform(Level(name="ram"))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="each must be a Level"):
        Platform(("ram",))  # type: ignore[arg-type]


def test_memory_is_no_directory() -> None:
    with pytest.raises(BadInput, match=r"no backend is named 'memory'; known: .*ram"):
        find("backends", "memory")


@pytest.mark.parametrize("what", ["state", "control"])
def test_a_masked_array_is_refused_and_one_without_masked_elements_is_not(what: str) -> None:
    class Model(ArrayModel):
        def step(self, state: Any, i: int, /) -> None: ...

        def adjoint_step(self, adjoint: Any, tape: Any, i: int, /) -> None: ...

    def made(array: Any) -> Model:
        given = {"state": np.ones(3), "control": np.ones(3)} | {what: array}
        return Model({"u": given["state"], "J": 0.0}, control={"u": given["control"]})

    masked = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
    with pytest.raises(BadInput, match=r"'u' is a masked array, .* give array\.filled"):
        made(masked)
    assert made(np.ma.masked_array([1.0, 2.0, 3.0])).control["u"].shape == (3,)
