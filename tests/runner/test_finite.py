"""A run ends where values come to be infinite or no numbers, and says which and where."""

import numpy as np
import pytest
from example_models.shallow_water import ShallowWater
from small_models import Growth as SmallGrowth

from ckio.actions import Key, Kind
from ckio.analysis.guarded import Guarded
from ckio.analysis.lowering import ByVariable
from ckio.backends.ram import Ram
from ckio.errors import RunFailed
from ckio.model import Handing, sizes_of
from ckio.planners.binomial import revolve
from ckio.planners.dp import hrevolve
from ckio.planners.trivial import store_all
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import VirtualClock
from ckio.runner import Finite, run
from ckio.runner.finite import is_finite


class Growth(SmallGrowth):
    """x is spoiled in one step, or its adjoint is."""

    def __init__(self, *, state_at: int = -1, adjoint_at: int = -1, value: float = np.nan) -> None:
        super().__init__(4, more={"n": np.arange(3)})
        self.state_at, self.adjoint_at, self.value = state_at, adjoint_at, value

    def disturb(self, state, i):
        if i == self.state_at:
            state["x"][2] = self.value

    def adjoint_step(self, adjoint, tape, i):
        super().adjoint_step(adjoint, tape, i)
        if i == self.adjoint_at:
            adjoint["x"][1] = self.value


STEPS = 12
PLATFORM = Platform((Level(name="ram"),))


def chain() -> Chain:
    return Chain(steps=STEPS, advance=1.0, record=1.0, reverse=1.0, **sizes_of(Growth()))


@pytest.mark.parametrize("planner", [revolve, store_all])
def test_finite_values_are_the_same_as_without(planner) -> None:
    plain, watched = Growth(), Finite(Growth())
    level = Level(name="ram", capacity=3 * sizes_of(plain)["restart"])
    platform = Platform((level,)) if planner is revolve else PLATFORM
    for model in (plain, watched):
        run(planner(chain(), platform), platform, model, [Ram()])
    assert watched.functional == plain.functional
    assert all((watched.gradient[n] == plain.gradient[n]).all() for n in plain.gradient)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_told_where_it_is_first_seen(value: float) -> None:
    model = Finite(Growth(state_at=5, value=value), share=np.inf)
    for step in range(5):
        model.advance(step, step + 1)
    with pytest.raises(RunFailed, match="'x' is not finite in x_6, the state after 6 steps; x_5 w"):
        model.advance(5, 6)
    model = Finite(Growth(adjoint_at=7, value=value), share=np.inf)
    model.record(0, STEPS)
    model.reverse(8, STEPS)
    with pytest.raises(RunFailed, match="'adjoint_x' is not finite in the adjoint of x_7"):
        model.reverse(7, 8)


def test_a_run_ends_at_the_action_after_which_it_is_seen() -> None:
    model = Finite(Growth(state_at=5))
    with pytest.raises(RunFailed, match=r"^#0 Record\[0, 12\): 'x' and 'J' are not finite in x_12"):
        run(store_all(chain(), PLATFORM), PLATFORM, model, [Ram()])


def test_what_there_was_no_time_to_look_at_is_found_in_the_end() -> None:
    model = Finite(Growth(adjoint_at=0), share=0.0, advice="say --allow-nan to go on")
    model.record(0, STEPS)  # the first looks, at what is finite yet
    model.reverse(STEPS - 1, STEPS)
    with pytest.raises(RunFailed, match="gradient of 'x' is not finite; say --allow-nan"):
        model.reverse(0, STEPS - 1)
    model = Finite(Growth(state_at=STEPS - 2), share=0.0)
    with pytest.raises(RunFailed, match="'J' are not finite in x_12"):
        model.record(0, STEPS)
    with pytest.raises(RunFailed, match="the functional is nan"):
        _ = model.functional


