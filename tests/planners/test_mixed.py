"""mixed: its published values, and the optimum by exhaustive search."""

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.exhaustive import least_makespan
from oracles.recurrences import mixed as equation_1
from oracles.recurrences import mixed_loaded as equation_2

from ckio.actions import Advance, Record, Reverse
from ckio.errors import BadInput, NoSchedule
from ckio.planners import dp
from ckio.planners.base import Planner
from ckio.planners.dp import hrevolve, mixed, solve
from ckio.planners.dp.joint import solve as table
from ckio.planners.dp.spaces import spaces
from ckio.planners.recording import quickest, recorded
from ckio.planners.varying import varying
from ckio.platform import FREE, Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule import text as texts

from .cases import GOLDEN, TAPE, chain, chains, completed, platform, platforms, unit_chain


def alike(steps: int, *, record: float = 1, **sizes: int) -> Chain:
    """Steps of one second."""
    return unit_chain(steps, record=record, **sizes)


def level(name: str, capacity: int | None, seconds: float) -> Level:
    return Level(name=name, capacity=capacity, write=Affine(seconds), read=Affine(seconds))


def planned(chain: Chain, platform: Platform, *, jointly: bool | None = None) -> float:
    """The makespan of the schedule, which is what was promised."""
    held = platform.tapes(chain)
    with pytest.MonkeyPatch.context() as chosen:
        if jointly is not None:
            chosen.setattr(dp.joint, "is_quick_together", lambda *_: jointly)
        plan = solve(quickest(chain), platform, held=held)
    actions = recorded(chain, plan.schedule(chain, held=held).actions, held)
    schedule = Schedule(chain, actions)
    seconds = completed(schedule, platform)
    assert seconds == plan.seconds
    return seconds


def units(count: int) -> Platform:
    """One level without costs."""
    return Platform((Level(name="disk", capacity=count),), working_memory=1)


def test_without_costs_one_level_gives_equation_1() -> None:
    for s, n in product(range(1, 8), (1, 2, 3, 4, 5, 7, 10, 15, 22, 29)):
        schedule = mixed(alike(n), units(s))
        assert planned(alike(n), units(s)) == counts(schedule).forward == equation_1(n, s)


def test_from_a_stored_state_one_level_gives_equation_2() -> None:
    longest = 29
    for s in range(7):
        given = spaces(alike(longest), units(s + 1), held=1)
        lower = np.where(np.arange(longest + 1) <= 1, 0.0, np.inf)
        solved = table(given, lower, move=1)
        # For n = s + 2 all tapes fit once x_0 is given up; beyond, it is advanced from.
        assert solved.advance(s + 2, s + 1, 0) == 0
        for n in range(s + 3, longest + 1):
            inner, outer = solved.unstored[s], solved.outer[0][s + 1]
            assert n + min(inner[1:n] + outer[n - 1 : 0 : -1]) == equation_2(n, s)


@pytest.mark.parametrize(("name", "planner"), [("table_4", hrevolve), ("table_5", mixed)])
def test_a_table_of_the_paper_is_planned_with_as_many_forward_steps(
    name: str, planner: Planner
) -> None:
    document = texts.loads((GOLDEN / f"{name}.txt").read_text(encoding="utf-8"))
    (disk,) = document.platform.levels
    free = replace(document.platform, levels=(replace(disk, write=FREE, read=FREE),))
    schedule = planner(document.schedule.chain, free)
    assert counts(schedule).forward == counts(document.schedule).forward
    if planner is mixed:
        assert schedule.actions == document.schedule.actions


RAM = level("ram", 20, 0)


@pytest.mark.parametrize(
    ("levels", "record", "restart_only", "seconds"),
    [
        ((RAM, level("nvme", 200, 0.5)), 1, 2981, 2020),
        ((RAM, level("nvme", 200, 2)), 1, 3092, 2146),
        ((RAM, level("nvme", 200, 1)), 1, 3018, 2070),
        ((RAM, level("nvme", 200, 5)), 1, 3314, 2368),
        ((RAM, level("nvme", 200, 1)), 1.5, 3518.5, 2570.5),
        ((RAM,), 1, 3751, 2826),
        ((level("ram", 5, 0), level("nvme", 50, 1)), 1, 3726, 2914),
    ],
)
def test_tapes_beside_restart_checkpoints_save_a_quarter_and_more(
    levels: tuple[Level, ...], record: float, restart_only: float, seconds: float
) -> None:
    machine, chain = Platform(levels, working_memory=1), alike(1001, record=record)
    assert makespan(hrevolve(chain, machine), machine) == restart_only
    assert planned(chain, machine) == completed(mixed(chain, machine), machine) == seconds


