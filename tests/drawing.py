"""Random chains, platforms and schedules for tests.

A schedule may be legal, complete, legal except for one change, or an arbitrary list of actions. The
functions `random_...` take a `random.Random`, for tests that draw many cases themselves. The
functions with plural names, for example `legal_schedules()`, return strategies of hypothesis, which
also shrink a failing case. Their values are pairs (schedule, platform), except for `chains` and
`platforms`.
"""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.errors import IllegalAction
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import COSTS, SECONDS, SIZES, Chain
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine

T = TypeVar("T")
Case = tuple[Schedule, Platform]

RATIOS = (1.0, 1.0, 0.5, 0.7, 1.3)
"""Stored bytes per payload byte, from which levels are drawn."""


def random_chain(random: Random, /, *, most_steps: int = 8) -> Chain:
    """Return a chain with 1 to `most_steps` steps.

    Its costs differ from each other, and so do its sizes. They are whole numbers, so that sums are
    exact. In half of the chains some of them vary from step to step, and in half of them a step
    that is only recorded takes less.
    """
    steps = random.randint(1, most_steps)
    seconds = zip(SECONDS, random.sample(range(1, 12), len(SECONDS)), strict=True)
    sizes = zip(SIZES, random.sample(range(1, 9), len(SIZES)), strict=True)
    costs: dict[str, Any] = dict((*seconds, *sizes))
    for name in random.sample(COSTS, random.choice((0, 0, 1, 3, 6))):
        costs[name] = [random.randint(0, 9) for _ in range(steps)]
    if random.random() < 0.5:
        record, advance = (np.broadcast_to(costs[it], steps) for it in ("record", "advance"))
        saved = [random.randint(0, int(most)) for most in np.minimum(record, advance)]
        some = (record - saved).tolist()
        are_alike = not any(isinstance(costs[it], list) for it in ("record", "advance"))
        costs["record_only"] = random.choice((some, some[0])) if are_alike else some
    return Chain(steps=steps, **costs)


def random_platform(random: Random, chain: Chain, /, *, most_levels: int = 3) -> Platform:
    """Return a platform whose levels can store a few checkpoints of this chain, or any number."""
    largest = max(map(chain.largest, SIZES))

    def level(number: int) -> Level:
        write, read, discard = random.sample(range(8), 3)
        return Level(
            name=f"level{number}",
            capacity=random.choice((None, *(random.randint(0, 4 * largest) for _ in range(3)))),
            write=Affine(latency=write, per_byte=random.choice((0, 0.5, 2))),
            read=Affine(latency=read, per_byte=random.choice((0, 0.25, 1))),
            discard=Affine(latency=discard),
            ratio=random.choice(RATIOS),
        )

    levels = tuple(map(level, range(random.randint(1, most_levels))))
    memory = random.choice(
        (None, *(random.randint(0, 3) * chain.largest("tape") for _ in range(3)))
    )
    return Platform(levels, working_memory=memory)


def random_key(random: Random, chain: Chain, /) -> Key:
    """Return any key of the chain: x_0 to x_n, t_0 to t_(n-1), or a_0 to a_n."""
    kind = random.choice(tuple(Kind))
    return Key(kind, random.randint(0, chain.length - (kind is Kind.TAPE)))


def random_stored(
    random: Random, chain: Chain, platform: Platform, /
) -> tuple[frozenset[Key], ...]:
    """Return the keys on each level at the start. They fit on the levels, and are often none."""
    stored: list[set[Key]] = [set() for _ in platform.levels]
    for _ in range(random.choice((0, 0, 2, 6))):
        number = random.randrange(len(stored))
        level, keys = platform.levels[number], stored[number] | {random_key(random, chain)}
        used = sum(level.stored(chain.nbytes(key)) for key in keys)
        if level.capacity is None or used <= level.capacity:
            stored[number] = keys
    return tuple(map(frozenset, stored))


def random_action(random: Random, chain: Chain, levels: int, /) -> Action:
    """Return any action, sometimes with steps or levels that do not exist."""
    if random.random() < 0.5:
        begin = random.randint(0, chain.length)
        span = random.choice((Advance, Record, Reverse))
        return span(begin, begin + random.randint(1, 3))
    access = random.choice((Write, Read, Discard))
    return access(random_key(random, chain), random.randint(0, levels - (random.random() < 0.95)))


