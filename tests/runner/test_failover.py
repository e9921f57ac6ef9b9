"""A level fails in mid-run, and the gradient is, to the last bit, as if it had not."""

import gc
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from random import Random

import pytest
from drawing import complete_schedules, random_complete
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import digest

from ckio.actions import Advance, Key, Kind, Layout, Record, Reverse, Write
from ckio.actions.columns import WRITE
from ckio.backends.base import Backend
from ckio.backends.ram import Ram
from ckio.errors import (
    BadInput,
    CorruptCheckpoint,
    LevelFull,
    LevelInUse,
    MissingCheckpoint,
    NoSchedule,
    Stopped,
    StorageError,
    UnsupportedKind,
)
from ckio.planners.dp import hrevolve
from ckio.planners.resume import resume
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import VirtualClock
from ckio.runner import run
from ckio.runner.failover import Stored, failover
from ckio.schedule import Schedule, counts
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Event
from ckio.testing import CountingModel, Throttled, a, save, x

from .failing import (
    THOROUGH,
    Faults,
    Faulty,
    Logistic,
    Told,
    Unready,
    chain_of,
    finished,
    memory,
    platform_of,
    some,
    truth,
)

STEPS = 6
CHAIN = chain_of(STEPS)
PLATFORM = platform_of(CHAIN, 1, 1, 2)
PLAN = hrevolve(CHAIN, PLATFORM)
CALLS = sum(level.writes + level.reads + level.discards for level in counts(PLAN).levels)
TRUTH = truth(STEPS)

ERRORS = (
    *(StorageError, LevelFull, MissingCheckpoint, CorruptCheckpoint),
    *(LevelInUse, UnsupportedKind),
)


def test_the_plan_uses_every_level_in_every_way() -> None:
    for level in counts(PLAN).levels:
        assert min(level.writes, level.reads, level.discards) > 0


def test_a_run_in_which_nothing_fails_is_as_always() -> None:
    def throttled(clock: VirtualClock) -> list[Throttled]:
        return [Throttled(Ram(), level, clock) for level in PLATFORM.levels]

    first, second = VirtualClock(), VirtualClock(7.0)
    alone = run(PLAN, PLATFORM, CountingModel(CHAIN, first), throttled(first), clock=first)
    made, seen = CountingModel(CHAIN, second), list[Event]()
    timeline, model = failover(
        *(PLAN, PLATFORM, made, throttled(second)),
        fresh=pytest.fail,
        replan=lambda *_: pytest.fail("nothing failed"),
        warn=pytest.fail,
        clock=second,
        watch=seen.append,
    )
    assert timeline.actions == alone.actions
    assert timeline.stop.tolist() == pytest.approx(alone.stop.tolist())
    assert model is made
    assert seen == list(timeline)


@THOROUGH
def test_any_call_may_fail_once_or_from_then_on(thorough: bool) -> None:
    for number in range(CALLS):
        for error, ever in some(list(product(ERRORS, (False, True))), number, thorough=thorough):
            faults, told = Faults({number: error}, ever=ever), Told()
            _, model = told.run(PLAN, PLATFORM, memory(faults, PLATFORM))
            assert digest(model) == TRUTH, (number, error, ever)
            assert faults.raised
            assert len(told.said) == len(set(told.said)) > 0
            name = PLATFORM.levels[faults.raised[0][0]].name
            assert f"level {name!r}" in told.said[0]
            assert "this" in told.said[0]


@THOROUGH
def test_any_call_may_fail_behind_the_program(thorough: bool) -> None:
    for number in range(CALLS):
        cases = list(product(ERRORS[:4], (False, True)))
        for error, ever in some(cases, number, thorough=thorough):
            faults, told = Faults({number: error}, ever=ever), Told()
            levels = [Ram(), *memory(faults, PLATFORM)[1:]]
            timeline, model = told.run(PLAN, PLATFORM, levels, overlap=Overlap(2, 2))
            assert digest(model) == TRUTH, (number, error, ever)
            assert bool(told.said) == bool(faults.raised)
            assert len(timeline.transfers)


