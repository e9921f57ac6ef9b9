"""Steps that are recorded instead of advanced, where a model records faster than it advances.

Both lead to the next state; the tape of such a step is not read. Planners that may store tapes plan
for the chain `quickest`, and `recorded` then replaces their Advances:

>>> from ckio.actions import Advance
>>> chain = Chain(steps=4, advance=2, record=1, reverse=1, restart=8, tape=8, adjoint=8)
>>> quickest(chain).advance
1.0
>>> print(*recorded(chain, Actions.of([Advance(0, 3)]), 2), sep="; ")
Record[0, 2); Record[2, 3)
"""

from dataclasses import replace

import numpy as np

from ckio.actions.columns import ADVANCE, RECORD, Actions
from ckio.platform.chain import Chain


def quickest(chain: Chain, /) -> Chain:
    """Return the chain in which no step takes longer to advance than to record."""
    return replace(chain, advance=np.minimum(chain.each("advance"), chain.each("record")))


def recorded(chain: Chain, actions: Actions, held: int, /) -> Actions:
    """Return the actions with Records in place of Advances where these take longer.

    The working memory holds the tapes of `held` equal steps, which are recorded together. Steps
    that differ are recorded one by one.
    """
    quicker = chain.each("record") < chain.each("advance")
    advances = actions.op == ADVANCE
    if not quicker.any() or not advances.any():
        return actions
    length = np.where(advances, actions.end - actions.begin, 1)
    row = np.repeat(np.arange(len(actions)), length)
    done = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)  # in the row
    step = actions.begin[row] + done
    records = advances[row] & quicker[np.minimum(step, chain.length - 1)]
    together = 1 if chain.varies else held
    begins = (done == 0) | (records & (done % together == 0)) | (records != np.roll(records, 1))
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(row)) - 1
    made = actions.take(row[first])
    return Actions(
        op=np.where(records[first], RECORD, made.op).astype(np.uint8),
        begin=step[first],
        end=np.where(made.op == ADVANCE, step[last] + 1, made.end),
        kind=made.kind,
        level=made.level,
        name=made.name,
        names=made.names,
    )
