"""What does a schedule store when each array is planned by itself, and what fits in its room then?

The binomial schedules of the models in `analysis_table1`, in memory for ten whole states: with
whole checkpoints, with what is `needed` of each, and with every array written once and discarded
after its last read; then in the same slots, where what all steps treat alike goes together. Planned
`anew`, checkpoints that are smaller are more.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import record
from analysis_table1 import SLOTS, Case, cases, size

from ckio.actions import Read, Write
from ckio.actions.columns import READ, WRITE
from ckio.analysis.dataflow import plan_schedule
from ckio.analysis.lowering import lower
from ckio.analysis.reduced import ByVariable, reduced
from ckio.planners.binomial import revolve
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, bytes_moved, counts

ARRAYS = ["", "", "slots", "forward", "writes", "written", "read", "peak"]


def by_array(case: Case) -> Iterator[list[str]]:
    """What the binomial schedule stores, and what is planned in the same room by variable."""
    variables, platform, whole = case.variables, case.platform, case.binomial
    chain = replace(case.chain, restart=variables.restart)
    less = reduced(case.chain, platform, variables)
    rows = {
        "whole": _done(whole, platform),
        "needed": _done(Schedule(chain, whole.actions), platform),
        "arrays, once": _planned(case),
        "arrays, in the slots": _done(lower(whole, variables, platform=platform), platform),
        "needed, anew": _done(revolve(chain, platform), platform),
        "arrays, anew": _done(ByVariable(revolve, variables)(case.chain, platform), platform),
    }
    slots = {"needed, anew": _slots(chain, platform), "arrays, anew": _slots(*less)}
    for name, (forward, writes, *amounts) in rows.items():
        yield [
            case.name if name == "whole" else "",
            name,
            *map(str, (slots.get(name, SLOTS), forward, writes)),
            *map(size, amounts),
        ]


def _slots(chain: Chain, platform: Platform) -> int:
    return platform.levels[0].slots(chain.restart, chain.length - 1)


def _done(schedule: Schedule, platform: Platform) -> tuple[int, ...]:
    """Forward steps; writes; bytes that are written, read, and there at most."""
    done, moved = counts(schedule), bytes_moved(schedule, platform)
    written, read = (int(moved[schedule.actions.op == op].sum()) for op in (WRITE, READ))
    return done.forward, done.levels[0].writes, written, read, done.levels[0].peak_bytes


def _planned(case: Case) -> tuple[int, ...]:
    """The same of the binomial schedule, each of its arrays written once."""
    variables, nbytes = case.variables, case.variables.nbytes
    arrays = plan_schedule(case.binomial, variables.steps, seed=variables.seed)
    moved = Counter[type]()
    for access in arrays.accesses:
        if isinstance(access, Read | Write):
            moved[type(access)] += nbytes[access.key.name]
    forward = counts(case.binomial).forward
    return forward, arrays.writes, moved[Write], moved[Read], *arrays.peaks(nbytes)


def table(*, small: bool = False) -> str:
    """All rows."""
    rows = [row for case in cases(small=small) if not case.again for row in by_array(case)]
    return (
        f"revolve in the room of {SLOTS} whole states, its checkpoints and its arrays;"
        f" bytes in MB\n\n{record.columns(ARRAYS, rows)}"
    )
