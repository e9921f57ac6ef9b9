"""Runs that fail: one by hand and against a replay, many against what is known of the mean."""

import signal
from collections.abc import Iterable
from itertools import islice
from math import exp, inf, nan
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from recover.cases import RANDOMS, RESTART_ONLY, WITH_TAPES, a, drawn_case, x

from ckio.actions import Discard, Read, Record, Reverse, Write
from ckio.errors import BadInput
from ckio.planners.dp import hrevolve
from ckio.planners.recover import aside, every, recover
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan, seconds_of
from ckio.schedule.machine import Machine
from ckio.sim.failures import (
    QUANTILES,
    Book,
    Failure,
    Life,
    Mean,
    Moment,
    Outcomes,
    Plans,
    Stored,
    best,
    campaign,
    checked,
    compare,
    exponential,
    from_somewhere,
    intervals,
    mtbf,
    parse_trace,
    recovering,
    trajectory,
)

CHAIN = Chain(steps=20, advance=1, record=2, reverse=3, restart=2, tape=1, adjoint=2)
RAM = Level(name="ram", capacity=8)
NVME = Level(name="nvme", capacity=24, write=Affine(2), read=Affine(1))
ARCHIVE = Level(name="archive", capacity=40, write=Affine(8), read=Affine(4))
PLATFORM = Platform((RAM, NVME, ARCHIVE))
KILLED = Failure(survive=frozenset({1, 2}), mtbf=60.0, restart=5.0)
LOST = Failure(survive=frozenset({2}), mtbf=180.0, restart=20.0)


def plans(every: float = 20.0, chain: Chain = CHAIN) -> Plans:
    schedule = hrevolve(chain, aside(PLATFORM, chain, 1))
    return recovering(schedule, PLATFORM, level=1, every=every, durable={1, 2})


def moments(run: int) -> Iterable[Moment]:
    return exponential((KILLED, LOST), (7, run))


def replayed(made: Plans, platform: Platform, trace: list[Moment]) -> list[Life]:
    """The same said with a Machine and one clock, an action at a time."""
    trace, lives, schedule, begin, work = list(trace), list[Life](), made.first, 0.0, 0.0
    begun = schedule
    while True:
        machine = Machine(schedule.chain, platform, schedule.stored)
        now, failure = work, None
        for action, seconds in zip(schedule.actions, seconds_of(schedule, platform), strict=True):
            if trace and trace[0][0] < now + seconds:
                failure = trace[0][1]
                break
            now += seconds
            machine.apply(action)
        if failure is None:
            lives.append(Life(schedule, begin, work, float(now), machine.count, None))
            return lives
        end, failure = trace.pop(0)
        lives.append(Life(schedule, begin, work, end, machine.count, failure))
        survivors = tuple(
            frozenset(keys if number in failure.survive else ())
            for number, keys in enumerate(machine.stored)
        )
        if end >= work:  # or it had no plan yet
            begun = schedule
        schedule, begin = made.rest(begun, survivors), end
        chain = schedule.chain
        work = end + failure.restart
        for level, keys in zip(platform.levels, survivors, strict=True):
            work += sum(level.read(chain.nbytes(key)) for key in keys)


def test_without_a_failure_it_takes_as_long_as_planned_to_the_last_bit() -> None:
    chain = Chain(steps=20, advance=0.1, record=0.7, reverse=0.3, restart=2, tape=1, adjoint=2)
    made = plans(chain=chain)
    run = trajectory(Book(made, PLATFORM), ())
    assert run.makespan == makespan(made.first, PLATFORM)
    assert (run.failures, run.restarting, run.redone) == (0, 0.0, 0.0)
    assert [life.done for life in run.lives] == [len(made.first)]


def test_one_failure_of_a_chain_of_two_steps_by_hand() -> None:
    chain = Chain(steps=2, advance=1, record=2, reverse=3, restart=1, tape=1, adjoint=1)
    disk = Level(name="disk", write=Affine(10), read=Affine(100))
    first = Schedule(
        chain,
        [
            Write(x(0), 0),  # done at 10
            Record(0, 1),
            Record(1, 2),  # done at 14
            Reverse(1, 2),
            Write(a(1), 0),  # done at 27
            Read(x(0), 0),
            Record(0, 1),
            Reverse(0, 1),  # done at 132
            Discard(x(0), 0),
            Discard(a(1), 0),
        ],
    )
    rests = []

    def rest(_killed: Schedule, survivors: Stored) -> Schedule:
        rests.append(survivors)
        return recover(chain, Platform((disk,)), survivors, level=0, every=inf)

    def run(at: float) -> tuple[float, float]:
        failure = Failure(survive=frozenset({0}), restart=1000.0)
        found = trajectory(Book(Plans(first, rest), Platform((disk,))), [(at, failure)])
        return found.makespan, found.redone

    # x_0 is verified, and is what the fresh process holds: it records step 1 after advancing there.
    assert run(26.9) == (26.9 + 1000 + 100 + (1 + 2 + 3) + (100 + 2 + 3), pytest.approx(5.9))
    assert rests[-1] == (frozenset({x(0)}),)
    # Now the adjoint is verified and read as well; x_0 is what the process holds.
    assert run(27.0) == (27.0 + 1000 + 200 + 100 + 2 + 3, 0.0)
    assert rests[-1] == (frozenset({x(0), a(1)}),)


