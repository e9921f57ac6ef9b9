"""A run that does not know its end: forward by a rule, until the model says that it is finished.

Nothing is known before but the rule, so what `run` checks of a whole schedule is checked here an
action at a time: each is applied to a Machine first, and performed if it is legal. The schedule is
what comes out, and is legal for a chain of as many steps as there turned out to be. `forward.py`
has the first half alone, which goes on when a level fails.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from ckio.actions import Key, Kind, nbytes_of
from ckio.actions.columns import Actions
from ckio.backends.base import Backend
from ckio.errors import BadInput, LevelFull
from ckio.model import Model, layout_of
from ckio.platform.clock import Clock
from ckio.platform.memory import available
from ckio.runner.before import is_estimated
from ckio.runner.perform import Stop
from ckio.runner.rule import Rule
from ckio.runner.stepwise import Performance
from ckio.schedule import Schedule
from ckio.schedule.timeline import Event, Timeline

AT_ONCE: Final = 64
"""Steps of an Advance, the most: so often the watcher of a model that never finishes is heard."""

_X0: Final = Key(Kind.RESTART, 0)


def run_to_end(
    rule: Rule,
    model: Model,
    backends: Sequence[Backend],
    /,
    *,
    clock: Clock | None = None,
    watch: Callable[[Event], None] | None = None,
) -> tuple[Schedule, Timeline]:
    """Run a model forward until it is finished, then back; returns what was done, and when.

    The model is finished where `advance` returns less than it was asked for. Should that be just
    where the rule stores something, it is stored in vain: before, nobody knows, unless the model
    has an attribute `steps` that says so.

    The schedule is for a chain of the steps that there were. Performed again by `run`, on a fresh
    model, it does the same. On the way forward an Advance is of `AT_ONCE` steps at most.

    Parameters
    ----------
    rule
        What is stored on the way, of which chain and on which platform.
    model
        A fresh model at x_0.
    backends
        One open storage level for each level of the platform, in its order, with nothing stored.
        They stay open. Memory that the rule may use is reserved to the full, where it has a
        capacity; what lies on disks grows as it fills.
    clock
        What measures; the wall clock by default.
    watch
        Called with each event after it has happened; what it raises ends the run as it is, and is
        the way to stop a model that does not finish.

    Raises
    ------
    IllegalAction
        The rule breaks a rule of the Machine. The action has not been done.
    BadInput
        Something does not fit together, the levels have no room for what the rule may store, or are
        not empty: before the start. So is NoSchedule, which the rule raises.
    StorageError
        A level failed; its name and the action are in the message, and their numbers in `level`
        and `action`. What was stored is intact.
    RunFailed
        The model was finished at step 0, so that there is nothing to reverse: then all levels are
        empty again, and the model knows its functional. Or it finished early on the way back; or
        it, or a backend, raised something that is not ckio's own, which is then the `__cause__`.
    """
    check_fit(rule, model, backends, [])
    reserve(rule, model, backends)
    performance = Performance(rule, model, backends, clock=clock, watch=watch)
    steps = forward(rule, performance, 0)
    performance.turn(steps)
    back = rule.finish(steps, performance.machine.stored)
    for action in back.actions:
        performance.do(action)
    actions = Actions.of(performance.actions)
    note = f"forward without knowing the end; back: {back.note}"
    return Schedule(back.chain, actions, note=note), performance.recorder.timeline(actions)


def forward(rule: Rule, performance: Performance, step: int, stop: Stop | None = None, /) -> int:
    """From x_step to where the model is finished, which is after step 0; returns where that is."""
    cut = performance.whole if stop is None else performance.pieces
    follower = rule.follow(step, performance.machine.stored)
    while True:
        for action in follower.at(step):
            performance.do(action)
        until = max(step + 1, follower.until(step))
        while step < until:
            asked = min(until, step + AT_ONCE)
            for begin, end in cut(step, asked):
                if stop is not None and stop():
                    raise performance.stopped()
                step = performance.advance(begin, end)
                if step < end or step == performance.known:
                    return step if step else performance.give_up()


def check_fit(
    rule: Rule, model: Model, backends: Sequence[Backend], stored: Sequence[Collection[Key]], /
) -> None:
    """Raise BadInput unless the rule, the model and the open levels speak of the same things."""
    chain, levels = rule.chain, rule.platform.levels
    if len(backends) != len(levels):
        raise BadInput(f"{len(backends)} open levels for a platform of {len(levels)}")
    real = nbytes_of(layout_of(model, _X0))
    if chain.restart != real and not is_estimated(model):
        raise BadInput(
            f"the rule plans {chain.restart} bytes for a restart checkpoint;"
            f" the model's has {real}: plan with the model's sizes"
        )
    for number, (level, backend) in enumerate(zip(levels, backends, strict=True)):
        keys = stored[number] if number < len(stored) else ()
        there = set(backend.keys())
        if other := set(map(str, there.difference(keys))):
            raise BadInput(
                f"level {level.name!r} already holds {min(other)}, and what a run of unknown"
                " length writes there is not known; give it an empty level, or discard what was"
                " left"
            )
        if missing := set(map(str, set(keys) - there)):
            raise BadInput(f"the run goes on from {min(missing)}, which level {level.name!r} lacks")
    if (room := available()) is not None and chain.tape > room:
        raise BadInput(
            f"the way back holds the tape of a step in memory, {chain.tape} bytes; {room} are"
            " available"
        )


def reserve(rule: Rule, model: Model, backends: Sequence[Backend], /) -> None:
    """Make room for all that the rule may store in memory that has an end; raises BadInput."""
    nbytes, levels = rule.chain.restart, rule.levels
    for room in (levels.near, *(far.room for far in levels.far)):
        level, backend = rule.platform.levels[room.number], backends[room.number]
        if level.capacity is None or backend.durable or nbytes == 0:
            continue
        try:
            backend.reserve({nbytes: room.slots})
            if (prepare := getattr(backend, "prepare", None)) is not None:
                prepare(_X0, model.layout(_X0), room.slots)
        except LevelFull as error:
            raise BadInput(
                f"level {level.name!r} has no room for what this rule may store: {error};"
                " free some, or lower the level's capacity and plan again"
            ) from error
