"""The room that is set aside for two adjoints."""

import pytest

from ckio.errors import BadInput, NoSchedule
from ckio.planners.recover import aside
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain

CHAIN = Chain(steps=3, advance=1, record=1, reverse=1, restart=4, tape=4, adjoint=[1, 7, 2, 3])


def platform(capacity: int | None) -> Platform:
    return Platform(
        (Level(name="ram", capacity=9), Level(name="disk", capacity=capacity, ratio=1.5))
    )


@pytest.mark.parametrize(("capacity", "left"), [(22, 0), (100, 78), (None, None)])
def test_two_of_the_largest_adjoints_as_they_are_stored(
    capacity: int | None, left: int | None
) -> None:
    assert aside(platform(capacity), CHAIN, 1) == Platform(
        (Level(name="ram", capacity=9), Level(name="disk", capacity=left, ratio=1.5))
    )


def test_a_level_that_is_too_small_is_an_error() -> None:
    with pytest.raises(NoSchedule, match=r"two adjoints take 22 bytes of level disk.* 21"):
        aside(platform(21), CHAIN, 1)


@pytest.mark.parametrize("level", [-1, 2])
def test_a_level_that_there_is_not_is_an_error(level: int) -> None:
    with pytest.raises(BadInput, match=f"level = {level}"):
        aside(platform(50), CHAIN, level)
