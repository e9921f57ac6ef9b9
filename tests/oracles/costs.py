"""The seconds of one action, beside the columns of `ckio.schedule.seconds_of`.

First writes and cold reads, whose seconds depend on earlier actions, take those of other accesses.
"""

from collections.abc import Sequence
from typing import assert_never

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.platform import Platform, copies
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


def all_seconds(schedule: Schedule, platform: Platform, /) -> list[float]:
    """The seconds of each action; a Record takes less if nothing comes to use its last state."""
    chain, actions = schedule.chain, list(schedule.actions)
    taken = [seconds(action, chain, platform) for action in actions]
    arrived = False
    for number, action in enumerate(actions):
        match action:
            case Record(_, end) if (end < chain.length or arrived) and not chain.variables:
                if not _is_used(actions[number + 1 :]):
                    saved = float(chain.saved_of_each()[end - 1])
                    taken[number] = max(taken[number] - saved, 0.0)
            case Advance(_, end) | Record(_, end) if end == chain.length:
                arrived = True
    return taken


def _is_used(later: Sequence[Action]) -> bool:
    for action in later:
        match action:
            case Advance() | Record() | Write(Key(Kind.RESTART)):
                return True
            case Read(Key(Kind.RESTART)):
                return False
    return False


def seconds(action: Action, chain: Chain, platform: Platform, /) -> float:
    """The seconds that one action takes on this platform."""
    match action:
        case Write(key, level):
            return platform.levels[level].write(_moved(key, chain, platform, level))
        case Read(key, level):
            return platform.levels[level].read(_moved(key, chain, platform, level))
        case Discard(key, level):
            return platform.levels[level].discard(chain.nbytes(key))
        case Advance() | Record() | Reverse():
            return chain.seconds(action)
        case _:
            assert_never(action)


def _moved(key: Key, chain: Chain, platform: Platform, number: int) -> int:
    return chain.nbytes(key) if copies(chain, platform, number, key.kind) else chain.copied(key)
