"""Several gradients: of other controls on the same levels, and of one forward for many adjoints."""

from itertools import count
from pathlib import Path

import pytest
from small_models import digest, reverse_all

from ckio.actions import Action, Discard, Key, Write
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.compression import Zstd
from ckio.errors import BadInput
from ckio.model import sizes_of
from ckio.models.burgers import Burgers
from ckio.planners.base import Planner
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve
from ckio.planners.resume import resume
from ckio.planners.trivial import periodic
from ckio.planners.unknown import Online
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.runner.unknown import run_to_end
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.replay import validate

STEPS, GRID = 37, 24
CHAIN = Chain(
    steps=STEPS, advance=1.0, record=1.2, reverse=2.0, **sizes_of(Burgers(grid=GRID, time=9.0))
)
NEAR = 0
PLATFORM = Platform(
    (
        Level(name="near", capacity=3 * CHAIN.restart),
        Level(name="far", write=Affine(0.5), read=Affine(0.5)),
    ),
    working_memory=CHAIN.tape,
)
PLANS: dict[str, Planner] = {
    "revolve": revolve,
    "hrevolve": hrevolve,
    "periodic, tapes on the levels": lambda *a: periodic(*a, period=5),
}


class Aimed(Burgers):
    """Another start, and another target: a part of the functional that does not matter before x_n.

    It does not finish within the steps that are run here.
    """

    def __init__(self, *, scale: float = 1.0, aim: float = 1.0) -> None:
        super().__init__(grid=GRID, time=9.0)
        self.control["u"][...] *= scale
        self._target *= aim


def fresh(**options: float) -> tuple[object, ...]:
    """What a model alone finds, with all of its tape."""
    return digest(reverse_all(Aimed(**options), STEPS))


def opened(far: str, path: Path) -> list[Backend]:
    match far:
        case "directory":
            other: Backend = Directory(path / "far")
        case "compressed directory":
            other = Compressed(Directory(path / "far"), Zstd())
        case _:
            other = Hdf5(path / "far.h5")
    return [Ram(capacity=PLATFORM.levels[NEAR].capacity), other]


FAR_LEVELS = ("directory", "compressed directory", "hdf5")


# --- other controls


@pytest.mark.campaign
@pytest.mark.parametrize("far", FAR_LEVELS)
@pytest.mark.parametrize("plan", PLANS)
def test_the_same_schedule_on_the_same_levels_for_other_controls(
    plan: str, far: str, tmp_path: Path
) -> None:
    schedule, levels = PLANS[plan](CHAIN, PLATFORM), opened(far, tmp_path)
    found = set()
    for scale in (1.0, 0.9, 1.3, 1.0):
        model = Aimed(scale=scale)
        run(schedule, PLATFORM, model, levels)
        assert digest(model) == fresh(scale=scale)
        assert not any(list(level.keys()) for level in levels)
        found.add(model.functional)
    assert len(found) == 3
    for level in levels:
        level.close()


@pytest.mark.campaign
@pytest.mark.parametrize("far", FAR_LEVELS)
def test_a_run_that_broke_off_leaves_nothing_that_the_next_one_could_take_for_its_own(
    far: str, tmp_path: Path
) -> None:
    class Stop(Exception):
        pass

    def watch(_: object) -> None:
        if next(events) == 20:
            raise Stop

    schedule, levels, events = hrevolve(CHAIN, PLATFORM), opened(far, tmp_path), count()
    with pytest.raises(Stop):
        run(schedule, PLATFORM, Aimed(), levels, watch=watch)
    left = [list(level.keys()) for level in levels]
    assert any(left)
    model = Aimed(scale=1.3)
    with pytest.raises(BadInput, match=r"already holds x_\d+, which the schedule writes there"):
        run(schedule, PLATFORM, model, levels)
    with pytest.raises(BadInput, match=r"already holds x_\d+, and a run of unknown length"):
        run_to_end(Online(CHAIN, PLATFORM), model, levels)
    for level, keys in zip(levels, left, strict=True):
        for key in keys:
            level.discard(key)
    run(schedule, PLATFORM, model, levels)
    assert digest(model) == fresh(scale=1.3)
    for level in levels:
        level.close()


# --- one forward, several adjoints


def keeping(schedule: Schedule, level: int) -> Schedule:
    """The same, but what is written on a level, which has room for all of it, stays there."""
    actions: list[Action] = []
    there = set[Key]().union(*schedule.stored[level : level + 1])
    for action in schedule.actions:
        match action:
            case Discard(_, place) if place == level:
                continue
            case Write(key, place) if place == level:
                if key in there:
                    continue
                there.add(key)
        actions.append(action)
    return Schedule(schedule.chain, actions, schedule.stored)


@pytest.mark.campaign
@pytest.mark.parametrize("plan", ["hrevolve", "revolve"])
@pytest.mark.parametrize("far", FAR_LEVELS)
def test_adjoints_of_other_functionals_start_from_the_checkpoints_that_were_kept(
    plan: str, far: str, tmp_path: Path
) -> None:
    """Each is of another process, which finds them; a schedule that writes them is refused."""
    order = slice(None, None, -1 if plan == "revolve" else 1)
    platform = Platform(PLATFORM.levels[order], PLATFORM.working_memory)
    place, levels = platform.number("far"), opened(far, tmp_path)[order]
    first = keeping(PLANS[plan](CHAIN, platform), place)
    run(first, platform, model := Aimed(), levels)
    assert digest(model) == fresh()
    with pytest.raises(BadInput, match="level 'far' already holds x_0"):
        run(first, platform, Aimed(), levels)
    kept = validate(first, platform).stored

    for aim in (-1.0, 0.5):
        for level in levels:
            level.close()
        levels = opened(far, tmp_path)[order]
        stored = [frozenset(level.keys()) for level in levels]
        assert stored == kept
        assert len(stored[place]) > 2
        again = keeping(resume(CHAIN, platform, stored), place)
        assert counts(again).forward < counts(first).forward
        run(again, platform, model := Aimed(aim=aim), levels)
        assert digest(model) == fresh(aim=aim)
        kept = validate(again, platform).stored

    last = resume(CHAIN, platform, [frozenset(level.keys()) for level in levels])
    assert makespan(last, platform) < makespan(first, platform)
    run(last, platform, model := Aimed(aim=3.0), levels)
    assert digest(model) == fresh(aim=3.0)
    assert not any(list(level.keys()) for level in levels)
    for level in levels:
        level.close()
