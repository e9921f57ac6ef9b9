"""Combs: which checkpoints are worth keeping, by Revolve's closed form."""

from itertools import count, islice, pairwise
from math import comb
from random import Random

from oracles.recurrences import revolve_forward_steps

from ckio.planners.base import ENDLESS, LevelSlots
from ckio.planners.unknown.levels import Comb, unit


def advances(slots: int, blocks: int) -> int:
    """Of Revolve, which records each step once."""
    return revolve_forward_steps(blocks, slots) - blocks


def cost(steps: list[int], slots: int, size: int) -> int:
    """R of a comb whose gaps are whole blocks, in blocks."""
    gaps = [(end - begin) // size for begin, end in pairwise(steps)]
    return sum(advances(slots - i, gap) for i, gap in enumerate(gaps) if gap)


def test_what_goes_is_the_checkpoint_without_which_the_chain_is_cheapest() -> None:
    random = Random(1)
    for size in (1, 3) * 200:
        slots = random.randint(2, 9)
        blocks = [0, *sorted(random.sample(range(1, 70), slots))]
        first = random.randint(0, 5)
        steps = [first + size * block for block in blocks]
        gone = Comb(slots, size).superfluous(steps)
        # One step beyond the last checkpoint is less than a block, and is taken back for nothing.
        costs = {
            step: cost([*(kept for kept in steps if kept != step)], slots, size)
            + (_last_gap(steps, step, slots, size))
            for step in steps[1:]
        }
        assert costs[gone] == min(costs.values())
        assert gone == min(step for step in costs if costs[step] == costs[gone])


def _last_gap(steps: list[int], gone: int, slots: int, size: int) -> float:
    """R of the gap between the last checkpoint that stays and the end, in blocks."""
    last = steps[-2] if gone == steps[-1] else steps[-1]
    length, free = steps[-1] + 1 - last, 1
    r = next(r for r in count() if comb(free + r, free) * size >= length)
    return (r * length - size * comb(free + r, free + 1)) / size


def test_candidates_become_rarer_with_the_length_of_the_chain() -> None:
    rule = Comb(10, 3)
    taken = [done for done in range(3000) if rule.takes(done)]
    assert taken[:20] == [3 * block for block in range(20)]
    assert rule.grid(3 * 20) == 3
    assert rule.grid(3 * 40) == 6
    assert all(rule.grid(done) <= max(3, done / 20) < 2 * rule.grid(done) + 3 for done in taken)
    assert len(taken) < 40 + 20 * 7


def test_next_passes_over_no_candidate() -> None:
    for rule in (Comb(1, 1), Comb(2, 1), Comb(7, 4), Comb(65, 2), Comb(200, 1)):
        known = {done for done in range(1, 2000) if rule.takes(done)}
        found, done = set[int](), 0
        while (done := rule.next(done)) < 2000:
            found.add(done)
        assert known <= found
        assert rule.slots > 1 or rule.next(5) == ENDLESS


def test_a_level_of_many_slots_holds_a_grid_as_fine_as_they_allow() -> None:
    rule, kept = Comb(100, 2), list[int]()
    for done in range(5000):
        if rule.takes(done):
            kept.append(done)
            if len(kept) > rule.slots:
                kept.remove(rule.superfluous(kept))
        grid = rule.grid(done)
        if done:
            assert set(range(0, done + 1, grid)) <= set(kept)
            assert len(kept) <= 100 < 2 * done // grid + 200
    assert len(kept) > 50


def costs(write: float, read: float) -> LevelSlots:
    return LevelSlots(number=0, slots=1, write=write, read=read)


def test_the_unit_weighs_transfers_against_steps() -> None:
    for write, read, advance, steps in (
        *((0, 0, 1, 1), (0, 0, 0, 1), (1, 1, 1, 2), (5, 5, 1, 4)),
        *((30, 10, 1, 9), (30, 10, 0.1, 28)),
    ):
        assert unit(costs(write, read), advance) == steps


def test_nothing_pays_where_steps_cost_nothing() -> None:
    assert unit(costs(1, 0), 0) == unit(costs(1e300, 0), 1e-300) == ENDLESS
    assert list(islice(filter(Comb(9, ENDLESS).takes, range(1, 10**4)), 1)) == []