@pytest.mark.campaign
@pytest.mark.parametrize(
    "seconds",
    [
        {(4, 1): (2146, 1529), (1, 1): (2826, 2070), (1, 8): (3645, 2763)},
        {(2, 1): (2594, 1991), (1, 2): (3036, 2161), (1, 4): (3446, 2313)},
    ],
    ids=["outer", "inner"],
)
def test_the_larger_a_tape_the_less_it_saves(
    seconds: dict[tuple[int, int], tuple[int, int]],
) -> None:
    for (restart, tape), expected in seconds.items():
        ram, price = Level(name="ram", capacity=20 * restart), Affine(per_byte=1 / restart)
        nvme = Level(name="nvme", capacity=200 * restart, write=price, read=price)
        chain = alike(1001, restart=restart, tape=tape)
        machines = (Platform(levels, working_memory=tape) for levels in ((ram,), (ram, nvme)))
        assert tuple(planned(chain, machine) for machine in machines) == expected


def test_six_steps_take_50_s_on_all_levels_together_and_61_s_in_a_hierarchy() -> None:
    """The example of `ckio.planners.dp`: x_0 is stored near, and then the tape of step 4 far."""
    chain = Chain(steps=6, advance=4, record=4, reverse=0, restart=2, tape=1, adjoint=1)
    near = Level(name="near", capacity=2, read=Affine(per_byte=1))
    far = Level(
        name="far", capacity=1, write=Affine(per_byte=1), read=Affine(per_byte=1), discard=Affine(1)
    )
    machine = Platform((near, far), working_memory=1)
    assert planned(chain, machine, jointly=True) == least_makespan(chain, machine, tapes=True) == 50
    assert planned(chain, machine, jointly=False) == 61


def small_case(random: Random, *, levels: int, most_steps: int) -> tuple[Chain, Platform]:
    """A case that the search can solve: sizes that differ, levels in any order, or in one."""
    restart, tape = random.randint(1, 3), random.randint(1, 3)

    def price() -> Affine:
        return Affine(random.choice([0, 0, 1, 2, 3]), random.choice([0, 1, 1, 2]))

    costs = [(price(), price(), random.choice([FREE, FREE, Affine(1)])) for _ in range(levels)]
    if random.random() < 0.5:
        costs.sort(key=lambda each: sum(cost(2) for cost in each))
    advance, record = random.randint(0, 4), random.randint(0, 6)
    chain = Chain(
        steps=random.randint(1, most_steps),
        advance=advance,
        record=record,
        record_only=random.choice([None, random.randint(max(0, record - advance), record)]),
        reverse=random.randint(0, 2),
        restart=restart,
        tape=tape,
        adjoint=1,
    )
    return chain, Platform(
        tuple(
            Level(
                name=f"level{number}",
                capacity=random.randint(0, 4 - levels) * random.choice([restart, tape, 1]),
                write=write,
                read=read,
                discard=discard,
                ratio=random.choice([1, 1, 1, 0.5, 1.5]),
            )
            for number, (write, read, discard) in enumerate(costs)
        ),
        working_memory=random.choice([1, 1, 2, 3]) * tape + random.randrange(tape),
    )


def check_against_search(*, levels: int, most_steps: int, cases: int, seed: int) -> None:
    random, solved = Random(seed), 0
    for _ in range(cases):
        chain, machine = small_case(random, levels=levels, most_steps=most_steps)
        least = least_makespan(chain, machine, tapes=True)
        if least == float("inf"):
            with pytest.raises(NoSchedule):
                mixed(chain, machine)
        else:
            assert completed(mixed(chain, machine), machine) == least, (chain, machine)
            assert planned(chain, machine) == least
            assert levels > 1 or planned(chain, machine, jointly=False) == least
            solved += 1
    assert solved > cases / 3


@pytest.mark.campaign
@pytest.mark.parametrize(("levels", "most_steps", "cases"), [(1, 5, 60), (2, 4, 60), (3, 3, 150)])
def test_no_schedule_beats_mixed(levels: int, most_steps: int, cases: int) -> None:
    check_against_search(levels=levels, most_steps=most_steps, cases=cases, seed=1)


def check_hierarchical(seed: int, cases: int) -> None:
    random = Random(seed)
    for _ in range(cases):
        chain, machine = small_case(random, levels=random.randint(1, 3), most_steps=40)
        try:
            by_level = planned(chain, machine, jointly=False)
        except NoSchedule:
            continue
        jointly = planned(chain, machine, jointly=True)
        assert jointly == by_level if len(machine.levels) == 1 else jointly <= by_level


