"""States at equal distances, from which all other steps are computed again."""

from ckio.planners.base import candidates, held_steps, nearest, space_for_one
from ckio.planners.draft import Draft
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


def evenly(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """Store as many states as a level can hold, at equal distances, and tapes of single steps.

    The level is the nearest that can hold a state, or the one called `on`. Raises NoSchedule if
    there is none.
    """
    held_steps(chain, platform)
    draft, steps = Draft(), chain.length
    if steps == 1:
        draft.step_back(0)
        return draft.schedule(chain)
    nbytes = chain.largest("restart")
    level = nearest(
        candidates(platform, on),
        lambda level: level.slots(nbytes, 1) == 1,
        planner="evenly",
        needs=space_for_one(chain),
    )
    number = platform.number(level.name)
    distance = -(-steps // level.slots(nbytes, steps))
    begins = range(0, steps, distance)
    for begin in begins:
        draft.write(begin, level=number)
        if begin != begins[-1]:
            draft.advance(begin, begin + distance)
    state = begins[-1]
    for begin in reversed(begins):
        for step in reversed(range(begin, min(begin + distance, steps))):
            if state != begin:
                draft.read(begin, level=number)
            if step > begin:
                draft.advance(begin, step)
            draft.step_back(step)
            state = step + 1
        draft.discard(begin, level=number)
    return draft.schedule(chain, f"evenly: a state every {distance} steps on {level.name}")
