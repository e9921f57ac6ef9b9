"""What a schedule does to one variable: where it needs which version of it, and what it leaves.

The version of a variable in x_j is the last step's end up to j at which the forward overwrote it, 0
if none did: a value of the forward is known by variable and version, however often it is computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import ADVANCE, RECORD, REVERSE, Actions
from ckio.actions.variables import Bools, ChainFlows, Ints, Names
from ckio.schedule.replay import NONE


@dataclass(frozen=True, slots=True)
class Events:
    """What happens to a variable, in order.

    Attributes
    ----------
    place : int64 array
        The number of the action.
    need : int64 array
        The version that has to be there before, or NONE.
    leaves : int64 array
        The version that is there after, or NONE.
    through : bool array
        Overwritten in part: `leaves` comes of `need`, and neither is needed unless what comes of it
        is.
    asleep : int64 array
        Which of all recorded steps it is, if one whose state nobody needs, so far; else NONE. It
        does not leave what it would leave.
    """

    place: Ints
    need: Ints
    leaves: Ints
    through: Bools
    asleep: Ints

    @property
    def left(self) -> Ints:
        """The version that is really there after each."""
        left: Ints = np.where(self.asleep == NONE, self.leaves, NONE)
        return left

    def take(self, index: NDArray[np.intp] | Bools, /) -> "Events":
        """Some of them."""
        return Events(*(getattr(self, column.name)[index] for column in fields(self)))

    @staticmethod
    def together(some: Sequence["Events"], /) -> "Events":
        """All of them in the order of their actions; in one action as they are given."""
        both = Events(
            *(
                np.concatenate([getattr(events, column.name) for events in some])
                for column in fields(Events)
            )
        )
        return both.take(np.argsort(both.place, kind="stable"))

    @staticmethod
    def needs(place: Ints, version: Ints, /) -> "Events":
        """Events that need a version, and leave it."""
        return Events.of(place, version, version)

    @staticmethod
    def of(place: Ints, need: Ints, leaves: Ints, through: Bools | None = None, /) -> "Events":
        """Events of which none is asleep."""
        size = len(place)
        through = np.zeros(size, np.bool_) if through is None else through
        return Events(place, need, leaves, through, np.full(size, NONE))


def awake(actions: Actions, steps: ChainFlows, /) -> Bools:
    """Whether each recorded step surely needs all that the forward step needs."""
    alike = steps.column(lambda step: step.forward.use <= step.record.use)
    return alike[_each_step(actions, RECORD)[1]]


def events(
    actions: Actions, steps: ChainFlows, variable: str, seed: Names, awake: Bools, /
) -> Events:
    """What a schedule, or the beginning of one, does to a variable.

    What is in `seed` is needed in x_n when the forward first gets there. Of all steps recorded, the
    state that those leave that are `awake` is needed.
    """
    version = steps.versions(variable)
    some = [
        _advances(actions, steps, variable, version),
        _records(actions, steps, variable, version, awake),
        _reverses(actions, steps, variable, version),
    ]
    if variable in seed:
        ends = np.flatnonzero((actions.op <= RECORD) & (actions.end == steps.length))[:1]
        some.append(Events.needs(ends, np.full(len(ends), version[-1])))
    return Events.together(some)


def _advances(actions: Actions, steps: ChainFlows, variable: str, version: Ints) -> Events:
    """One event for each Advance, however long: inside of it all versions are right by themselves.

    It needs the variable where it uses it before it has overwritten it as a whole.
    """
    place = np.flatnonzero(actions.op == ADVANCE)
    begin, end = actions.begin[place], actions.end[place]
    use, kill, out = (
        _next(steps.has(variable, "forward", names))[begin] for names in ("use", "kill", "out")
    )
    used = (use < end) & (use <= kill)
    killed = (kill < end) & ~used
    through = (out < end) & ~used & ~killed
    need = np.where(used | through, version[begin], NONE)
    some = Events.of(place, need, version[end], through)
    return some.take(used | killed | through)


def _records(
    actions: Actions, steps: ChainFlows, variable: str, version: Ints, awake: Bools
) -> Events:
    """One event for each step: what it overwrites beyond the forward spoils the variable."""
    place, step = _each_step(actions, RECORD)
    use, kill, out = (steps.has(variable, "record", it)[step] for it in ("use", "kill", "out"))
    use = use | (awake & steps.has(variable, "forward", "use")[step])
    spoilt = out & ~steps.has(variable, "forward", "out")[step]
    through = out & awake & ~use & ~kill & ~spoilt
    need = np.where(use | through, version[step], NONE)
    leaves = np.where(spoilt, NONE, version[step + 1])
    asleep = np.where(out & ~awake, np.arange(len(step)), NONE)
    return Events(place, need, leaves, through, asleep).take(use | out)


def _reverses(actions: Actions, steps: ChainFlows, variable: str, version: Ints) -> Events:
    """One event for each step, the last first: it finds x_{i+1}, and restores x_i or spoils it."""
    place, step = _each_step(actions, REVERSE)
    use, out = (steps.has(variable, "reverse", it)[step] for it in ("use", "out"))
    restored = steps.restores(variable)[step]
    need = np.where(use, version[step + 1], NONE)
    leaves = np.where(restored, version[step], np.where(out, NONE, version[step + 1]))
    return Events.of(place, need, leaves).take(use | out | restored)


def _next(happens: Bools) -> Ints:
    """For each step, the first from there on at which it happens; n if there is none."""
    size = len(happens)
    at = np.where(happens, np.arange(size), size)
    following: Ints = np.append(np.minimum.accumulate(at[::-1])[::-1], size)
    return following


def _each_step(actions: Actions, op: int) -> tuple[Ints, Ints]:
    """The action and the step of all that these actions do, step by step as they do it."""
    place = np.flatnonzero(actions.op == op)
    begin, end = actions.begin[place], actions.end[place]
    count = end - begin
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    first, sign = (end - 1, -1) if op == REVERSE else (begin, 1)
    return np.repeat(place, count), np.repeat(first, count) + sign * within