@pytest.mark.parametrize("number", range(0, CALLS // 2, 3))
def test_with_no_level_left_it_stops_and_says_why(number: int) -> None:
    faults, told = Faults(dict.fromkeys(range(number, 999), StorageError)), Told()
    levels = memory(faults, PLATFORM)
    with pytest.raises(StorageError, match="there is no way to continue") as caught:
        told.run(PLAN, PLATFORM, levels)
    assert isinstance(caught.value.__cause__, StorageError)
    for words in (str(caught.value.__cause__), "'level", "are intact: resume the run"):
        assert words in str(caught.value)
    assert caught.value.level is not None
    asked = [level for level, _, _ in faults.raised]
    assert len(asked) == len(set(asked))  # nothing is asked again of what was given up
    for level in levels:  # and it is as the failures left it
        for key in list(level.backend.keys()):
            with Logistic().load(key, level.layout(key)) as into:
                level.backend.read(key, into)


def test_a_full_level_keeps_what_it_holds_and_is_told_of_once() -> None:
    """Its disk has room for two more, for one more, for none: each time it is planned for less."""

    class Filling(Faulty):
        room = 5

        def write(self, key: Key, layout: Layout, data, /) -> int:  # type: ignore[no-untyped-def]
            if len(self.backend.keys()) >= self.room:
                self.room = max(1, self.room - 2)
                raise LevelFull("no space left")
            return super().write(key, layout, data)

    chain = chain_of(24)
    platform = platform_of(chain, 8, 6)
    plan, told = hrevolve(chain, platform), Told()
    levels = [Filling(Ram(), number, Faults({})) for number in range(2)]
    _, model = told.run(plan, platform, levels)
    assert digest(model) == truth(24)
    assert sorted(text.split("'")[1] for text in told.said) == ["level0", "level1"]
    assert all(" is full" in text for text in told.said)
    shrunk = [told_of.levels[0].capacity for told_of in told.platforms]
    assert shrunk == sorted(shrunk, reverse=True)  # type: ignore[type-var]
    assert any(keys for keys in told.plans[0].stored)
    assert told.platforms[-1].levels[0].capacity > 0  # type: ignore[operator]


class Forgets(Faulty):
    """A level that loses what it is given; and perhaps it cannot discard what it has lost."""

    def __init__(self, number: int, *, stuck: bool) -> None:
        super().__init__(Ram(), number, Faults({}))
        self.stuck = stuck

    def read(self, key: Key, into, /) -> int:  # type: ignore[no-untyped-def]
        raise CorruptCheckpoint(f"{key} is not what it was")

    def discard(self, key: Key, /) -> None:
        if self.stuck:
            raise MissingCheckpoint(f"{key} is gone")
        super().discard(key)


@pytest.mark.parametrize("stuck", [False, True])
def test_a_level_that_always_loses_what_it_is_given_is_given_up(stuck: bool) -> None:
    """At once, and nothing is asked of it any more, if it cannot discard what it has lost."""
    chain = chain_of(12)
    platform = platform_of(chain, 2, 2)
    plan = hrevolve(chain, platform)
    for number in range(2):
        levels, told = memory(Faults({}), platform), Told()
        levels[number] = Forgets(number, stuck=stuck)
        timeline, model = told.run(plan, platform, levels)
        assert digest(model) == truth(12)
        given_up = ["is given up" in text for text in told.said]
        assert given_up == ([True] if stuck else [False] * (len(told.said) - 1) + [True])
        assert told.platforms[-1].levels[number].capacity == 0
        assert not (timeline.actions.level > 1).any()


@pytest.mark.parametrize("verb", ["reserve", "keys"])
@pytest.mark.parametrize("error", [StorageError, LevelFull])
def test_a_level_may_fail_while_it_is_made_ready_for_the_rest(
    verb: str, error: type[StorageError]
) -> None:
    for number in range(2, CALLS - 1, 5):
        levels = memory(Faults({number: StorageError}), PLATFORM)
        levels[1], told = Unready(verb, error, number=1, after=1), Told()
        levels[1].faults = levels[0].faults
        _, model = told.run(PLAN, PLATFORM, levels)
        assert digest(model) == TRUTH
        assert any("'level1'" in text for text in told.said)


@pytest.mark.parametrize("verb", ["reserve", "prepare", "keys"])
def test_a_level_may_fail_while_it_is_made_ready_for_the_first_plan(verb: str) -> None:
    """An archive that is cut short before the first action, say."""
    for number, overlap in product(range(3), (Overlap(), Overlap(1, 1))):
        levels: list[Backend] = [Ram(), Ram(), Ram()]
        levels[number], told = Unready(verb, StorageError, number=number), Told()
        _, model = told.run(PLAN, PLATFORM, levels, overlap=overlap)
        assert digest(model) == TRUTH
        assert [f"level 'level{number}' fails" in text for text in told.said] == [True]


def test_what_is_no_level_s_failure_ends_the_run_as_it_is() -> None:
    class Broken(Logistic):
        def adjoint_step(self, adjoint, tape, i, /):  # type: ignore[no-untyped-def]
            raise StorageError("the model's own")

    def watch(event: Event) -> None:
        raise StorageError(f"after {event.action}")

    with pytest.raises(StorageError, match=r"^#\d+ Reverse\[5, 6\): the model's own"):
        Told(fresh=Broken).run(PLAN, PLATFORM, memory(Faults({}), PLATFORM))
    with pytest.raises(StorageError, match=r"^after Write\(x_0, level \d\)$"):
        Told().run(PLAN, PLATFORM, memory(Faults({}), PLATFORM), watch=watch)
    with pytest.raises(BadInput, match="level 'level0' has no space"):
        Told().run(PLAN, PLATFORM, [Ram(capacity=1), Ram(), Ram()])
    told = Told()  # but a rest goes on without it, also if no checkpoint has survived
    _, model = told.run(PLAN, PLATFORM, [Ram(capacity=1), Ram(), Ram()], resumed=True)
    assert digest(model) == TRUTH
    assert any("'level0'" in text for text in told.said)
    plan = replace(PLAN, chain=replace(CHAIN, adjoint=1))
    with pytest.raises(BadInput, match="1 bytes for an adjoint checkpoint"):
        Told().run(plan, PLATFORM, [Ram(), Ram(), Ram()])


# Where there is no plan from all that is stored


@dataclass
class Picky(Told):
    """There is no plan where `refused` says so; before there is one, nothing is discarded."""

    refused: Callable[[Stored], object] = any
    levels: Sequence[Faulty] = ()
    asked: list[Stored] = field(default_factory=list)

    def replan(self, chain: Chain, platform: Platform, stored: Stored) -> Schedule:
        self.asked.append(stored)
        self.check_intact({k for k, level in enumerate(platform.levels) if level.capacity == 0})
        if self.refused(stored):
            raise NoSchedule(f"not from {stored}")
        return super().replan(chain, platform, stored)

    def check_intact(self, given_up: Collection[int]) -> None:
        """On all other levels there still lies what there was when it was asked first."""
        for number, (level, keys) in enumerate(zip(self.levels, self.asked[0], strict=False)):
            assert number in given_up or set(level.keys()) == keys


def has_restart_data(stored: Stored) -> bool:
    return any(key.kind is Kind.RESTART for keys in stored for key in keys)


@pytest.mark.parametrize(
    ("refused", "again"),
    [
        pytest.param(lambda stored: any(stored[:-1]), False, id="what is on the levels"),
        pytest.param(has_restart_data, False, id="restart data"),
        pytest.param(any, True, id="anything"),
    ],
)
def test_what_there_is_no_plan_from_is_discarded(
    refused: Callable[[Stored], bool], again: bool
) -> None:
    asked = list[int]()
    for number in range(0, CALLS, 3):
        levels = memory(Faults({number: StorageError}), PLATFORM)
        told = Picky(fresh=Counted, refused=refused, levels=levels)
        Counted.back.clear()
        _, model = told.run(PLAN, PLATFORM, levels)
        assert digest(model) == TRUTH
        assert len(Counted.back) == STEPS or again
        assert len(told.said) == len(told.plans) == 1
        for level, priced in zip(levels, told.platforms[0].levels, strict=False):
            assert priced.capacity == 0 or not set(level.keys())
        asked.append(len(told.asked))
    assert max(asked) > 1


def test_where_there_is_no_plan_at_all_nothing_is_discarded() -> None:
    for number in range(2, CALLS, 3):
        levels = memory(Faults({number: StorageError}), PLATFORM)
        told = Picky(refused=lambda _: True, levels=levels)
        with pytest.raises(StorageError, match="there is no way to continue: not from") as caught:
            told.run(PLAN, PLATFORM, levels)
        assert f"not from {told.asked[0]}" in str(caught.value)  # which is all that was stored
        assert not any(told.asked[-1])
        told.check_intact({caught.value.level})


# What is carried


class Counted(Logistic):
    """A model that notes the steps that it makes, of all that were made."""

    forward: list[int] = []  # noqa: RUF012
    back: list[int] = []  # noqa: RUF012

    def step(self, state, i, /):  # type: ignore[no-untyped-def]
        self.forward.append(i)
        super().step(state, i)

    def adjoint_step(self, adjoint, tape, i, /):  # type: ignore[no-untyped-def]
        self.back.append(i)
        super().adjoint_step(adjoint, tape, i)


@pytest.fixture(autouse=True)
def forgotten() -> None:
    Counted.forward, Counted.back = [], []


@THOROUGH
def test_no_step_is_reversed_twice_and_two_checkpoints_at_most_are_carried(thorough: bool) -> None:
    for number in range(0, CALLS, 1 if thorough else 4):
        Counted.back.clear()
        told = Told(fresh=Counted)
        faults = Faults({number: StorageError, number + 2: CorruptCheckpoint})
        _, model = told.run(PLAN, PLATFORM, memory(faults, PLATFORM))
        assert digest(model) == TRUTH
        assert Counted.back == list(reversed(range(STEPS)))
        for platform, plan in zip(told.platforms, told.plans, strict=True):
            kinds = [key.kind for key in (*plan.stored, *[frozenset[Key]()] * 4)[3]]
            assert platform.levels[3].read_only
            assert len(kinds) == len(set(kinds))
            assert not ((plan.actions.op == WRITE) & (plan.actions.level == 3)).any()


def test_the_state_is_not_made_again() -> None:
    plan = Schedule(CHAIN, [Write(x(0), 0), Advance(0, 3), Write(x(3), 1)])
    told = Told(fresh=Counted)
    _, model = told.run(plan, PLATFORM, memory(Faults({1: StorageError}), PLATFORM))
    assert told.plans[0].stored == ({x(0)}, frozenset(), frozenset(), {x(3)})
    assert digest(model) == TRUTH
    assert Counted.forward[:5] == list(range(5))


def test_a_state_behind_the_adjoint_is_not_carried() -> None:
    plan = Schedule(CHAIN, [Write(x(0), 0), Record(0, 6), Reverse(4, 6), Write(x(6), 1)])
    told, roomy = Told(), replace(PLATFORM, working_memory=None)
    _, model = told.run(plan, roomy, memory(Faults({1: StorageError}), PLATFORM))
    assert told.plans[0].stored[3] == {a(4)}
    assert digest(model) == TRUTH


@pytest.mark.slow
def test_what_cannot_be_carried_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory in which it would be carried is full: real, and of no bytes."""
    monkeypatch.setattr("ckio.runner.failover.memory_for", lambda _: Ram(capacity=0))
    for number in range(CALLS):
        told = Told(fresh=Counted)
        _, model = told.run(PLAN, PLATFORM, memory(Faults({number: StorageError}), PLATFORM))
        assert digest(model) == TRUTH
        assert not any(any(plan.stored[3:]) for plan in told.plans)
    assert len(Counted.back) > CALLS * STEPS
    assert (
        "a_1 cannot be carried in memory, and is computed again: memory has no space"
        in told.said[-1]
    )


def test_a_model_without_adjoint_checkpoints_begins_again() -> None:
    class Simple(Counted):
        def layout(self, key: Key, /) -> Layout:
            if key.kind is Kind.ADJOINT:
                raise UnsupportedKind(f"{key}: not here")
            return super().layout(key)

    told = Told(fresh=Simple)
    plan = replace(PLAN, chain=replace(CHAIN, adjoint=0))
    _, model = told.run(plan, PLATFORM, memory(Faults({CALLS - 1: StorageError}), PLATFORM))
    assert digest(model) == TRUTH
    assert len(Counted.back) == 2 * STEPS - 1


def test_only_one_model_lives_at_a_time() -> None:
    alive = list["weakref.ref[Logistic]"]()

    def fresh() -> Logistic:
        gc.collect()
        assert not any(model() for model in alive)
        model = Logistic()
        alive.append(weakref.ref(model))
        return model

    for number in range(0, CALLS, 5):
        faults = Faults({number: StorageError, number + 2: CorruptCheckpoint})
        _, model = Told(fresh=fresh).run(PLAN, PLATFORM, memory(faults, PLATFORM))
        assert alive[-1]() is model
        del model
    assert len(alive) > CALLS // 5 + 3


def test_a_level_may_have_any_name() -> None:
    levels = (replace(PLATFORM.levels[0], name="carried"), *PLATFORM.levels[1:])
    told = Told()
    _, model = told.run(
        PLAN, Platform(levels, CHAIN.tape), memory(Faults({3: StorageError}), PLATFORM)
    )
    assert digest(model) == TRUTH
    assert told.platforms[0].levels[3].name == "carried_"


# Times, and stops


def test_the_parts_have_one_timeline_and_planning_takes_its_time() -> None:
    for number in range(0, CALLS, 3):
        clock, faults = VirtualClock(100.0), Faults({number: StorageError})
        levels = [
            Throttled(level, priced, clock)
            for level, priced in zip(memory(faults, PLATFORM), PLATFORM.levels, strict=True)
        ]

        def replan(*args, clock=clock) -> Schedule:  # type: ignore[no-untyped-def]
            clock.sleep(50.0)
            return finished(*args)

        seen, failed = list[Event](), list[int]()
        timeline, model = failover(
            *(PLAN, PLATFORM, CountingModel(CHAIN, clock), levels),
            fresh=lambda clock=clock: CountingModel(CHAIN, clock),  # type: ignore[misc]
            replan=replan,
            warn=lambda _, seen=seen, failed=failed: failed.append(len(seen)),  # type: ignore[misc]
            clock=clock,
            watch=seen.append,
        )
        assert model.adjoint == 0
        assert seen == list(timeline)
        (first,) = failed
        assert timeline.actions[:first] == PLAN.actions[:first]
        gaps = timeline.start[1:] - timeline.stop[:-1]
        assert (gaps > -1e-9).all()
        if 0 < first < len(timeline):
            assert gaps[first - 1] == pytest.approx(50.0)
            assert abs(gaps).sum() == pytest.approx(50.0)
        assert timeline.makespan <= clock.now() - 100.0 + 1e-9


@pytest.mark.parametrize("number", range(2, CALLS, 8))
def test_a_stop_waits_until_the_adjoint_is_the_model_s_again(number: int) -> None:
    told, made = Told(), list[Logistic]()

    def fresh() -> Logistic:
        made.append(Logistic())
        return made[-1]

    with pytest.raises(Stopped) as stopped:
        failover(
            *(PLAN, PLATFORM, fresh(), memory(Faults({number: StorageError}), PLATFORM)),
            fresh=fresh,
            replan=told.replan,
            warn=told.said.append,
            stop=lambda: len(made) > 1,
        )
    stored = frozenset[Key]().union(*told.plans[0].stored)
    carried = [key.step for key in stored if key.kind is Kind.ADJOINT]
    assert stopped.value.adjoint == min(carried, default=STEPS)
    key = a(stopped.value.adjoint)  # the last model made stands there
    if carried:
        assert save(made[-1], key)


# Anything


@pytest.mark.parametrize(
    "most", [5, *(pytest.param(8, marks=pytest.mark.slow, id=f"part {part}") for part in range(6))]
)
def test_random_schedules_and_failures_end_well_or_say_why(most: int) -> None:
    @settings(max_examples=25 if most == 5 else 250)
    @given(complete_schedules(most_steps=most), st.randoms(use_true_random=False), st.booleans())
    def campaign(case: tuple[Schedule, Platform], random: Random, ever: bool) -> None:
        end_well_or_say_why(case, random, ever=ever)

    campaign()


@pytest.mark.parametrize("seed", [199, 2876, 5147])
def test_tapes_of_many_sizes_may_leave_no_plan_from_all_that_is_stored(seed: int) -> None:
    """Found by a campaign: a search through what to keep is too long, and steps that differ."""
    random = Random(seed)
    end_well_or_say_why(random_complete(random), random, ever=random.random() < 0.5)


def end_well_or_say_why(case: tuple[Schedule, Platform], random: Random, *, ever: bool) -> None:
    plan, platform = case
    chain = plan.chain
    errors = {random.randint(0, 25): random.choice(ERRORS) for _ in range(random.randint(1, 5))}
    faults, told, hopeless = Faults(errors, ever=ever), Told(), ""
    try:
        _, model = failover(
            *(plan, platform, CountingModel(chain), memory(faults, platform)),
            fresh=partial(CountingModel, chain),
            replan=told.replan,
            warn=told.said.append,
        )
        assert model.adjoint == 0
    except StorageError as error:
        hopeless = str(error)
    if hopeless:
        assert "there is no way to continue" in hopeless
        left = told.platforms[-1]
        with pytest.raises(BadInput):
            resume(chain, Platform(left.levels[:-1], left.working_memory), ())
    assert bool(told.platforms) == bool(faults.raised)
