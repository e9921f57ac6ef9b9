"""The first way forward, which the program goes itself while pyadjoint records it.

What a step starts from is only known when its blocks are there. So a checkpoint x_i is written at
the end of step i, while its values are still in memory. What a later step turns out to need of
before is added to those that are stored.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, assert_never

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.adapters.pyadjoint.shelf import Shelf
from ckio.adapters.pyadjoint.steps import Held, live, used
from ckio.errors import BadInput
from ckio.runner.unknown import Rule
from ckio.schedule import Schedule


def split(schedule: Schedule, /) -> tuple[Sequence[Action], Sequence[Action]]:
    """The way forward, through every step once and in order, and the way back.

    Raises BadInput for a schedule that does not begin with such a way.
    """
    actions, reached = list(schedule.actions), 0
    for number, action in enumerate(actions):
        match action:
            case Advance(begin, end) | Record(begin, end) if begin == reached:
                reached = end
                if end == schedule.chain.length:
                    return actions[: number + 1], actions[number + 1 :]
            case Write() | Read() | Discard():
                pass
            case _:
                raise BadInput(
                    f"#{number} {action} comes before x_{schedule.chain.length} is reached: this"
                    " schedule cannot be followed while the program goes forward once"
                )
    raise BadInput(f"the schedule never reaches x_{schedule.chain.length}")


def endless(rule: Rule, /) -> Iterator[Action]:
    """The way forward of a run that does not know its end."""
    follower, step = rule.follow(0, ()), 0
    while True:
        yield from follower.at(step)
        until = max(step + 1, follower.until(step))
        yield Advance(step, until)
        step = until


class Recording:
    """What becomes of the values of the steps, one after the other, as they are annotated.

    Parameters
    ----------
    steps : sequence of TimeStep
        To which the tape adds.
    held : Held
        What is in memory.
    shelf : Shelf
        What is stored.
    actions
        The way forward.
    """

    def __init__(
        self, steps: Sequence[Any], held: Held, shelf: Shelf, actions: Iterator[Action], /
    ) -> None:
        self._steps, self._held, self._shelf = steps, held, shelf
        self._actions = actions
        self._action = next(actions, None)
        self._source: tuple[Key, int] | None = None
        self._tapes: dict[int, list[Any]] = {}

    @property
    def tapes(self) -> list[int]:
        """The steps whose tapes are in memory."""
        return list(self._tapes)

    def annotated(self, step: int, /) -> None:
        """Do what is to be done with the values of a step, and let go of the others."""
        self._complete(step)
        while self._action is not None and self._do(self._action, step):
            self._action = next(self._actions, None)
        self._held.sweep(chain(live(self._steps[step]), used(self._steps[step])))

    def _do(self, action: Action, step: int) -> bool:
        """Do an action, or what of it concerns a step; returns whether it is done with."""
        match action:
            case Advance(begin, _) | Record(begin, _) if begin > step:
                return False
            case Record(begin, end):
                self._keep(step, fresh=begin == step)
                return end == step + 1
            case Advance(_, end):
                return end == step + 1
            case Write(Key(Kind.RESTART, at), _) if at > step:
                return False
            case Write(key, level) if self._source is not None and self._source[0] == key:
                self._shelf.copy_to(key, self._source[1], level)
            case Write(Key(Kind.RESTART), level):
                self._shelf.write(action.key, level, live(self._steps[step]))
            case Write(key, level):
                self._shelf.write(key, level, used(self._steps[key.step]))
            case Read(key, level):
                self._source = key, level
            case Discard(key, level):
                self._shelf.discard(key, level)
            case Reverse():
                raise BadInput(f"{action} is on the way forward")
            case _:
                assert_never(action)
        return True

    def _keep(self, step: int, *, fresh: bool) -> None:
        """Hold the tape of a step, beside those before it or in their place."""
        replaced = list(self._tapes) if fresh else []
        self._tapes[step] = used(self._steps[step])
        self._held.take(self._tapes[step])  # first: what both have stays
        for earlier in replaced:
            self._held.release(self._tapes.pop(earlier))

    def _complete(self, step: int) -> None:
        """Add to what is stored the older variables that this step uses, and none before it did."""
        older = [it for it in live(self._steps[step]) if it.creation_timestep < step - 1]
        for key in {key for level in self._shelf.stored for key in level} if older else ():
            if key.kind is Kind.RESTART and key.step < step:
                since = [it for it in older if it.creation_timestep < key.step]
                self._shelf.complete(key, since)
