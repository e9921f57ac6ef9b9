"""The words of the text form, which its writer and its reader share."""

from typing import Final

from ckio.actions.columns import ACCESSES, KIND_CODE, KINDS, SPANS
from ckio.schedule.policy import Overlap

VERSION: Final = 5
"""The version of the form; a newer one is refused."""

VERBS: Final = tuple(action.__name__.lower() for action in (*SPANS, *ACCESSES))
OPS: Final = {verb: op for op, verb in enumerate(VERBS)}
LETTERS: Final = tuple(kind.value for kind in KINDS)
CODES: Final = {kind.value: code for kind, code in KIND_CODE.items()}
TRANSFER: Final = "transfer"

ORIGINS: Final = ("predicted", "measured")
"""What the comment in the second line of a timeline may say of it."""

STEPS: Final = 2**63
LEVELS: Final = 2**15
"""Steps and levels are below these, and so is every whole number in a text."""

LINE: Final = 1 << 20
"""Characters of a line at most: nothing that is written takes more, and a line is read at once."""

NAMES: Final = 1 << 12
"""Variables at most: each costs a look at all actions."""

VARIED: Final = 2_000_000
"""Steps of a chain with variables at most: some 200 bytes are kept of each."""

VERSIONS: Final = 10_000_000
"""Variables times steps at most: each variable has a version in each state, of some 60 bytes."""

NO_OVERLAP: Final = Overlap()
