"""The numbers that the papers print: as they are, and by the papers' own recurrences.

HP is Herrmann and Pallez, "H-Revolve", 2020, with u_f = 1 and u_b = 0 if nothing else is said; M is
Maddison, "Step-based checkpointing with high-level algorithmic differentiation".

| printed                                                  | held in                             |
|----------------------------------------------------------|-------------------------------------|
| HP, Listings 2, 3, 6 as schedules: 89, 22, 25            | schedule/test_papers.py             |
| HP, Listings 3, 4, 6, 7 planned: 22, 384, 25, 25         | test_disk.py                        |
| M, Tables 2 to 5 as schedules                            | schedule/test_papers.py             |
| all other numbers, and second opinions on these          | here, by oracles/recurrences.py     |
"""

from collections.abc import Iterator
from itertools import product

import pytest
from oracles import recurrences
from oracles.recurrences import Slots, beta, revolve_forward_steps

from ckio.adapters.registry import find
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts

from .cases import completed, paper_chain, unit_chain

LISTING_1: list[Slots] = [(1, 0, 0), (2, 2, 2), (10, 3, 3)]
ARCH_1: list[Slots] = [(1, 1, 1), (1, 5, 5), (2, 10, 10), (20, 20, 20)]
ARCH_2: list[Slots] = [(2, 0.5, 0.5), (20, 10, 10), (20, 20, 20)]

H_REVOLVES = {"hrevolve-2020": False, "hrevolve": True}
"""Whether the recurrence is repaired."""


def machine(levels: list[Slots]) -> Platform:
    return Platform(
        tuple(
            Level(name=f"level{k}", capacity=slots, write=Affine(write), read=Affine(read))
            for k, (slots, write, read) in enumerate(levels)
        ),
        working_memory=1,
    )


def memory_and_disk(slots: int, write: float, read: float) -> Platform:
    """Free memory, and a disk without end."""
    disk = Level(name="disk", write=Affine(write), read=Affine(read))
    return Platform((Level(name="memory", capacity=slots), disk), working_memory=1)


def planned(name: str, chain: Chain, platform: Platform) -> Schedule:
    schedule: Schedule = find("planners", name)(chain, platform)
    return schedule


def seconds(name: str, chain: Chain, platform: Platform) -> float:
    return completed(planned(name, chain, platform), platform)


# --- HP, Theorem 1: Revolve in closed form ---------------------------------------------------


def test_theorem_1_is_the_minimum_that_it_says_it_is() -> None:
    for slots in range(1, 9):
        row = recurrences.revolve(80, slots)
        for length in range(1, 81):
            t = next(t for t in range(80) if beta(slots, t) <= length < beta(slots, t + 1))
            assert (length + 1) * (t + 1) - beta(slots + 1, t) == row[length]
            assert revolve_forward_steps(length + 1, slots) == row[length] + length + 1


# --- HP, Theorem 2: H-Revolve ----------------------------------------------------------------


@pytest.mark.parametrize("name", H_REVOLVES)
def test_listing_2_is_worth_89_where_each_of_21_backward_steps_takes_a_second(name: str) -> None:
    assert recurrences.theorem_2(20, LISTING_1, repaired=H_REVOLVES[name])[20] == 68
    assert seconds(name, paper_chain(20, u_b=0), machine(LISTING_1)) == 68
    assert seconds(name, paper_chain(20, u_b=1), machine(LISTING_1)) == 68 + 21 == 89


FIGURES_4_AND_5 = [
    (ARCH_1, {10: 51, 50: 333, 100: 717, 200: 1541, 500: 4017, 1000: 8145}),
    (ARCH_2, {10: 31, 50: 251.5, 100: 531.5, 200: 1092, 500: 2783, 1000: 6054.5}),
]


def check_figures(name: str, *, longest: int) -> None:
    for levels, values in FIGURES_4_AND_5:
        row = recurrences.theorem_2(longest, levels, repaired=H_REVOLVES[name])
        for length, expected in values.items():
            assert length > longest or row[length] == expected
            assert seconds(name, paper_chain(length), machine(levels)) == expected


