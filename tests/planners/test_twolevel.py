"""Two-level: blocks between far checkpoints, and the period that is best for them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.recurrences import revolve_forward_steps

from ckio.actions import Write
from ckio.errors import BadInput, NoSchedule
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve
from ckio.planners.literature import two_level
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import counts, makespan

from .cases import chain, completed, platform


def planned(chain: Chain, platform: Platform, **options: object) -> float:
    return completed(two_level(chain, platform, **options), platform)  # type: ignore[arg-type]


def test_a_far_checkpoint_is_written_every_period_before_the_last_block() -> None:
    for steps, last in ((12, 8), (13, 12), (4, 0)):
        schedule = two_level(chain(steps), platform((2, 0, 0), (9, 5, 5)), period=4)
        written = [a.key.step for a in schedule.actions if isinstance(a, Write) and a.level == 1]
        assert written == list(range(0, last, 4))


def test_a_block_is_reversed_by_revolve_in_the_near_slots() -> None:
    found = counts(two_level(chain(100), platform((3, 0, 0), (9, 5, 5)), period=25))
    assert found.forward == 3 * 25 + 4 * revolve_forward_steps(25, 3)
    assert (found.levels[1].writes, found.levels[1].reads) == (3, 3)
    assert found.levels[0].peak == 3


@settings(max_examples=15)
@given(
    st.builds(chain, st.integers(1, 30), advance=st.integers(0, 3)),
    st.integers(1, 5),
    st.integers(1, 6),
    st.tuples(st.integers(0, 30), st.integers(0, 30)),
)
def test_the_period_is_the_best_of_those_that_fit(
    chain: Chain, slots: int, far: int, costs: tuple[int, int]
) -> None:
    machine = platform((slots, 0, 0), (far, *costs))
    seconds = [
        planned(chain, machine, period=period)
        for period in range(1, chain.length + 1)
        if (chain.length - 1) // period <= far
    ]
    best = planned(chain, machine)
    assert best == min(seconds)
    assert best >= makespan(hrevolve(chain, machine), machine)


def test_without_a_far_level_that_pays_it_is_revolve() -> None:
    machine = platform((3, 2, 2))
    for costly in (machine, platform((3, 0, 0), (None, 10**6, 10**6))):
        assert two_level(chain(40), costly) == revolve(chain(40), costly)
    assert two_level(chain(40), machine, period=39) == revolve(chain(40), machine)


def test_a_period_that_is_given_has_to_fit() -> None:
    machine = platform((3, 0, 0), (3, 5, 5))
    assert counts(two_level(chain(40), machine, period=10)).levels[1].peak == 3
    with pytest.raises(NoSchedule, match="needs 4 slots on level1, which has 3"):
        two_level(chain(40), machine, period=9)


def test_a_period_has_to_be_a_number_of_the_chains_steps() -> None:
    for period in (0, -3, 41, 1.5, False):
        with pytest.raises(BadInput, match="between 1 and the chain's 40 steps"):
            planned(chain(40), platform((3, 0, 0), (3, 5, 5)), period=period)


def test_the_note_says_which_period_it_is() -> None:
    machine = platform((3, 0, 0), (3, 5, 5))
    assert two_level(chain(40), machine, period=10).note.endswith("10 steps: as given")
    assert two_level(chain(40), machine).note.endswith("best that fits")