def test_plans_on_all_levels_together_are_no_slower_than_hierarchical_ones() -> None:
    check_hierarchical(0, 25)


ARCHIVE = "3\n 50 .05 .05\n 1000 1 1\n 10000 5 5"


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("machine", "seconds"),
    [
        (Platform.loads(ARCHIVE), 221151.4),
        (Platform((RAM, level("nvme", None, 1)), working_memory=1), 209497),
    ],
)
def test_a_hundred_thousand_steps_need_short_tables_only(machine: Platform, seconds: float) -> None:
    chain = alike(100_000)
    plan = solve(chain, machine, held=1)
    assert max(len(stage.finish) for stage in plan.stages) < 1000
    assert sum(segment.steps * segment.copies for segment in plan.first) == 99_999
    assert plan.seconds == pytest.approx(seconds, rel=1e-12)
    assert completed(mixed(chain, machine), machine) == pytest.approx(seconds, rel=1e-9)


def test_slots_too_many_for_tables_are_not_rounded() -> None:
    machine = Platform((RAM, level("nvme", 20_000, 1)), working_memory=1)
    plan = solve(alike(50_000), machine, held=1)
    assert planned(alike(50_000), machine) == plan.seconds
    assert plan.complete
    assert "rounded" not in plan.note
    endless = Platform((RAM, level("nvme", None, 1)), working_memory=1)
    assert plan.seconds == planned(alike(50_000), endless)


def test_a_long_chain_is_planned_by_level() -> None:
    machine = Platform((RAM, level("nvme", 200, 1)), working_memory=1)
    schedule = mixed(alike(5000), machine)
    assert "hierarchical" in schedule.note
    assert completed(schedule, machine) < 0.7 * makespan(hrevolve(alike(5000), machine), machine)
    assert "exhaustive search" in mixed(alike(200), machine).note


@given(chains(), platforms())
def test_it_is_never_slower_than_hrevolve(chain: Chain, platform: Platform) -> None:
    best = makespan(hrevolve(chain, platform), platform)
    assert planned(chain, platform, jointly=True) <= best
    assert planned(chain, platform, jointly=False) <= best


@given(chains(), platforms(), st.integers(0, 50))
def test_only_what_moving_takes_changes_the_plan(
    chain: Chain, platform: Platform, more: float
) -> None:
    slow = replace(chain, record=chain.advance + more)
    slower = replace(slow, record=slow.record + 7)
    assert mixed(slow, platform).actions == mixed(slower, platform).actions


def test_where_recording_is_priced_lower_it_moves_by_recording() -> None:
    machine = platform((2, 1, 1), tapes=3)
    cheap, dear = (mixed(chain(30, advance=2, record=r), machine) for r in (1, 2))
    assert counts(cheap).advanced == 0 < counts(dear).advanced
    assert counts(dear).recorded == 30 < counts(cheap).recorded
    assert "steps are recorded instead of advanced" in cheap.note
    assert "steps are recorded instead of advanced" not in dear.note
    assert max(action.end - action.begin for action in cheap.actions if type(action) is Record) == 3
    assert any(isinstance(action, Advance) for action in dear.actions)


def test_what_the_working_memory_holds_needs_no_level() -> None:
    schedule = mixed(chain(5), platform(tapes=5))
    assert list(schedule.actions) == [Record(0, 5), Reverse(0, 5)]
    assert "nothing is stored" in schedule.note


def test_where_no_restart_checkpoint_fits_tapes_may_do() -> None:
    machine = Platform((level("a", 2 * TAPE, 1), level("b", TAPE, 2)), working_memory=TAPE)
    small = replace(chain(4), restart=50)
    schedule = mixed(small, machine)
    assert completed(schedule, machine) == 2 * 2 + 4
    assert counts(schedule).forward == 4
    with pytest.raises(NoSchedule, match=r"one checkpoint of 50 bytes, .* space for 4 tapes of 2"):
        mixed(replace(chain(5), restart=50), machine)


def test_where_no_tape_fits_it_is_hrevolve() -> None:
    machine = platform((2, 1, 1), (5, 3, 2))
    large = replace(chain(40, record=1), tape=100)
    room = replace(machine, working_memory=100)
    assert planned(large, room) == makespan(hrevolve(large, room), room)


def test_checkpoints_may_take_no_room() -> None:
    machine = Platform((level("a", 12, 1), level("b", 0, 3)), working_memory=5)
    for restart, tape in ((0, 5), (5, 0), (0, 0)):
        sized = chain(3, advance=2, record=2, restart=restart, tape=tape)
        least = least_makespan(sized, machine, tapes=True)
        assert [planned(sized, machine, jointly=jointly) for jointly in (True, False)] == [
            least
        ] * 2