@settings(max_examples=10)
@given(RANDOMS)
def test_any_run_is_what_a_machine_and_a_clock_make_of_it(random: Random) -> None:
    case = drawn_case(random, RESTART_ONLY | WITH_TAPES, most_steps=6)
    made = Plans(case.schedule, lambda _killed, left: case.recovering()(left))
    length = makespan(case.schedule, case.platform)
    assume(length)
    shared = frozenset(number for number in case.durable if random.random() < 0.5)
    kinds = [
        Failure(survive=case.durable, restart=random.randint(0, 2)),
        Failure(survive=shared, restart=random.randint(0, 5)),
    ]
    times = random.sample(range(int(2 * length) + 4), 3)
    trace = [(at + 0.25, random.choice(kinds)) for at in sorted(times)]
    # Costs are whole and failures are not: sums are exact, and nothing is simultaneous.
    run = trajectory(Book(made, case.platform), trace)
    assert list(run.lives) == replayed(made, case.platform, trace)


@pytest.mark.parametrize("survive", [{0, 1, 2}, {1, 2}, {2}, set()], ids=str)
def test_what_survives_after_each_action_is_what_a_machine_holds_there(survive: set[int]) -> None:
    book = Book(plans(), PLATFORM)
    killed = book.after(book.first, len(book.first.schedule) // 2, frozenset({1, 2}))
    for plan in (book.first, killed):
        machine = Machine(CHAIN, PLATFORM, plan.schedule.stored)
        for done, action in enumerate([*plan.schedule.actions, None]):
            assert plan.survivors(done, frozenset(survive)) == tuple(
                frozenset(keys if number in survive else ())
                for number, keys in enumerate(machine.stored)
            )
            if action is not None:
                machine.apply(action)


def test_what_is_lost_in_another_way_is_planned_in_another_way() -> None:
    book = Book(plans(), PLATFORM)
    done = len(book.first.schedule) // 2
    for survive in (frozenset({1, 2}), frozenset({2}), frozenset({1, 2})):
        found = book.after(book.first, done, survive)
        assert (
            found.schedule.stored == Schedule(CHAIN, [], book.first.survivors(done, survive)).stored
        )
    assert len(book) == 2


def test_a_failure_while_it_starts_again_ends_that_process_too() -> None:
    made, killed = plans(), list[Schedule]()

    def rest(what: Schedule, survivors: Stored) -> Schedule:
        killed.append(what)
        return made.rest(what, survivors)

    book = Book(Plans(made.first, rest), PLATFORM)
    run = trajectory(book, [(40.0, KILLED), (42.0, LOST), (47.0, KILLED)])
    assert killed == [made.first] * 2  # none of those that only started had begun its plan
    assert [life.done for life in run.lives[1:3]] == [0, 0]
    assert run.lives[1].schedule != run.lives[2].schedule
    assert not any(run.lives[2].schedule.stored[:2])
    assert [life.begin for life in run.lives] == [0.0, 40.0, 42.0, 47.0]
    starting = KILLED.restart + book.after(book.first, 0, frozenset()).verifying
    assert run.restarting == 2.0 + 5.0 + starting + reading(run.lives[-1].schedule)
    assert run.makespan == pytest.approx(run.planned + run.restarting + run.redone)


def reading(schedule: Schedule) -> float:
    return sum(
        level.read(schedule.chain.nbytes(key))
        for level, keys in zip(PLATFORM.levels, schedule.stored, strict=False)
        for key in keys
    )


def test_a_failure_at_the_end_comes_too_late() -> None:
    made = plans()
    seconds = makespan(made.first, PLATFORM)
    assert trajectory(Book(made, PLATFORM), [(seconds, KILLED)]).makespan == seconds
    assert trajectory(Book(made, PLATFORM), [(seconds - 0.5, KILLED)]).failures == 1


@pytest.mark.slow
def test_a_run_that_would_not_end_is_given_up() -> None:
    often = Failure(survive=frozenset({1, 2}), mtbf=1.0, restart=30.0)
    with pytest.raises(BadInput, match=r"after 10000 failures, .* s, the run is not done"):
        trajectory(Book(plans(), PLATFORM), exponential((often,), (0,)))


@pytest.mark.slow
@pytest.mark.parametrize("mean", [80.0, 16.0, 6.0])
def test_the_mean_is_what_is_known_of_failures_without_memory(mean: float) -> None:
    steps, every, cost, restart = 24, 4.0, 0.25, 1.0
    chain = Chain(steps=steps, advance=0, record=0, reverse=1, restart=0, tape=0, adjoint=4)
    platform = Platform((Level(name="disk", write=Affine(0.0, cost / 4)),))
    made = recovering(hrevolve(chain, platform), platform, level=0, every=every, durable={0})
    failure = Failure(survive=frozenset({0}), mtbf=mean, restart=restart)
    found = campaign(Book(made, platform), lambda run: exponential((failure,), (3, run)), 1000)

    # Each segment is done again until no failure comes in it; Daly's model, without approximation.
    segments = [every + cost] * (steps // int(every) - 1) + [every]
    assert found.planned == sum(segments)
    exact = sum(mean * exp(restart / mean) * (exp(each / mean) - 1) for each in segments)
    assert abs(found.expected.seconds - exact) < 4 * found.expected.error
    assert found.expected.error < exact / 50
    lost = (found.makespan - found.planned).mean()
    assert found.redone.mean() + found.restarting.mean() == pytest.approx(lost)


def test_failures_come_as_often_as_said_and_know_nothing_of_each_other() -> None:
    drawn = list(islice(exponential((KILLED, LOST), (1,)), 20_000))
    gaps = np.diff([0.0, *(at for at, _ in drawn)])
    assert mtbf((KILLED, LOST)) == pytest.approx(45.0)
    error = 45.0 / len(gaps) ** 0.5
    assert abs(gaps.mean() - 45.0) < 4 * error
    assert abs((gaps > 45.0).mean() - exp(-1)) < 4 * (exp(-1) / len(gaps)) ** 0.5
    share = np.mean([failure is LOST for _, failure in drawn])
    assert abs(share - 0.25) < 4 * (0.25 * 0.75 / len(drawn)) ** 0.5
    assert list(exponential((Failure(survive=frozenset()),), (1,))) == []


def test_the_same_seed_gives_the_same_failures_and_they_scale() -> None:
    def times(mean: float, *seed: int) -> list[float]:
        failure = Failure(survive=frozenset(), mtbf=mean)
        return [at for at, _ in islice(exponential((failure,), seed), 5)]

    assert times(10.0, 1, 2) == times(10.0, 1, 2)
    assert times(10.0, 1, 2) != times(10.0, 1, 3)
    assert times(40.0, 1, 2) == [4 * at for at in times(10.0, 1, 2)]


@pytest.mark.slow
def test_a_campaign_is_reproducible_and_plans_each_rest_once() -> None:
    made, asked = plans(), []

    def rest(killed: Schedule, survivors: Stored) -> Schedule:
        asked.append((killed, survivors))
        return made.rest(killed, survivors)

    book, done = Book(Plans(made.first, rest), PLATFORM), list[int]()
    first = campaign(book, moments, 30, watch=done.append)
    assert sum(done) == 30
    assert len(asked) == len(set(asked)) == len(book) == first.plans < first.failures.sum()
    second = campaign(Book(plans(), PLATFORM), moments, 30)
    assert np.array_equal(first.makespan, second.makespan)
    quantiles = first.quantiles()
    assert len(quantiles) == len(QUANTILES)
    assert sorted(quantiles) == list(quantiles)
    assert first.planned <= quantiles[0] < quantiles[-1]
    assert 0 < first.share_redone < 1


def test_an_interrupt_ends_it_wherever_it_comes() -> None:
    """Simpy runs what is in its processes behind a net for all errors."""

    def interrupted(*_: object) -> Schedule:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError

    def failures() -> Iterable[Moment]:
        yield 40.0, KILLED
        interrupted()

    made = plans()
    with pytest.raises(KeyboardInterrupt):
        trajectory(Book(Plans(made.first, interrupted), PLATFORM), [(40.0, KILLED)])
    with pytest.raises(KeyboardInterrupt):
        trajectory(Book(made, PLATFORM), failures())


@pytest.mark.parametrize("at", [30.0, nan])
def test_moments_that_are_not_in_order_are_refused(at: float) -> None:
    with pytest.raises(BadInput, match="comes after one at 40 s"):
        trajectory(Book(plans(), PLATFORM), [(40.0, KILLED), (at, KILLED)])


def test_where_it_hardly_fails_young_and_daly_agree_and_where_it_always_does_daly_waits() -> None:
    """Tiny costs, and a mean time far below the interval that Young would have."""
    for cost, mean in ((1e-9, 1e3), (1e-3, 1e9)):
        assert every(cost, mean) == pytest.approx((2 * cost * mean) ** 0.5, rel=1e-5)
    assert every(100.0, 1e-3) == 1e-3
    made, seldom = plans(), Failure(survive=frozenset({1, 2}), mtbf=1e12)
    found = campaign(Book(made, PLATFORM), lambda run: exponential((seldom,), (run,)), 100)
    assert found.expected == Mean(found.planned, 0.0)


def test_no_runs_are_refused_and_some_are_watched() -> None:
    done: list[int] = []
    campaign(Book(plans(), PLATFORM), moments, 1, watch=done.append)
    assert done == [1]
    with pytest.raises(BadInput, match="0 runs"):
        campaign(Book(plans(), PLATFORM), moments, 0)


@pytest.mark.slow
def test_intervals_are_compared_by_the_same_failures() -> None:
    tried = compare({e: plans(e) for e in (inf, 25.0)}, PLATFORM, moments, 25)
    assert [one.every for one in tried] == [25.0, inf]
    assert tried[0].adjoints > tried[1].adjoints == 0
    for one in tried:
        alone = campaign(Book(plans(one.every), PLATFORM), moments, 25)
        assert np.array_equal(one.outcomes.makespan, alone.makespan)
    saved = tried[0].outcomes.less_than(tried[1].outcomes)
    means = [one.outcomes.expected.seconds for one in tried]
    assert saved.seconds == pytest.approx(means[1] - means[0])
    assert best(tried).outcomes.expected.seconds == min(means)
    assert best(tried[::-1]) is best(tried)


def test_of_equal_means_the_longest_interval_is_the_best() -> None:
    (one,) = compare({20.0: plans(20.0)}, PLATFORM, lambda _: (), 1)
    again = type(one)(40.0, 0, one.outcomes)
    assert best([one, again]) is best([again, one]) is again


def test_intervals_lie_around_the_one_in_the_middle() -> None:
    assert intervals(8.0) == (2.0, 4.0, 8.0, 16.0, 32.0)
    assert intervals(1.0, ratio=3.0, each_side=1) == (1 / 3, 1.0, 3.0)


def test_a_mean_has_its_standard_error() -> None:
    found = Mean.of(np.array([1.0, 3.0, 5.0, 7.0]))
    assert found == Mean(4.0, pytest.approx((20 / 3) ** 0.5 / 2))  # type: ignore[arg-type]
    assert Mean.of(np.array([2.0])) == Mean(2.0, inf)
    nothing = np.zeros(2)
    assert Outcomes(nothing, nothing, nothing, np.zeros(2, np.int64), 0.0, 0).share_redone == 0.0


def test_a_trace_is_read_line_by_line() -> None:
    kinds = {"process": KILLED, "node": LOST}
    text = "# of one week\n10\n\n12.5 node  # a disk\n40 process\n"
    assert parse_trace(text, kinds, float) == ((10.0, KILLED), (12.5, LOST), (40.0, KILLED))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1\n2 disk", "line 2: '2 disk' is not TIME"),
        ("1 node 2", "line 1: '1 node 2' is not TIME"),
        ("4\n3", "3 s comes after one at 4 s"),
        ("-1", "must be finite and >= 0"),
    ],
)
def test_what_is_no_trace_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_trace(text, {"process": KILLED, "node": LOST}, float)


def test_a_run_that_starts_somewhere_in_a_trace_sees_it_from_there_again_and_again() -> None:
    trace = checked([(0.0, LOST), (3.0, KILLED), (10.0, KILLED)])
    begins = set()
    for run in range(20):
        seen = list(islice(from_somewhere(trace, (5, run)), 9))
        times = [at for at, _ in seen]
        assert times == sorted(times)
        assert 0 < times[0] <= 7.0
        assert np.diff(times)[3:6] == pytest.approx(np.diff(times)[:3])
        assert times[3] - times[0] == pytest.approx(10.0)
        begins.add(round(times[0], 6))
    assert len(begins) == 20
    for empty in ([], [(0.0, KILLED)]):
        with pytest.raises(BadInput, match="needs a failure after its start"):
            from_somewhere(empty, (5,))


@pytest.mark.parametrize("wrong", [{"mtbf": 0.0}, {"mtbf": "often"}, {"restart": -1.0}])
def test_what_cannot_fail_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        Failure(survive=frozenset(), **wrong)