def test_what_a_forward_step_spoils_is_told_before_the_adjoint_starts() -> None:
    model = Finite(Growth(state_at=7), share=0.0)
    for step in range(STEPS):
        model.record(step, step + 1)
    spoiled = r"'x' and 'J' are not finite in x_12, the state after 12 steps; x_1 was finite"
    with pytest.raises(RunFailed, match=spoiled):
        model.reverse(STEPS - 1, STEPS)

    class Seeded(Growth):
        def adjoint_seed(self, state, adjoint, n):
            return np.nan

    model = Finite(Seeded())
    model.record(0, STEPS)
    with pytest.raises(RunFailed, match="the functional is nan in x_12, the state after 12 steps"):
        model.reverse(STEPS - 1, STEPS)


def test_a_tape_is_checked_as_states_are() -> None:
    class Masked(Growth):
        """Its tape has NaN from step 5 on, and its state has none."""

        def step(self, state, i):
            super().step(state, i)
            state["n"][...] = i

        def dump(self, key):
            data = super().dump(key)
            if key.kind is Kind.TAPE and key.step >= 5:
                return [np.full(4, np.nan).view(np.uint8).data for _ in data]
            return data

    model = Finite(Masked(), share=np.inf)
    with pytest.raises(RunFailed, match="'x' is not finite in the tape of step 5; that of step 4"):
        model.record(0, STEPS)


def test_a_resumed_adjoint_needs_no_functional() -> None:
    class Late(Growth):
        @property
        def functional(self):
            assert self._turned
            return super().functional

    whole, rest = Growth(), Finite(Late())
    for model in (whole, rest):
        model.record(0, STEPS)
    whole.reverse(6, STEPS)
    key = Key(Kind.ADJOINT, 6)
    with rest.load(key, whole.layout(key)) as into:
        for target, source in zip(into, whole.dump(key), strict=True):
            target[:] = source
    rest.reverse(0, 6)
    whole.reverse(0, 6)
    assert rest.functional == whole.functional


def test_looking_takes_no_more_than_its_share() -> None:
    clock = VirtualClock()

    class Timed(Growth):
        looks = 0

        def advance(self, begin: int, end: int, /) -> int:
            clock.sleep(1.0)
            return super().advance(begin, end)

        def dump(self, key):
            clock.sleep(10.0)
            self.looks += 1
            return super().dump(key)

    model = Timed()
    finite = Finite(model, share=0.1, clock=clock)
    for step in range(1000):
        finite.advance(step, step + 1)
    assert model.looks == 10  # the first, and after each 100 s; the tenth at 1000 s


def test_nothing_is_known_of_what_is_no_number_or_is_not_dumped() -> None:
    class Closed(Growth):
        def dump(self, key):
            raise ValueError("no")

    finite = Finite(Closed(state_at=0), share=np.inf)
    assert finite.advance(0, 5) == 5
    assert is_finite(np.array([1, 2]))
    assert is_finite(np.array(["a"]))
    assert not is_finite(np.array([1 + 1j, complex(0, np.inf)]))
    assert not is_finite(np.asfortranarray(np.where(np.eye(300) > 0, np.nan, 1.0))[1:, 5:])
    assert is_finite(np.full(100_000, 1e38, np.float32))  # whose sum is not


def test_all_else_is_passed_to_the_model() -> None:
    model = Growth()
    finite = Finite(model)
    assert isinstance(finite, Handing)
    assert finite.handed == model.handed
    assert finite.variables is model.variables
    assert not hasattr(finite, "estimated")
    steps: list[int] = []
    finite.on_step = steps.append
    finite.advance(0, 3)
    assert steps == [1, 2, 3]
    assert sizes_of(finite) == sizes_of(model)
    key = Key(Kind.RESTART, 3)
    assert finite.layout(key) == model.layout(key)
    assert finite.control is model.control


def test_a_guarded_model_is_finite_wherever_it_is_looked_at() -> None:
    def guarded() -> Guarded:
        model = ShallowWater(grid=8)
        assert model.variables is not None
        return Guarded(model, model.variables)

    sizes = sizes_of(ShallowWater(grid=8))
    whole = Chain(steps=STEPS, advance=1.0, record=1.0, reverse=1.0, **sizes)
    platform = Platform((Level(name="ram", capacity=3 * sizes["restart"]),))
    schedule = ByVariable(hrevolve, guarded().variables)(whole, platform)
    model = Finite(guarded(), share=np.inf)
    run(schedule, platform, model, [Ram()])
    assert np.isfinite(model.functional)
