"""What is left of a run by variable is planned from whatever is there, and done with symbols."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from ckio.actions import Key, Kind, Layout
from ckio.actions.columns import KIND_CODE, WRITE
from ckio.actions.variables import Flow, Step, Variables
from ckio.errors import BadInput, NoSchedule
from ckio.jobs.adjoints import next_plan
from ckio.jobs.planning import Planning
from ckio.jobs.request import Request
from ckio.jobs.run import Attempt, plan_first
from ckio.planners.base import without_notes
from ckio.planners.dp import hrevolve, mixed
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.replay import validate

from .symbols import NAMES, in_place, perform, random_steps, random_variables, subset

IMPOSSIBLE = ("it has to be on the tape", "no durable level keeps two adjoint checkpoints")
"""What is wrong where no schedule can do what the steps do, or what is wished."""


class Sized:
    """A model that has adjoints; nothing else is asked of it when a run is planned."""

    def layout(self, _key: Key) -> Layout:
        return ()


def random_platform(random: Random, size: int, adjoint: int) -> Platform:
    """Memory, and one or two durable levels, some without capacity, some with a codec."""
    far = (
        Level(
            name=f"far{number}",
            capacity=random.choice((None, *[2 * adjoint + random.randint(0, 4 * size)] * 6)),
            write=Affine(random.choice((0, 0.1, 2)), random.choice((0, 0.01))),
            read=Affine(random.choice((0, 0.1, 2))),
            backend="directory",
            options={"path": "ck"},
            ratio=random.choice((1.0, 1.0, 0.37, 1.1)),
        )
        for number in range(random.randint(1, 2))
    )
    ram = Level(name="ram", capacity=random.randint(0, 3 * size))
    return Platform((ram, *far), working_memory=random.choice((size, 3 * size)))


def random_job(random: Random) -> tuple[Attempt, list[Step]]:
    steps = in_place(random_steps(random, random.randint(1, 16), in_part=random.random() < 0.3))
    if random.random() < 0.2:
        steps = [steps[0]] * len(steps)
    tape = subset(random, NAMES, 0.5) if random.random() < 0.5 else frozenset()
    variables = random_variables(random, steps, subset(random, NAMES, 0.5), tape=tape)
    size = sum(variables.nbytes.values())
    adjoint, record = random.randint(1, size), random.choice((1, 1.5))
    chain = Chain(steps=len(steps), advance=1, record=record, reverse=1, restart=size, tape=size,
                  adjoint=adjoint)  # fmt: skip
    planner = random.choice(("hrevolve", "mixed"))
    call = {"hrevolve": hrevolve, "mixed": mixed}[planner]
    plan = Planning(planner, chain, random_platform(random, size, adjoint), call)
    return process_of("symbols", plan, variables), steps  # type: ignore[arg-type]


def process_of(
    name: str, planning: Planning, variables: Variables, every: float | None = None
) -> Attempt:
    request = Request(model=name, every=every)
    fresh: Any = Sized
    return Attempt(
        request=request,
        directory=None,  # type: ignore[arg-type]
        fresh=fresh,
        planning=replace(planning, chain=replace(planning.chain, variables=variables)),
    )


def damaged(
    random: Random, chain: Chain, platform: Platform, stored: Sequence[set[Key]]
) -> tuple[Platform, list[set[Key]]]:
    """What a kill leaves: some keys are corrupt, some levels full, or gone."""
    levels, left = list(platform.levels), [set[Key]() for _ in platform.levels]
    for number, level in enumerate(levels[1:], 1):
        there = sorted(stored[number], key=str) if number < len(stored) else []
        what = random.random()
        lost = random.sample(there, random.randint(0, len(there))) if what < 0.2 else []
        left[number] = set(there) - set(lost)
        if 0.1 < what < 0.3:
            held = sum(level.stored(chain.nbytes(key)) for key in left[number])
            levels[number] = replace(level, capacity=held)
        elif what > 0.95:
            levels[number], left[number] = replace(level, capacity=0), set()
    return replace(platform, levels=tuple(levels)), left


def without_adjoints(schedule: Schedule) -> Schedule:
    actions = schedule.actions
    there = (actions.op >= WRITE) & (actions.kind == KIND_CODE[Kind.ADJOINT])
    return replace(schedule, actions=actions.take(~there))


def killed_again_and_again(seed: str) -> int:
    """Perform a run, of which each process but the last is killed; returns how many used arrays."""
    random, used = Random(seed), 0
    job, steps = random_job(random)
    variables = job.chain.variables
    assert variables is not None
    platform, tapes = job.platform, job.planning.planner == "mixed"
    try:
        every = random.choice((1.0, 4.0, 100.0))
        job = replace(job, request=replace(job.request, every=every, walltime=1e6))
        schedule, (kept, _) = plan_first(job, Sized())  # type: ignore[arg-type]
        for _ in range(3):
            assert validate(schedule, platform).adjoint == 0
            perform(without_adjoints(schedule), steps, variables.seed, taped=variables.taped)
            cut = random.randrange(len(schedule))
            machine = validate(replace(schedule, actions=schedule.actions[:cut]), platform)
            platform, left = damaged(random, schedule.chain, platform, machine.stored)
            chain, model = schedule.chain, Sized()
            schedule, kept = next_plan(chain, platform, left, model, kept, tapes=tapes)  # type: ignore[arg-type]
            used += any(key.name and key.step for keys in schedule.stored for key in keys)
    except NoSchedule:  # no level is left that holds a state
        return used
    except BadInput as error:
        if not any(words in str(error) for words in IMPOSSIBLE):
            raise
    return used


def test_tapes_that_are_stored_whole_take_the_room_that_they_take_on_a_full_level() -> None:
    with without_notes():
        killed_again_and_again("often 1420")


def x(step: int, name: str = "") -> Key:
    return Key(Kind.RESTART, step, name)


def test_what_a_fresh_model_has_and_what_is_dead_need_not_be_there() -> None:
    """The array K changes in step 2, which does not use it; nothing else does before."""
    keeps = Step(Flow({"T", "K"}, {"T"}, {"T"}))
    kills = Step(Flow({"T"}, {"T", "K"}, {"T", "K"}))
    variables = Variables({"T": 1, "K": 2}, (keeps, keeps, kills, keeps))

    def found(*keys: Key) -> tuple[int, ...]:
        return variables.complete(keys, Kind.RESTART, 4)

    assert found(x(1, "T")) == (1, 4)  # of x_4 nothing is read
    assert found(x(2, "T")) == (2, 4)
    assert found(x(3, "T")) == (4,)
    assert found(x(3, "T"), x(3, "K")) == (3, 4)
    assert found(x(0, "T")) == (4,)
    assert found(x(0, "T"), x(0, "K")) == (0, 4)


def test_tapes_that_are_stored_whole_are_gone_on_from() -> None:
    step = Step(Flow({"T"}, {"T"}, {"T"}), Flow({"T"}, {"T"}, {"T"}))
    variables = Variables({"T": 4}, step, seed={"T"})
    chain = Chain(steps=6, advance=1, record=1, reverse=1, restart=4, tape=4, adjoint=4)
    level = Level(name="far", capacity=40, backend="directory", options={"path": "ck"})
    platform = Platform((level,), working_memory=4)
    stored = [{Key(Kind.TAPE, 3), Key(Kind.ADJOINT, 4), x(2, "T")}]
    job = process_of("it", Planning("mixed", chain, platform, mixed), variables, every=2.0)  # type: ignore[arg-type]
    _, (kept, _) = plan_first(job, Sized())  # type: ignore[arg-type]
    chain = replace(chain, variables=variables)
    schedule, _ = next_plan(chain, platform, stored, Sized(), kept, tapes=True)  # type: ignore[arg-type]
    assert validate(schedule, platform).adjoint == 0
    assert "Read(t_3, level 0)" in map(str, schedule.actions)
