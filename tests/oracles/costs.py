"""The seconds of one action, beside the columns of `ckio.schedule.seconds_of`.

First writes and cold reads, whose seconds depend on earlier actions, take those of other accesses.
"""

from typing import assert_never

from ckio.actions import Action, Advance, Discard, Key, Read, Record, Reverse, Write
from ckio.platform import Platform, copies
from ckio.platform.chain import Chain


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
