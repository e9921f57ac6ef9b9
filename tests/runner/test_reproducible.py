"""Steps that are not reproducible end a run: each kind is caught, with the step and the arrays."""

import shutil
from contextlib import contextmanager

import numpy as np
import pytest
from example_models.altimetry import Altimetry
from example_models.ocean import Ocean
from example_models.permafrost import Permafrost
from example_models.shallow_water import ShallowWater
from model import wrong_models
from models.threaded import on_ranks
from small_models import Growth, reverse_all

from ckio.actions import Field, Key, Kind, Write
from ckio.actions.variables import Flow, Step
from ckio.backends.compressed import Compressed
from ckio.backends.ram import Ram
from ckio.compression.zfp import Zfp
from ckio.errors import RunFailed
from ckio.model import ForwardingModel, sizes_of
from ckio.models.burgers import Burgers
from ckio.models.vorticity import Vorticity
from ckio.models.wave import Wave
from ckio.parallel.agreed import AgreedModel
from ckio.parallel.group import RankGroup
from ckio.planners.binomial import revolve
from ckio.planners.trivial import store_all
from ckio.planners.unknown import Online
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import VirtualClock
from ckio.runner import Reproducible, reproducible, run
from ckio.runner.reproducible import ReplayCheck
from ckio.runner.unknown import run_to_end

STEPS = 30


class Rng(Growth):
    def disturb(self, state, i):
        state["x"] += 1e-3 * np.random.default_rng().random(40)


class HiddenAttribute(Growth):
    velocity = 0.0

    def disturb(self, state, i):
        self.velocity += 0.1
        state["x"] *= 1 - 1e-3 * self.velocity


class ControlChanged(Growth):
    def disturb(self, state, i):
        self.control["rate"] *= 1.001


class CallsCounted(Growth):
    calls = 0

    def disturb(self, state, i):
        self.calls += 1
        if self.calls == 41:
            state["x"][7] *= 1.5


class OneValue(Growth):
    """A single value differs, which is not among the ones that are remembered."""

    calls = 0

    def disturb(self, state, i):
        self.calls += i == 20
        state["x"][38] += 0.1 * self.calls * (i == 20)


class Threads(Growth):
    """A sum that is added in another order in each call, as threads do."""

    calls = 0

    def disturb(self, state, i):
        self.calls += 1
        order = np.random.default_rng(self.calls).permutation(40)
        state["x"] *= 1 - 1e-3 * sum(state["x"][order].tolist())


def plan(model, planner=revolve, slots=3):
    sizes = sizes_of(model)
    chain = Chain(steps=STEPS, advance=1.0, record=1.0, reverse=1.0, **sizes)
    platform = Platform((Level(name="ram", capacity=slots * sizes["restart"]),))
    if planner is store_all:
        platform = Platform((Level(name="ram"),))
    return planner(chain, platform), platform


@pytest.fixture
def time_enough(monkeypatch):
    """On a busy machine, too, every state that is computed again is compared."""
    monkeypatch.setattr(reproducible, "FREE", 1e9)


def gradient(model):
    run(*plan(model), model, [Ram()])
    return model.gradient


@pytest.mark.usefixtures("time_enough")
@pytest.mark.parametrize("kind", [Rng, HiddenAttribute, ControlChanged, CallsCounted, OneValue])
def test_a_step_that_is_not_reproducible_is_caught_with_step_and_arrays(kind) -> None:
    model = kind()
    with pytest.raises(RunFailed, match=r"x_\d+ is not the same when steps? \d+") as caught:
        gradient(model)
    text = str(caught.value)
    assert "'x'" in text
    assert "put what changes into the state" in text
    assert ("Control 'rate' has changed" in text) == (kind is ControlChanged)
    assert not model.gradient["x"].any()  # x_0 was not reached: there is no gradient to be used


@pytest.mark.usefixtures("time_enough")
def test_the_step_that_is_named_is_that_after_which_the_states_differ() -> None:
    with pytest.raises(RunFailed, match=r"x_(\d+) is not the same when steps? (\d+)") as caught:
        gradient(OneValue())
    words = str(caught.value).split()
    numbers = [int(word.strip("x_")) for word in words if word.strip("x_").isdigit()]
    assert min(numbers[1:3]) <= 20 < numbers[0]
    assert "'J'" in str(caught.value) or numbers[0] == 21


