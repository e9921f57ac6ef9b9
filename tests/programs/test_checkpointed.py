"""`checkpoint_vjp` is `vjp`: the same results, in less memory."""

from itertools import product
from math import ceil, log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logistic import Logistic

from ckio.actions import Key, Reverse
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.errors import BadInput, CorruptCheckpoint
from ckio.planners.dp import hrevolve
from ckio.platform import Platform
from ckio.programs import Options, program
from ckio.programs.checkpointed import checkpoint_vjp, level
from ckio.programs.interface import checkpoint, primops, resume, vjp
from ckio.schedule.timeline import Event

X = (np.array([0.1, 0.2]), 3.1, 1000)
BAR = np.array([1.0, -2.0])


def same(one: Any, other: Any) -> None:
    """To the last bit."""
    (y, xbar), (z, zbar) = one, other
    assert np.array_equal(y, z)
    for bar, again in zip(xbar, zbar, strict=True):
        assert type(bar) is type(again)
        assert np.array_equal(bar, again)


WAYS: list[dict[str, Any]] = [
    {},
    {"base": 1},
    {"base": 7},
    {"base": 299},
    {"base": 300},
    {"base": 301},
    {"memory": 3000.0},
    {"base": 60, "memory": 3000.0},
    {"base": 10, "slots": 12},
    {"base": 10, "schedule": "revolve"},
    {"base": 10, "schedule": "revolve", "slots": 3},
]


def test_every_way_gives_what_vjp_gives() -> None:
    x = (X[0], 3.1, 300)
    wanted = vjp(Logistic(), x, BAR)
    for way in WAYS:
        same(checkpoint_vjp(Logistic(), x, BAR, Options(**way)), wanted)


def test_on_levels_of_all_kinds(tmp_path: Any) -> None:
    platform = Platform(level("memory", 2).levels + level("files", 9).levels)
    for schedule in ("bisection", "revolve"):
        backends = [Ram(), Directory(tmp_path / "files")]
        found = checkpoint_vjp(
            Logistic(),
            X,
            BAR,
            Options(base=10, schedule=schedule, platform=platform, backends=backends),
        )
        same(found, vjp(Logistic(), X, BAR))
        assert [list(backend.keys()) for backend in backends] == [[], []]
        backends[1].close()


def test_checkpoints_that_are_damaged_on_the_way_back_are_computed_again(tmp_path: Any) -> None:
    class Failing(Directory):
        def read(self, key: Key, into: Any, /) -> int:
            if key.step:
                raise CorruptCheckpoint(f"{key}: the disk is worn")
            return super().read(key, into)

    platform = Platform(level("memory", 3).levels + level("files", 9).levels)
    for schedule in ("revolve", "bisection"):
        backends = [Ram(), Failing(tmp_path / schedule)]
        options = Options(base=10, schedule=schedule, platform=platform, backends=backends)
        same(checkpoint_vjp(Logistic(), X, BAR, options), vjp(Logistic(), X, BAR))
        backends[1].close()


@given(ticks=st.integers(0, 200), base=st.integers(1, 60))
def test_few_checkpoints_and_no_more_forward_than_bisection_takes(ticks: int, base: int) -> None:
    x, stats, program = (X[0], 3.1, ticks), dict[str, int](), Logistic()
    found = checkpoint_vjp(program, x, BAR, Options(base=base), stats=stats)
    same(found, vjp(Logistic(), x, BAR))
    assert stats["ticks"] == ticks
    if stats["base"] < ticks:
        steps = ceil(ticks / base)
        assert stats["base"] == base
        assert stats["live_peak"] <= ceil(log2(steps)) + 1
        assert stats["tape_peak"] <= base
        # Once to count, once with a tape, and half of it at each division, of a power of two steps.
        # Beside that the last step, by which the size of its tape is judged.
        most = 2 * ticks + base * 2 ** ceil(log2(steps)) / 2 * ceil(log2(steps)) + base
        assert stats["forward_ticks"] <= most


def test_slots_are_held_to() -> None:
    for slots in (1, 2, 5):
        stats: dict[str, int] = {}
        checkpoint_vjp(
            Logistic(), X, BAR, Options(base=10, schedule="revolve", slots=slots), stats=stats
        )
        assert stats["live_peak"] <= slots


def test_stats_of_both() -> None:
    plain: dict[str, int] = {}
    stats: dict[str, int] = {}
    vjp(Logistic(), X, BAR, stats=plain)
    checkpoint_vjp(Logistic(), X, BAR, Options(base=10), stats=stats)
    assert plain.keys() == stats.keys()
    assert plain["ticks"] == stats["ticks"] == plain["tape_peak"] == 1000
    assert stats["tape_peak"] == 10


def test_the_interface_of_the_paper() -> None:
    program = Logistic()
    y, ticks = primops(program, *X)
    assert ticks == 1000
    for done in (0, 1, 500, 1000, 2000):
        assert np.array_equal(resume(program, checkpoint(program, X, done)), y)
    with pytest.raises(BadInput, match="ticks = -1"):
        checkpoint(program, X, -1)
    with pytest.raises(BadInput, match="not finished"):
        program.result(checkpoint(program, X, 999))


def test_one_input_that_is_no_tuple() -> None:
    class Fixed(Logistic):
        def start(self, *x: Any) -> Any:
            return super().start(*x, 3.1, 100)

    y, xbar = checkpoint_vjp(Fixed(), X[0], BAR, Options(base=9))
    z, zbar = vjp(Logistic(), (X[0], 3.1, 100), BAR)
    assert np.array_equal(y, z)
    assert np.array_equal(xbar, zbar[0])


