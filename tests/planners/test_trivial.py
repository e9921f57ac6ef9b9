"""store-all, recompute-all and periodic: exactly what they do."""

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given

from ckio.actions import Action, Advance, Discard, Read, Record, Reverse, Write
from ckio.errors import BadInput, NoSchedule
from ckio.planners.trivial import periodic, recompute_all, store_all
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import counts, makespan
from ckio.testing import t, x

from .cases import TAPE, chain, chains, level, platform, platforms


def last(step: int) -> list[Action]:
    return [Record(step, step + 1), Reverse(step, step + 1)]


def test_store_all_needs_no_level_where_the_working_memory_holds_every_tape() -> None:
    expected = [Record(0, 7), Reverse(0, 7)]
    assert list(store_all(chain(7), platform(tapes=7)).actions) == expected
    assert list(store_all(chain(7), Platform(())).actions) == expected


def test_store_all_writes_the_tapes_that_the_working_memory_does_not_hold() -> None:
    assert list(store_all(chain(5), platform((2, 2, 3), tapes=3)).actions) == [
        *(Record(0, 1), Write(t(0), 0)),
        *(Record(1, 2), Write(t(1), 0)),
        *(Record(2, 5), Reverse(2, 5)),
        *(Read(t(1), 0), Discard(t(1), 0), Reverse(1, 2)),
        *(Read(t(0), 0), Discard(t(0), 0), Reverse(0, 1)),
    ]


def test_store_all_counts_the_bytes_of_tapes_that_differ() -> None:
    differing = replace(chain(5), tape=[4, 1, 3, 2, 2])
    ram = level("ram", 0, 0, 0, spare=5)
    assert list(store_all(differing, Platform((ram,), working_memory=7)).actions) == [
        *(Record(0, 1), Write(t(0), 0)),
        *(Record(1, 2), Write(t(1), 0)),
        *(Record(2, 5), Reverse(2, 5)),
        *(Read(t(1), 0), Discard(t(1), 0), Reverse(1, 2)),
        *(Read(t(0), 0), Discard(t(0), 0), Reverse(0, 1)),
    ]
    with pytest.raises(NoSchedule, match=r"needs 8 bytes on one level .*; ram offers 5"):
        store_all(differing, Platform((ram,), working_memory=6))


def test_recompute_all_needs_room_for_x_0_only_where_sizes_differ() -> None:
    differing = replace(chain(3), restart=[4, 9, 9])
    ram = level("ram", 0, 0, 0, spare=4)
    schedule = recompute_all(differing, Platform((ram,)))
    assert schedule.actions == recompute_all(chain(3), Platform((ram,))).actions
    with pytest.raises(NoSchedule, match="needs a level that can store x_0, which has 4 bytes"):
        recompute_all(differing, Platform((replace(ram, capacity=3),)))


def test_periodic_refuses_steps_that_differ() -> None:
    with pytest.raises(BadInput, match="periodic plans for steps that are all alike"):
        periodic(replace(chain(3), advance=[1, 2, 3]), platform((9, 2, 3)))


def test_store_all_says_how_much_it_needs() -> None:
    with pytest.raises(NoSchedule, match=r"needs 14 bytes on one level .*; level0 offers 6"):
        store_all(chain(10), platform((2, 2, 3), tapes=3))


def test_recompute_all_replays_every_step_from_x_0() -> None:
    assert list(recompute_all(chain(3), platform((9, 2, 3))).actions) == [
        *(Write(x(0), 0), Advance(0, 2), *last(2)),
        *(Read(x(0), 0), Advance(0, 1), *last(1)),
        *(Read(x(0), 0), Discard(x(0), 0), *last(0)),
    ]


def test_periodic_records_the_last_block_in_the_first_sweep_and_the_others_going_back() -> None:
    assert list(periodic(chain(8), platform((2, 2, 3), tapes=3), period=3).actions) == [
        *(Write(x(0), 0), Advance(0, 3), Write(x(3), 0), Advance(3, 6)),
        *(Record(6, 8), Reverse(6, 8)),
        *(Read(x(3), 0), Discard(x(3), 0), Record(3, 6), Reverse(3, 6)),
        *(Read(x(0), 0), Discard(x(0), 0), Record(0, 3), Reverse(0, 3)),
    ]


def test_periodic_writes_tapes_of_a_block_that_the_working_memory_does_not_hold() -> None:
    assert list(periodic(chain(5), platform((9, 2, 3), tapes=1), period=3).actions) == [
        *(Write(x(0), 0), Advance(0, 3)),
        *(Record(3, 4), Write(t(3), 0), *last(4)),
        *(Read(t(3), 0), Discard(t(3), 0), Reverse(3, 4)),
        *(Read(x(0), 0), Discard(x(0), 0)),
        *(Record(0, 1), Write(t(0), 0), Record(1, 2), Write(t(1), 0), *last(2)),
        *(Read(t(1), 0), Discard(t(1), 0), Reverse(1, 2)),
        *(Read(t(0), 0), Discard(t(0), 0), Reverse(0, 1)),
    ]


@given(chains(), platforms())
def test_periodic_chooses_the_cheapest_period(chain: Chain, platform: Platform) -> None:
    roomy = platform.levels[-1].name
    chosen = makespan(periodic(chain, platform, on=roomy), platform)
    assert chosen == min(
        makespan(periodic(chain, platform, period=period, on=roomy), platform)
        for period in range(1, chain.length + 1)
    )


def fits(steps: int, capacity: int, period: int, tapes: int = 2) -> bool:
    machine = Platform((level("ram", 0, 2, 3, spare=capacity),), working_memory=tapes * TAPE)
    try:
        periodic(chain(steps), machine, period=period)
    except NoSchedule:
        return False
    return True


def test_a_period_fits_exactly_where_its_peak_does() -> None:
    endless = Platform((level("ram", None, 2, 3),), working_memory=4)
    for steps in (2, 5, 11, 12):
        for period in range(1, steps + 1):
            levels = counts(periodic(chain(steps), endless, period=period)).levels
            peak = levels[0].peak_bytes if levels else 0
            assert fits(steps, peak, period)
            assert peak == 0 or not fits(steps, peak - 1, period)


def test_a_period_is_a_number_of_steps_of_the_chain() -> None:
    for period in (0, -3, 8, 2.5, True):
        with pytest.raises(BadInput, match=r"period = .* between 1 and the chain's 7 steps"):
            periodic(chain(7), platform((9, 2, 3)), period=period)  # type: ignore[arg-type]


@pytest.mark.parametrize("tapes", [1, 3])
def test_periodic_says_the_least_that_any_period_needs(tapes: int) -> None:
    with pytest.raises(NoSchedule, match=r"needs \d+ bytes") as error:
        periodic(chain(30), platform((0, 2, 3), tapes=tapes))
    needed = int(str(error.value).split("needs ")[1].split()[0])
    for spare, fit in ((needed, True), (needed - 1, False)):
        assert any(fits(30, spare, period, tapes) for period in range(1, 31)) == fit


def test_a_million_steps_are_planned_without_an_object_for_each_period() -> None:
    machine = platform((None, 2, 3), tapes=1000)
    tracemalloc.start()
    assert counts(periodic(chain(1_000_000), machine)).reversed == 1_000_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6