def is_allowed(machine: Machine, action: Action, /) -> bool:
    """Return whether this action is legal in the machine's current state, which is not changed."""
    trial = copy(machine)
    trial.stored = [set(keys) for keys in machine.stored]
    trial.used = list(machine.used)
    try:
        trial.apply(action)
    except IllegalAction:
        return False
    return True


def tempting(machine: Machine, random: Random, /) -> list[Action]:
    """Return a few actions of each type that are probably legal now."""
    length, state, tape = machine.chain.length, machine.state, machine.tape
    tries: list[Action] = []
    if state is not None and state < length:
        tries.append(Advance(state, random.randint(state + 1, length)))
        tries.append(Record(state, random.randint(state + 1, length)))
        tries.append(Record(state, state + 1))
    if tape is not None:
        tries += [Reverse(begin, tape[1]) for begin in range(*tape)]
    keys_in_memory = [Key(Kind.ADJOINT, machine.adjoint)]
    keys_in_memory += [] if state is None else [Key(Kind.RESTART, state)]
    keys_in_memory += [] if tape is None else [Key(Kind.TAPE, tape[0])]
    for level, keys in enumerate(machine.stored):
        tries += [Write(key, level) for key in keys_in_memory]
        for key in random.sample(sorted(keys, key=str), min(2, len(keys))):
            tries += [Read(key, level), Discard(key, level)]
    return tries


def grow(
    machine: Machine, random: Random, count: int, /, *, never: frozenset[Action] = frozenset()
) -> list[Action]:
    """Apply up to `count` random legal actions that are not in `never`, and return them.

    Each time a type of action is drawn first, and then an action of this type.
    """
    actions: list[Action] = []
    while len(actions) < count:
        sorts: dict[type[Action], list[Action]] = {}
        for action in tempting(machine, random):
            if action not in never and is_allowed(machine, action):
                sorts.setdefault(type(action), []).append(action)
        if not sorts:
            break
        action = random.choice(sorts[random.choice(list(sorts))])
        machine.apply(action)
        actions.append(action)
    return actions


def finish(machine: Machine, level: int, /) -> list[Action]:
    """Apply legal actions that bring the adjoint to 0, and return them.

    They recompute each state from x_0, which must be stored on this level.
    """
    actions: list[Action] = []
    while machine.adjoint > 0:
        last = machine.adjoint - 1
        actions.append(
            next(
                action
                for action in _ways(machine.state, last, level)
                if is_allowed(machine, action)
            )
        )
        machine.apply(actions[-1])
    return actions


def _ways(state: int | None, last: int, level: int) -> Iterator[Action]:
    """Yield actions that may reverse the step `last` or prepare it, the most direct first."""
    yield Reverse(last, last + 1)
    if state is not None and state < last:
        yield Advance(state, last)
    yield Record(last, last + 1)
    yield Read(Key(Kind.RESTART, 0), level)


def random_legal(random: Random, /, *, most_steps: int = 8, most_levels: int = 3) -> Case:
    """Return a legal schedule with all types of actions and keys. It may end anywhere."""
    chain = random_chain(random, most_steps=most_steps)
    platform = random_platform(random, chain, most_levels=most_levels)
    stored = random_stored(random, chain, platform)
    actions = grow(Machine(chain, platform, stored), random, random.randint(0, 40))
    return Schedule(chain, actions, stored), platform


def random_complete(random: Random, /, *, most_steps: int = 8, most_levels: int = 3) -> Case:
    """Return a legal schedule that starts without checkpoints and reverses every step once.

    It begins with a write of x_0, which stays on its level.
    """
    chain = random_chain(random, most_steps=most_steps)
    platform = random_platform(random, chain, most_levels=most_levels)
    number = random.randrange(len(platform.levels))
    platform = _fitting(platform, chain, number)
    machine, start = Machine(chain, platform), Write(Key(Kind.RESTART, 0), number)
    machine.apply(start)
    never = frozenset({Discard(start.key, number)})
    actions = grow(machine, random, random.randint(0, 40), never=never)
    return Schedule(chain, [start, *actions, *finish(machine, number)]), platform


def _fitting(platform: Platform, chain: Chain, number: int) -> Platform:
    """Return the platform, enlarged so that x_0 fits on this level and a tape into memory."""
    levels, memory = list(platform.levels), platform.working_memory
    level = levels[number]
    if level.capacity is not None:
        needed = level.stored(chain.nbytes(Key(Kind.RESTART, 0)))
        levels[number] = replace(level, capacity=max(level.capacity, needed))
    return Platform(tuple(levels), None if memory is None else max(memory, chain.largest("tape")))