@pytest.mark.parametrize("name", H_REVOLVES)
def test_the_machines_of_figures_4_and_5(name: str) -> None:
    check_figures(name, longest=100)


@pytest.mark.slow
@pytest.mark.parametrize("name", H_REVOLVES)
def test_the_machines_of_figures_4_and_5_on_longer_chains(name: str) -> None:
    check_figures(name, longest=1000)
    for levels, expected in ((ARCH_1, 90271), (ARCH_2, 65581.5)):
        assert seconds(name, paper_chain(10_000), machine(levels)) == expected


@pytest.mark.parametrize(
    ("levels", "length", "printed", "repaired"),
    [
        ([(1, 1, 0), (1, 1, 0)], 4, 9, 8),
        ([(1, 1, 5), (1, 2, 5)], 4, 30, 29),
        ([(1, 2, 0), (1, 3, 1)], 5, 17, 16),
        ([(1, 3, 0), (1, 4, 1), (2, 5, 2)], 6, 23, 22),
        ([(1, 5, 0), (20, 5, 0)], 51, 223, 187),
        ([(10, 5, 0), (50, 5, 0)], 177, 754, 649),
    ],
)
def test_theorem_2_as_printed_loses_to_going_to_the_end_and_back(
    levels: list[Slots], length: int, printed: float, repaired: float
) -> None:
    for (name, is_repaired), expected in zip(H_REVOLVES.items(), (printed, repaired), strict=True):
        row = recurrences.theorem_2(length, levels, repaired=is_repaired)
        assert row[length] == expected
        assert seconds(name, paper_chain(length), machine(levels)) == expected


# --- HP, Listings 3 to 7: two levels ---------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "write", "read", "best", "read_once"),
    [(10, 2, 1, 22, 22), (100, 10, 2, 384, 402), (199, 30, 1, 956, 1097)],
    ids=["Listing 3", "Listing 4", "200 steps"],
)
def test_disk_revolve_and_what_it_costs_to_read_no_disk_checkpoint_twice(
    length: int, write: float, read: float, best: float, read_once: float
) -> None:
    """The last column is what checkpoint_schedules 1.0.4 gives as DiskRevolve."""
    once = recurrences.disk_revolve(length, 2, write, read, block=recurrences.read_once)
    assert once[length] == read_once
    assert recurrences.disk_revolve(length, 2, write, read)[length] == best
    for name in H_REVOLVES:
        assert seconds(name, paper_chain(length), memory_and_disk(2, write, read)) == best


def test_revolve_alone_takes_24_where_listing_3_takes_22() -> None:
    assert recurrences.revolve(10, 2)[10] == 24
    assert seconds("revolve", paper_chain(10), memory_and_disk(2, 2, 1)) == 24


def test_the_parts_that_listing_4_names_are_worth_its_384() -> None:
    """Five periods of 16, one of 11, and Revolve(9, 2) at the turn."""
    memory, later = recurrences.revolve(15, 2), recurrences.revolve_1d(15, 2, 2)
    assert later[15] == 6 + memory[9] + 2 + memory[5] == 36
    periods = [16] * 5 + [11]
    assert sum(periods) + 10 == 100 + 1
    # Listing 5 prints one period of 16 less, which is 85 steps.
    assert sum(periods[1:]) + 10 == 85
    there_and_back = sum(10 + period + 2 + later[period - 1] for period in periods)
    assert there_and_back + memory[9] == 384


def test_algorithm_3_as_printed_would_take_31_instead_of_25() -> None:
    memory = recurrences.revolve(10, 2)
    blocks = {m: 3 * (2 + 3 + 1 + memory[m]) + memory[10 - 9] for m in (2, 3)}
    assert blocks == {2: 25, 3: 31}


# --- HP, section 3.2 and Conjecture 1: periods -----------------------------------------------


def period_of_theorem_4(slots: int, costs: float) -> int:
    """m_X^rr = beta(c, t), for w + r or whatever is taken for it."""
    t = next(t for t in range(100) if beta(slots + 1, t - 1) <= costs < beta(slots + 1, t))
    return beta(slots, t)


