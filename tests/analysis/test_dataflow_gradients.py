"""plan_schedule on models that compute: gradients to the last bit, and wrong without any array."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest
from oracles.arrays import ArrayPlan, earliest, plan_schedule

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import Flow, Step
from ckio.models.vorticity import Vorticity
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.literature import multistage
from ckio.planners.online import online
from ckio.planners.trivial import periodic, store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

NAMES = "vwxyz"
Names = frozenset[str]
Lost = tuple[Key, int] | None


@dataclass(frozen=True)
class Wave:
    """One step: each target becomes sin(sum of what is `bent`) + sum of what is `straight`.

    Its adjoint needs what is bent: it is on the tape where the step overwrites it, or where it is
    said to be; the rest is read where it is. What is `added` to keeps its value before.
    """

    target: Names
    added: Names
    bent: Names
    straight: Names
    taped: Names
    factor: tuple[float, ...]

    @property
    def step(self) -> Step:
        out, kill = self.target | self.added, self.target - self.added
        here = self.bent - self.taped
        return Step(
            Flow(self.bent | self.straight, out, kill), Flow(self.bent, out, kill), Flow(here)
        )

    def phase(self, at: dict[str, float], target: str) -> float:
        """What the sine is taken of, another one for each target."""
        factor = self.factor[NAMES.index(target)]
        return factor + sum(factor**k * at[name] for k, name in enumerate(sorted(self.bent), 1))

    def forward(self, now: dict[str, float]) -> dict[str, float]:
        values = {}
        for name in self.target | self.added:
            linear = sum(0.4 * now[other] for other in sorted(self.straight))
            before = now[name] if name in self.added else 0.0
            values[name] = math.sin(self.phase(now, name)) + linear + before
        return values

    def back(self, at: dict[str, float], bar: dict[str, float]) -> dict[str, float]:
        changed = self.target | self.added
        new = {name: bar[name] if name not in changed - self.added else 0.0 for name in NAMES}
        for target in sorted(changed):
            slope, factor = math.cos(self.phase(at, target)), self.factor[NAMES.index(target)]
            for k, name in enumerate(sorted(self.bent), 1):
                new[name] += factor**k * slope * bar[target]
            for name in sorted(self.straight):
                new[name] += 0.4 * bar[target]
        return new


def random_waves(random: Random, count: int, *, all_taped: bool) -> list[Wave]:
    """A few kinds of steps, each step with factors of its own."""

    def some(names: Names | str, p: float) -> Names:
        return frozenset(name for name in sorted(names) if random.random() < p)

    kinds = []
    for _ in range(3):
        target = some(NAMES, 0.4)
        bent = some(NAMES, 0.5)
        taped = bent if all_taped else bent & target
        kinds.append((target, some(target, 0.3), bent, some(NAMES, 0.3) - bent, taped))
    return [
        Wave(*random.choice(kinds), tuple(random.uniform(0.5, 0.9) for _ in NAMES))
        for _ in range(count)
    ]


class Numbers:
    """A model of waves, with tapes of its own, whose functional is a sum of squares of x_n."""

    def __init__(self, waves: list[Wave], random: Random) -> None:
        self.waves, self.steps = waves, [wave.step for wave in waves]
        self.uses = [sorted(step.forward.use) for step in self.steps]
        self.start = {name: random.uniform(0.4, 1.2) for name in NAMES}
        self.now, self.bar = dict(self.start), dict[str, float]()
        self.tape: dict[int, dict[str, float]] = {}
        self.tapes: dict[tuple[Key, int], dict[int, dict[str, float]]] = {}
        self.found: list[float] = []

    def act(self, action: Action) -> None:
        match action:
            case Advance(begin, end):
                for i in range(begin, end):
                    wave = self.waves[i]
                    self.found += [self.now[name] for name in self.uses[i]]
                    self.now |= wave.forward(self.now)
                self.reached(end)
            case Record(begin, end):
                self.tape = {}
                for i in range(begin, end):
                    self.tape[i] = {name: self.now[name] for name in self.waves[i].taped}
                    self.now |= self.waves[i].forward(self.now)
                self.reached(end)
            case Reverse(begin, end):
                for i in reversed(range(begin, end)):
                    at = self.now | self.tape[i]
                    self.found += [at[name] for name in sorted(self.waves[i].bent)]
                    self.bar = self.waves[i].back(at, self.bar)
            case Write(key, level) if key.kind is Kind.TAPE:
                self.tapes[key, level] = self.tape
            case Read(key, level) if key.kind is Kind.TAPE:
                self.tape = self.tapes[key, level]
            case _:
                pass

    def reached(self, i: int) -> None:
        if i == len(self.waves) and not self.bar:
            self.bar = {name: 2 * x for name, x in self.now.items()}

    def run(self, schedule: Schedule, plan: ArrayPlan, lost: Lost = None) -> dict[str, float]:
        """The derivative by x_0; what is `lost` is not read back."""
        arrays: dict[tuple[Key, int], float] = {}
        for place, action in enumerate(schedule.actions):
            self.act(action)
            for access in plan.at(place):
                match access:
                    case Write(key, level):
                        arrays[key, level] = self.now[key.name]
                    case Read(key, level) if (key, level) != lost:
                        self.now[key.name] = arrays[key, level]
                    case Discard(key, level):
                        del arrays[key, level]
        assert not arrays
        return self.bar


def near_and_far(slots: int) -> Platform:
    near = Level(name="near", capacity=slots)
    return Platform((near, Level(name="far", write=Affine(2), read=Affine(1))), 1)


CHAINS: dict[str, Callable[[Chain], Schedule]] = {
    "revolve": lambda chain: revolve(chain, near_and_far(3)),
    "multistage": lambda chain: multistage(chain, near_and_far(2)),
    "hrevolve": lambda chain: hrevolve(chain, near_and_far(2)),
    "online": lambda chain: online(chain, near_and_far(3)),
    "mixed": lambda chain: mixed(chain, near_and_far(3)),
    "periodic": lambda chain: periodic(
        chain, Platform((Level(name="near", capacity=9),), 3), period=4
    ),
}


MODELS = 6


@pytest.mark.campaign
@pytest.mark.parametrize("name", CHAINS)
def test_gradients_are_right_to_the_last_bit_and_wrong_without_any_array(name: str) -> None:
    random, stored, wrong = Random(name), 0, 0
    chain = Chain(steps=9, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    schedule, whole = CHAINS[name](chain), store_all(chain, Platform((Level(name="near"),)))
    for _ in range(MODELS):
        # Where several steps are recorded at once, later ones may overwrite what is not on a tape.
        waves = random_waves(random, 9, all_taped=name == "periodic")
        model = Numbers(waves, random)

        def anew(taped: bool, model: Numbers = model) -> Numbers:
            waves = [replace(it, taped=it.bent if taped else it.taped) for it in model.waves]
            other = Numbers(waves, Random(0))
            other.start, other.now = model.start, dict(model.start)
            return other

        one_tape = anew(taped=True)
        right = one_tape.run(whole, plan_schedule(whole, one_tape.steps, seed={*NAMES}))
        plan = plan_schedule(schedule, model.steps, seed={*NAMES})
        assert model.run(schedule, plan) == right
        for lost in {(it.key, it.level) for it in plan.accesses if isinstance(it, Write)}:
            other = anew(taped=False)
            gradient = other.run(schedule, plan, lost)
            assert other.found != model.found
            stored, wrong = stored + 1, wrong + (gradient != right)
    # The others are used on the way to values that no derivative needs.
    assert wrong > 0.8 * stored > 0


def ocean_steps(count: int) -> list[Step]:
    """Adams-Bashforth has no use for tendencies from before x_0; and J is only added to."""
    now = {"zeta", "psi"}
    kill = now | {"F_1", "F_2"}

    def step(*earlier: str) -> Step:
        return Step(Flow(now | {*earlier}, {*kill, "J"}, kill), Flow(now, {*kill, "J"}, kill))

    return [step(), step("F_1"), *[step("F_1", "F_2")] * (count - 2)]


def gradient_of(
    model: Vorticity, schedule: Schedule, plan: ArrayPlan, lost: Lost = None
) -> dict[str, bytes]:
    arrays: dict[tuple[Key, int], np.ndarray] = {}
    for place, action in enumerate(schedule.actions):
        match action:
            case Advance(begin, end):
                model.advance(begin, end)
            case Record(begin, end):
                model.record(begin, end)
            case Reverse(begin, end):
                model.reverse(begin, end)
            case Read(key, _):
                model._keep_seed()
                model._step = key.step
        for access in plan.at(place):
            model._ensure_started()
            match access:
                case Write(key, level):
                    arrays[key, level] = model._state[key.name].copy()
                case Read(key, level) if (key, level) != lost:
                    model._state[key.name][...] = arrays[key, level]
                case Discard(key, level):
                    del arrays[key, level]
    assert not arrays
    return {name: array.tobytes() for name, array in model.gradient.items()}


def test_the_gradient_of_the_ocean_model_needs_all_that_is_stored_of_it() -> None:
    chain = Chain(steps=8, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    schedule = revolve(chain, Platform((Level(name="ram", capacity=2),)))
    plan = plan_schedule(schedule, ocean_steps(8), seed={"zeta", "psi", "J"}, placing=earliest)

    def model() -> Vorticity:
        return Vorticity(grid=16)

    plain = model()
    plain.record(0, 8)
    plain.reverse(0, 8)
    right = {name: array.tobytes() for name, array in plain.gradient.items()}
    assert gradient_of(model(), schedule, plan) == right
    writes = [it for it in plan.accesses if isinstance(it, Write)]
    assert len(writes) == 9  # of the 15 in three checkpoints
    for it in writes:
        assert gradient_of(model(), schedule, plan, (it.key, it.level)) != right, it