def random_any(random: Random, /) -> Case:
    """Return a schedule that is nearly always illegal.

    It begins with legal actions. Then a probably legal one and some arbitrary ones follow.
    """
    chain = random_chain(random)
    platform = random_platform(random, chain)
    stored = random_stored(random, chain, platform)
    machine = Machine(chain, platform, stored)
    actions = grow(machine, random, random.randint(0, 20))
    actions += random.sample(tempting(machine, random), 1)
    actions += [
        random_action(random, chain, len(platform.levels)) for _ in range(random.randint(0, 8))
    ]
    return Schedule(chain, actions, stored), platform


def mutated(random: Random, case: Case, /) -> Case:
    """Return the case with one random change.

    An action is removed, repeated, swapped with another, replaced or added, or a capacity changes.
    """
    schedule, platform = case
    actions = list(schedule.actions)
    if not actions:
        return case
    i, j = random.randrange(len(actions)), random.randrange(len(actions))
    other = random_action(random, schedule.chain, len(platform.levels))
    match random.randrange(6):
        case 0:
            del actions[i]
        case 1:
            actions.insert(j, actions[i])
        case 2:
            actions[i], actions[j] = actions[j], actions[i]
        case 3:
            actions[i] = other
        case 4:
            actions.insert(i, other)
        case _:
            platform = _smaller(random, platform)
    return Schedule(schedule.chain, actions, schedule.stored), platform


def _smaller(random: Random, platform: Platform) -> Platform:
    number = random.randrange(len(platform.levels))
    level = replace(platform.levels[number], capacity=random.randint(0, 12))
    levels = (*platform.levels[:number], level, *platform.levels[number + 1 :])
    return Platform(levels, random.choice((platform.working_memory, random.randint(0, 12))))


@st.composite
def _strategy(draw: st.DrawFn, make: Callable[[Random], T]) -> T:
    return make(draw(st.randoms(use_true_random=False)))


def chains(*, most_steps: int = 8) -> st.SearchStrategy[Chain]:
    """Return a strategy of the chains of `random_chain`."""
    return _strategy(lambda random: random_chain(random, most_steps=most_steps))


def platforms(
    chain: Chain | None = None, /, *, most_levels: int = 3
) -> st.SearchStrategy[Platform]:
    """Return a strategy of the platforms of `random_platform`.

    If no chain is given, the levels fit a random one.
    """
    return _strategy(
        lambda random: random_platform(
            random, chain or random_chain(random), most_levels=most_levels
        )
    )


def legal_schedules() -> st.SearchStrategy[Case]:
    """Return a strategy of legal cases.

    They have tapes, adjoints, several levels, and keys that are stored at the start.
    """
    return _strategy(random_legal)


def complete_schedules(*, most_steps: int = 8, most_levels: int = 3) -> st.SearchStrategy[Case]:
    """Return a strategy of legal cases that start without checkpoints and reverse all steps."""
    return _strategy(
        lambda random: random_complete(random, most_steps=most_steps, most_levels=most_levels)
    )


def any_schedules() -> st.SearchStrategy[Case]:
    """Return a strategy of cases that are nearly always illegal."""
    return _strategy(random_any)


@st.composite
def untidy_schedules(draw: st.DrawFn) -> Case:
    """Draw a legal case whose costs are arbitrary floats, whose sum depends on the order."""
    schedule, platform = draw(legal_schedules())
    seconds = st.floats(0, 10)
    affines = st.builds(Affine, latency=seconds, per_byte=st.floats(0, 1))
    levels = tuple(
        replace(level, write=draw(affines), read=draw(affines), discard=draw(affines))
        for level in platform.levels
    )
    steps = schedule.chain.length
    costs: dict[str, Any] = {
        name: draw(st.one_of(seconds, st.lists(seconds, min_size=steps, max_size=steps)))
        for name in SECONDS
    }
    if schedule.chain.record_only is not None:
        record, advance = (np.broadcast_to(costs[it], steps) for it in ("record", "advance"))
        costs["record_only"] = (
            record - draw(st.floats(0, 1)) * np.minimum(record, advance)
        ).tolist()
    chain = replace(schedule.chain, **costs)
    return Schedule(chain, schedule.actions, schedule.stored), replace(platform, levels=levels)