@pytest.mark.usefixtures("time_enough")
def test_states_that_differ_by_rounding_are_said_to_and_can_be_allowed() -> None:
    with pytest.raises(
        RunFailed, match=r"'x' by .*reproducible up to rounding only.*by allow_rounding=True"
    ):
        gradient(Threads())
    gradient(Reproducible(Threads(), allow_rounding=True))
    for kind in (Rng, OneValue):  # is no rounding
        with pytest.raises(RunFailed, match="put what changes"):
            gradient(Reproducible(kind(), allow_rounding=True))


# What is right is not accused


@pytest.mark.parametrize("planner", [revolve, store_all])
def test_reproducible_steps_have_the_same_gradient_as_without_the_check(planner) -> None:
    plain = reverse_all(Growth(), STEPS)
    model = Reproducible(Growth(), replay := ReplayCheck(share=np.inf))
    run(*plan(model, planner), model, [Ram()])
    assert all((model.gradient[name] == plain.gradient[name]).all() for name in plain.gradient)
    assert replay.marks


def test_all_states_that_are_computed_twice_are_compared() -> None:
    class Counting(ReplayCheck):
        same = 0

        def look(self, *given, **named):
            self.same += (it := super().look(*given, **named))
            return it

    replay = Counting(share=np.inf)
    model = Reproducible(Growth(), replay)
    run(*plan(model), model, [Ram()])
    assert replay.same >= STEPS - 2


def test_states_from_a_lossy_level_are_not_compared() -> None:
    model = Growth()
    run(*plan(model), model, [Compressed(Ram(), Zfp(tolerance=1e-3))])


def test_states_that_were_read_in_parts_are_not_compared() -> None:
    """A record that is only reversed may leave arrays that it does not need with any values."""
    flow = Step(*[Flow(use={"x", "J"}, out={"x", "J"})] * 3)
    model = Reproducible(Rng(flow=flow), ReplayCheck(share=np.inf))
    for step in range(2):
        model.advance(step, step + 1)
    key = Key(Kind.RESTART, 0, "x")
    with model.load(key, model.layout(key)) as buffers:
        buffers[0][:] = Growth().control["x"].tobytes()
    model.advance(0, 1)


def test_states_after_steps_that_need_nothing_to_be_read_are_not_compared() -> None:
    """If steps need only arrays that stay as they are, nothing is read before they run again."""
    model = Reproducible(Rng(flow=Step(Flow(out={"x", "J"}))), ReplayCheck(share=np.inf))
    for step in range(3):
        model.advance(step, step + 1)
    model.advance(1, 2)


class Recorder(ForwardingModel):
    """A record of all steps stays when an earlier state is read, as that of a wave's receivers."""

    def __init__(self, *kept: str) -> None:
        super().__init__(Growth())
        self.kept_records, self.rows = frozenset(kept), np.zeros(STEPS)

    def record(self, begin, end):
        self.rows[begin:end] = 1 + np.arange(begin, end)
        return super().record(begin, end)

    def layout(self, key):
        more = (Field("record", "<f8", (STEPS,)),) if key.kind is Kind.RESTART else ()
        return (*super().layout(key), *more)

    def dump(self, key):
        data = super().dump(key)
        return [*data, self.rows.data.cast("B")] if key.kind is Kind.RESTART else data

    @contextmanager
    def load(self, key, layout):
        own = layout[:-1] if key.kind is Kind.RESTART else layout
        with super().load(key, own) as buffers:
            yield [*buffers, *(memoryview(bytearray(8 * STEPS)) for _ in layout[len(own) :])]


def test_records_that_keep_later_rows_are_not_compared() -> None:
    gradient(Reproducible(Recorder("record"), ReplayCheck(share=np.inf)))
    with pytest.raises(RunFailed, match="'record' by"):
        gradient(Reproducible(Recorder(), ReplayCheck(share=np.inf)))


def test_another_control_is_another_run() -> None:
    replay = ReplayCheck(share=np.inf)
    for rate in (0.3, 0.4):
        model = Reproducible(Growth(), replay)
        model.control["rate"][...] = rate
        model.advance(0, 5)
    with pytest.raises(RunFailed, match="x_5 is not the same"):
        Reproducible(Rng(), replay).advance(0, 5)