def test_sizes_with_no_common_unit_lose_nothing_while_checkpoints_are_few() -> None:
    odd = alike(300, restart=10**9 + 7, tape=10**9 + 9)
    ram = Level(name="ram", capacity=20 * (10**9 + 9), write=Affine(1), read=Affine(1))
    same = Platform((level("ram", 20, 1),), working_memory=1)
    assert planned(odd, Platform((ram,))) < planned(alike(300), same)  # all tapes in memory
    assert planned(odd, Platform((ram,), working_memory=odd.tape)) == planned(alike(300), same)


def test_sizes_that_differ_too_little_to_change_how_many_fit_are_slots() -> None:
    odd = alike(4_000, restart=4104, tape=4096)
    near, far = level("near", 200_000, 1), level("far", 400_000, 1)  # 48 and 97 of either kind
    same = Platform((level("near", 48, 1), level("far", 97, 1)), working_memory=1)
    assert planned(odd, Platform((near, far), odd.tape)) == planned(alike(4_000), same)
    one_more = replace(near, capacity=4096 * 49)  # 49 tapes, but 47 states
    plan = solve(replace(odd, steps=200), Platform((one_more, far), odd.tape), held=1)
    assert plan.seconds <= planned(alike(200), same)


def test_many_checkpoints_of_odd_sizes_are_counted_in_bytes() -> None:
    odd = alike(700, restart=10**9 + 7, tape=7 * 10**8 + 1)
    ram = Level(name="ram", capacity=300 * 10**9 + 12345, write=Affine(1), read=Affine(1))
    machine = Platform((ram,), working_memory=odd.tape)
    schedule = mixed(odd, machine)
    assert schedule.note.startswith("optimal")
    assert completed(schedule, machine) <= makespan(hrevolve(odd, machine), machine)


def test_a_chain_whose_steps_differ_is_planned_step_by_step() -> None:
    each = Chain(steps=4, advance=[1, 5, 2, 2], record=3, reverse=1, restart=3, tape=2, adjoint=1)
    machine = platform((2, 1, 1))
    schedule = mixed(each, machine)
    assert schedule == varying(each, machine, tapes=True, planner="mixed")
    assert completed(schedule, machine) == least_makespan(each, machine, tapes=True)


def test_costs_beyond_what_can_be_added_up_are_refused() -> None:
    with pytest.raises(BadInput, match="too large to be added up"):
        mixed(chain(9), platform((1, 1e308, 1e308)))


def test_a_level_too_slow_to_be_of_use_does_not_stand_in_the_way() -> None:
    far = Platform((RAM, level("far", 20, 1e15)), working_memory=1)
    near = Platform((RAM,), working_memory=1)
    assert makespan(mixed(alike(20_000), far), far) == planned(alike(20_000), near)


def test_costs_that_cannot_be_counted_are_refused_for_long_chains() -> None:
    far = Platform((level("far", 20, 1e15),), working_memory=1)
    with pytest.raises(BadInput, match="too large to be added up for 100000 steps"):
        mixed(alike(100_000), replace(far, levels=(replace(far.levels[0], read=Affine(1.3e15)),)))


def test_a_level_in_sums_that_occur_takes_the_same_checkpoints_as_in_bytes() -> None:
    random = Random(3)
    for _ in range(300):
        small, ratio, more = random.randint(1, 60), random.randint(1, 5), random.randint(0, 9)
        sizes = [small, ratio * small + more]
        random.shuffle(sizes)
        restart, tape = sizes
        capacity = random.randint(small, 12 * max(sizes))
        machine = Platform((Level(name="ram", capacity=capacity),), working_memory=tape)
        given = replace(alike(100, restart=restart, tape=tape), tape_restarts=True)
        (space,) = spaces(given, machine, held=1, restarting=True)
        for i, j in product(*(range(capacity // size + 2) for size in (restart, tape))):
            number = space.empty
            for after, count in ((space.after_restart, i), (space.after_tape, j)):
                for _ in range(count):
                    number = int(after[number]) if number >= 0 else number
            assert (number >= 0) == (i * restart + j * tape <= capacity), (sizes, capacity, i, j)


def test_few_sums_of_nearly_equal_ones_occur() -> None:
    """20 states of two arrays and a number, and tapes of one array: 441 sums."""
    given = replace(alike(100, restart=2008, tape=1000), tape_restarts=True)
    machine = Platform((Level(name="ram", capacity=20 * 2008),), working_memory=1000)
    (space,) = spaces(given, machine, held=1, restarting=True)
    assert space.empty == 40