def test_theorem_4_is_a_period_of_least_cost() -> None:
    """486 cases; in 26 of them other periods are as good."""
    several = 0
    for slots in range(1, 7):
        block = recurrences.revolve(200, slots)
        for halves in range(81):
            best = recurrences.best_periods(block, halves / 2, 0)
            assert period_of_theorem_4(slots, halves / 2) in best
            several += len(best) > 1
    assert several == 26


def test_theorem_4_needs_the_costs_in_units_of_a_forward_step() -> None:
    """With u_f = 2 it is wrong as printed in 90 of 120 cases, and right with (w + r) / u_f."""
    wrong = 0
    for slots in range(1, 5):
        block = recurrences.revolve(80, slots, u_f=2)
        for costs in range(30):
            best = recurrences.best_periods(block, costs, 0, u_f=2)
            assert period_of_theorem_4(slots, costs / 2) in best
            wrong += period_of_theorem_4(slots, costs) not in best
    assert wrong == 90


def candidates(slots: int, write: float, read: float) -> Iterator[int]:
    """Conjecture 1's m_X with i_r = y, and with i_r = y + 1; none for w = 0."""

    def f(x: int, y: int) -> int:
        return beta(slots + 1, x + y - 1) - beta(slots + 1, y - 1)

    y = next(y for y in range(100) if beta(slots + 1, y - 1) <= read < beta(slots + 1, y))
    for i_r in (y, y + 1):
        total = x = 0
        while total < write:
            x += 1
            total += f(x, i_r)
        yield f(x, i_r)


def test_one_of_the_two_candidates_of_conjecture_1_is_a_period_of_least_cost() -> None:
    """400 cases; which of the two has to be found out: the first alone is wrong in 105."""
    right = {(True, True): 0, (True, False): 0, (False, True): 0}
    for slots in range(1, 5):
        for read in (0, 0.5, 1, 2, 3, 5, 8, 13, 20, 30):
            block = recurrences.revolve_1d(160, slots, read)
            for write in (0.5, 1, 2, 3, 5, 8, 13, 20, 30, 50):
                best = recurrences.best_periods(block, write, read)
                first, second = (period in best for period in candidates(slots, write, read))
                right[first, second] += 1
    assert right == {(True, True): 50, (True, False): 245, (False, True): 105}


def first_period(schedule: Schedule) -> int:
    """The distance of the first two checkpoints on the disk."""
    far = [action.key.step for action in schedule.actions if getattr(action, "level", 0) == 1]
    return next(step for step in far if step)


def test_the_periodic_planners_take_a_period_of_least_cost() -> None:
    for slots, (write, read) in product((1, 2, 3), ((2, 1), (10, 2), (3, 9), (20, 20))):
        blocks = {
            "per-rev-revolve": recurrences.revolve(80, slots),
            "periodic-disk-revolve": recurrences.revolve_1d(80, slots, read),
        }
        for u_f, (name, block) in product((1, 2), blocks.items()):
            platform = memory_and_disk(slots, u_f * write, u_f * read)
            schedule = planned(name, paper_chain(300, u_f=u_f), platform)
            assert first_period(schedule) in recurrences.best_periods(block, write, read)


# --- M: restart data and tapes mixed ---------------------------------------------------------


def test_mixing_tapes_with_restart_data_takes_fewer_steps() -> None:
    for figure, steps, mixed, revolve in ((5, 4, 6, 8), (6, 5, 8, 11)):
        assert recurrences.mixed(steps, 2) == mixed
        assert recurrences.revolve(steps - 1, 2)[-1] + steps == revolve
        for name, forward in (("mixed", mixed), ("revolve", revolve)):
            schedule = planned(name, unit_chain(steps, record=1), machine([(2, 0, 0)]))
            assert counts(schedule).forward == forward, figure


def test_equations_1_and_2_of_maddison_are_consistent() -> None:
    for n in range(3, 30):
        for s in range(1, n - 1):
            either = recurrences.mixed_loaded(n, s - 1), 1 + recurrences.mixed(n - 1, s - 1)
            assert recurrences.mixed(n, s) == min(either)