def test_a_run_of_unknown_length_is_checked() -> None:
    class Ends(HiddenAttribute):
        def finished(self, state, i):
            return i == STEPS

    sizes = sizes_of(Ends())
    chain = Chain(steps=None, advance=1.0, record=1.0, reverse=1.0, **sizes)
    rule = Online(chain, Platform((Level(name="ram", capacity=4 * sizes["restart"]),)))
    with pytest.raises(RunFailed, match="is not the same"):
        run_to_end(rule, Ends(), [Ram()])


def test_the_check_takes_no_more_than_its_share_of_the_time() -> None:
    clock = VirtualClock()

    class Timed(Growth):
        def step(self, state, i):
            clock.sleep(1.0)
            super().step(state, i)

        def reverse(self, begin, end):
            clock.sleep(2.0 * (end - begin))
            super().reverse(begin, end)

        def dump(self, key):
            clock.sleep(0.1)
            self.looks += key.kind is Kind.RESTART
            return super().dump(key)

        looks = 0

    model = Timed()
    replay = ReplayCheck(share=0.02, clock=clock)
    checked = Reproducible(model, replay)
    schedule, platform = plan(model)
    run(schedule, platform, checked, [Ram()])
    written = sum(isinstance(action, Write) for action in schedule.actions)
    assert model.looks - written > 0
    assert 0.1 * (model.looks - written - 4) <= 0.02 * clock.now()  # 4 until the time is known


# Ranks


class Summed(Growth):
    """J is a sum over ranks, which is added in the order in which their parts arrive."""

    def __init__(self, comm) -> None:
        super().__init__()
        self.comm, self.calls = comm, 0
        self._state["x"][...] *= 1 + 0.1 * comm.rank

    def disturb(self, state, i):
        self.calls += 1
        parts = self.comm.gather(float(np.sqrt(state["x"]).sum()))
        order = [*parts, 0.1][:: 1 if self.calls % 7 else -1]
        state["x"] *= 1 - 1e-3 * ((order[0] + order[1]) + order[2])


@pytest.mark.parametrize("allow_rounding", [False, True])
def test_a_sum_over_ranks_in_another_order_is_rounding_that_all_ranks_hear_of(
    allow_rounding: bool,
) -> None:
    def work(comm) -> str:
        ranks = RankGroup(comm)
        own = Summed(comm.duplicate())
        own = Reproducible(own, allow_rounding=True) if allow_rounding else own
        model = AgreedModel(own, ranks)
        try:
            run(*plan(model), model, [Ram()])
        except RunFailed as error:
            return str(error)
        return ""

    for text in on_ranks(2, work):
        assert ("reproducible up to rounding only" in text) != allow_rounding, text


# The repository's models


def in_jax(_) -> object:
    pytest.importorskip("jax")
    from example_models.wave3d import wave

    return wave(grid=8, steps=STEPS)


def altimetry(folder) -> object:
    np.save(folder / "observed.npy", np.zeros((15, 15)))
    return Altimetry(folder / "observed.npy")


def in_c(folder) -> object:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc)")
    return wrong_models.in_c(folder)()  # without a mistake


@pytest.mark.parametrize(
    "make",
    [
        lambda _: Burgers(grid=64, time=1e9),
        lambda _: Vorticity(grid=16),
        lambda _: Wave(grid=24),
        lambda _: ShallowWater(grid=16),
        lambda _: Ocean(grid=16),
        lambda _: Permafrost(grid=12, steps=STEPS),
        altimetry,
        in_c,
        pytest.param(in_jax, marks=pytest.mark.slow),
    ],
    ids=[
        "burgers", "vorticity", "wave", "shallow water", "ocean", "permafrost", "altimetry",
        "c_solver", "wave3d",
    ],
)  # fmt: skip
def test_no_model_of_the_repository_is_accused(make, tmp_path) -> None:
    """All states that are computed twice are compared, and are the same."""
    model = make(tmp_path)
    replay = ReplayCheck(share=np.inf)
    run(*plan(model), Reproducible(model, replay), [Ram()])
    assert replay.marks