def test_what_the_program_raises_is_raised() -> None:
    for base in (10, 2000):
        with pytest.raises(ZeroDivisionError, match="as was asked"):
            checkpoint_vjp(Logistic(fail_at=300), X, BAR, Options(base=base))


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ({"base": 0}, "base = 0"),
        ({"base": 1.5}, "base = 1.5"),
        ({"base": "large"}, "base = 'large'"),
        ({"memory": 0}, "memory = 0"),
        ({"slots": 0}, "slots = 0"),
        ({"schedule": "best"}, "schedule = 'best'"),
        ({"backends": []}, "together"),
        ({"directory": "x", "platform": Platform(levels=()), "backends": []}, "no backends"),
        ({"directory": "x", "ram": "1MiB"}, "no other levels"),
        ({"slots": 3, "ram": "1MiB"}, "slots and a platform exclude each other"),
        ({"schedule": hrevolve}, "make a model by as_chain"),
    ],
)
def test_parameters_that_make_no_sense(way: dict[str, Any], says: str, tmp_path: Any) -> None:
    if "directory" in way:
        way = way | {"directory": tmp_path / "x"}
    with pytest.raises(BadInput, match=says):
        checkpoint_vjp(Logistic(), X, BAR, Options(**way))
    assert list(tmp_path.iterdir()) == []


def test_a_cotangent_that_is_none_of_y() -> None:
    for function, bar in product((vjp, checkpoint_vjp), (np.ones(3), (BAR,), 1j * BAR, "one")):
        with pytest.raises(BadInput, match=r"ybar|cotangent of y"):
            function(Logistic(), X, bar)


def test_each_event_is_shown() -> None:
    ways: list[dict[str, Any]] = [{}, {"schedule": "revolve", "slots": 3}, {"schedule": "revolve"}]
    for way in ways:
        events: list[Event] = []
        checkpoint_vjp(Logistic(), X, BAR, Options(base=100, **way), watch=events.append)
        back = [event.action for event in events if isinstance(event.action, Reverse)]
        assert [action.begin for action in back] == list(range(9, -1, -1))


@program
def summed(u: Any, steps: int) -> Any:
    v = u
    for _ in range(steps):
        v = v * 1.01
    return np.sum(u) * np.sum(np.sqrt(v))


_ROW = np.exp(np.random.default_rng(1).normal(scale=5, size=999))


def test_inputs_in_memory_of_any_order() -> None:
    """Sums go in the order of memory; each element has its own cotangent."""
    number = np.broadcast_to(1.5, (7, 3))
    for u in (_ROW, _ROW[::-1], _ROW[::3], number, _ROW.reshape(37, 27).T):
        wanted = vjp(summed, (u, 100), 1.0)
        same(checkpoint_vjp(summed, (u, 100), 1.0, Options(base=7)), wanted)
        assert wanted[1][0] == pytest.approx(vjp(summed, (np.array(u, order="C"), 100), 1.0)[1][0])


def plain(u: Any) -> Any:
    return u


@program
def counted(n: Any) -> Any:
    total = 0
    for _ in range(100):
        total = total + n
    return total


@program
def told(u: Any) -> Any:
    for _ in range(100):
        u = 1.01 * u
    return "done"


def test_what_has_no_derivative() -> None:
    refused: list[tuple[Any, float, str]] = [
        (plain, 1.0, "put @program before"),
        ("summed", 1.0, "is no program"),
        (counted, 3, "write 3.0 in place of 3"),
        (told, 3.0, "y = 'done' has no derivative"),
    ]
    for function, (p, x, says) in product((vjp, checkpoint_vjp), refused):
        with pytest.raises(BadInput, match=says):
            function(p, (x,), 1.0)


def test_several_inputs_are_a_tuple() -> None:
    for function in (vjp, checkpoint_vjp):
        with pytest.raises(TypeError, match="missing") as caught:
            function(summed, [_ROW, 100], 1.0)
        assert "x is of type list, and so it is one input" in caught.value.__notes__[0]


def test_what_cannot_be_taped_is_known_before_the_way_forward() -> None:
    @program
    def lost(u: Any) -> Any:
        for _ in range(1000):
            steps.append(0)
            u = float(u) * 1.01
        return u

    steps: list[int] = []
    with pytest.raises(BadInput, match="stop_gradient"):
        checkpoint_vjp(lost, (1.0,), 1.0, Options(base=20))
    assert len(steps) < 200


def test_a_number_is_a_cotangent_of_all_that_has_its_shape() -> None:
    same(vjp(Logistic(), X, 1.0), vjp(Logistic(), X, np.ones(2)))


@pytest.mark.slow
def test_numbers_of_other_libraries() -> None:
    """Half the bits of a float32: NumPy does not know that they are numbers."""
    jax = pytest.importorskip("jax")
    from ckio.programs.jaxed import jax_program

    def grown(u: Any) -> Any:
        step = lambda s: (s[0] * jax.numpy.bfloat16(1.01), s[1] + 1)  # noqa: E731
        return jax.lax.while_loop(lambda s: s[1] < 100, step, (u, 0))[0]

    u = jax.numpy.ones(3, jax.numpy.bfloat16)
    p = jax_program(grown, u)
    y, xbar = checkpoint_vjp(p, (u,), 1.0, Options(base=7))
    assert y.dtype == xbar[0].dtype == u.dtype
    assert np.array_equal(xbar[0], vjp(p, (u,), 1.0)[1][0])
    assert np.all(np.abs(xbar[0].astype(float) - 2.0) < 0.5)
