"""A library in C as a model: `NativeModel` on memory that was allocated by a compiled function."""

import ctypes
import gc
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import reverse_all

from ckio import Chain, Field, Job, Level, Platform, Ram, check_gradient, makespan, run, sizes_of
from ckio.actions import Key, Kind
from ckio.adapters import registry
from ckio.adapters.native import Memory, NativeModel
from ckio.errors import BadInput, RunFailed
from ckio.model import optional
from ckio.model.check import check_model
from ckio.planners import mixed
from ckio.testing import a, restore, save, t, x

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")

STEPS = 17
SCHEDULES = ["store-all", "recompute-all", "revolve", "hrevolve", "mixed"]

LIBRARY = """
#include <stdlib.h>
#include <string.h>

/* x += h r x (1 - x) in n cells, with h by the month; J = (sum of the last x)^2. */
typedef struct { double *x, *rate, *of_x, *of_rate; int *month; int n, fails, freed; } Lib;

Lib *lib_new(int n) {
    Lib *s = calloc(1, sizeof *s);
    *s = (Lib){calloc(n, 8), calloc(n, 8), calloc(n, 8), calloc(n, 8), calloc(1, 4), n, -1, 0};
    return s;
}
void *lib_memory(Lib *s, int which) {
    return (void *[]){s->x, s->rate, s->of_x, s->of_rate, s->month}[which];
}
double *lib_rates(Lib *s) { return s->rate; }
void lib_fail_at(Lib *s, int i) { s->fails = i; }
int lib_freed(Lib *s) { return s->freed; }
void lib_free(Lib *s) { s->freed++; }  /* what a test looks at must not be gone */

static double season(int month) { return month % 3 == 0 ? 0.5 : 1; }

int lib_step(Lib *s, long i) {
    if (i == s->fails) return 3;
    ++*s->month;
    double h = season(*s->month);
    for (int k = 0; k < s->n; k++) s->x[k] += h * s->rate[k] * s->x[k] * (1 - s->x[k]);
    return 0;
}
int lib_record(Lib *s, long i, double *x, int *month) {
    memcpy(x, s->x, 8 * s->n), *month = *s->month + 1;
    return lib_step(s, i);
}
/* A tape that also has the state after the step, so that the forward restarts from it. */
int lib_record_both(Lib *s, long i, double *x, int *month, double *after) {
    int status = lib_record(s, i, x, month);
    memcpy(after, s->x, 8 * s->n);
    return status;
}
void lib_restart(Lib *s, long i, const double *x, const int *month, const double *after) {
    memcpy(s->x, after, 8 * s->n), *s->month = *month;
}
void lib_reverse(Lib *s, long i, const double *x, const int *month) {
    for (int k = 0; k < s->n; k++) {
        s->of_rate[k] += season(*month) * x[k] * (1 - x[k]) * s->of_x[k];
        s->of_x[k] *= 1 + season(*month) * s->rate[k] * (1 - 2 * x[k]);
    }
}
double lib_seed(Lib *s, long n) {
    double sum = 0;
    for (int k = 0; k < s->n; k++) sum += s->x[k];
    for (int k = 0; k < s->n; k++) s->of_x[k] = 2 * sum;
    return sum * sum;
}
"""

N = 5
X, RATE, OF_X, OF_RATE, MONTH = range(5)


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    place = tmp_path_factory.mktemp("native")
    (place / "lib.c").write_text(LIBRARY)
    build = ["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", "lib.so", "lib.c"]
    subprocess.run(build, cwd=place, check=True)
    lib = ctypes.CDLL(str(place / "lib.so"))
    pointer, long = ctypes.c_void_p, ctypes.c_long
    for name, result, *arguments in (
        ("new", pointer, ctypes.c_int),
        ("memory", pointer, pointer, ctypes.c_int),
        ("rates", ctypes.POINTER(ctypes.c_double), pointer),
        ("fail_at", None, pointer, ctypes.c_int),
        ("freed", ctypes.c_int, pointer),
        ("free", None, pointer),
        ("step", ctypes.c_int, pointer, long),
        ("record", ctypes.c_int, pointer, long, pointer, pointer),
        ("record_both", ctypes.c_int, pointer, long, pointer, pointer, pointer),
        ("restart", None, pointer, long, pointer, pointer, pointer),
        ("reverse", None, pointer, long, pointer, pointer),
        ("seed", ctypes.c_double, pointer, long),
    ):
        function = getattr(lib, f"lib_{name}")
        function.restype, function.argtypes = result, arguments
    return lib


Make = Callable[..., Any]


@pytest.fixture
def make(lib: ctypes.CDLL) -> Make:
    """A maker of models, in which a test may replace some arguments."""

    def made(**changes: Any) -> Any:
        s = lib.lib_new(N)
        memory = [lib.lib_memory(s, which) for which in range(5)]
        arguments: dict[str, Any] = {
            "state": {"x": Memory(memory[X], (N,)), "month": Memory(memory[MONTH], (), "<i4")},
            "adjoint": {"x": Memory(memory[OF_X], (N,))},
            "control": {"x": Memory(memory[X], (N,)), "rate": Memory(lib.lib_rates(s), (N,))},
            "gradient": {"rate": Memory(memory[OF_RATE], (N,))},
            "tape": (Field("x", "<f8", (N,)), Field("month", "<i4", ())),
            "step": lambda i: lib.lib_step(s, i),
            "record": lambda i, *tape: lib.lib_record(s, i, *tape),
            "reverse": lambda i, *tape: lib.lib_reverse(s, i, *tape),
            "seed": lambda n: lib.lib_seed(s, n),
            "free": lambda: lib.lib_free(s),
        }
        model = NativeModel(**{**arguments, **changes})
        model.control["x"][...] = np.linspace(0.1, 0.5, N)
        model.control["rate"][...] = np.linspace(0.2, 0.3, N)
        model.solver = s  # type: ignore[attr-defined]
        return model

    return made


def whole(make: Make) -> Any:
    return reverse_all(make(), STEPS)


def test_the_gradient_is_right(make: Make) -> None:
    model = whole(make)
    result = check_gradient(make, STEPS, model.gradient)
    assert result.verified, result.summary()
    assert set(model.gradient) == set(model.control) == {"x", "rate"}


@pytest.mark.parametrize("planner", SCHEDULES)
def test_every_schedule_gives_the_same_bits(make: Make, planner: str) -> None:
    model, expected = make(), whole(make)
    chain = Chain(steps=STEPS, advance=1, record=1, reverse=2, **sizes_of(model))
    size = STEPS * chain.tape if planner == "store-all" else 3 * chain.restart
    platform = Platform((Level(name="ram", capacity=size),), working_memory=chain.tape * STEPS)
    run(registry.find("planners", planner)(chain, platform), platform, model, [Ram()])
    assert model.functional == expected.functional
    for name, gradient in expected.gradient.items():
        assert model.gradient[name].tobytes() == gradient.tobytes()


def test_an_adjoint_that_was_stored_goes_on_in_a_new_model(make: Make) -> None:
    first, expected = make(), whole(make)
    first.advance(0, 10)
    state = save(first, x(10))
    first.record(10, STEPS)
    first.reverse(10, STEPS)
    adjoint = save(first, a(10))
    second = make()
    restore(second, a(10), adjoint)
    restore(second, x(10), state)  # J must not be found again from a state that is not x_n
    fresh = make()
    fresh.advance(0, 9)
    restore(second, x(9), save(fresh, x(9)))
    second.record(9, 10)
    second.reverse(9, 10)
    for i in reversed(range(9)):
        other = make()
        other.advance(0, i)
        other.record(i, i + 1)
        restore(second, t(i), save(other, t(i)))
        second.reverse(i, i + 1)
    assert second.functional == expected.functional
    for name, gradient in expected.gradient.items():
        assert second.gradient[name].tobytes() == gradient.tobytes()


def test_the_seed_is_found_once_and_before_the_last_state_is_given_up(make: Make) -> None:
    model, start = make(), save(make(), x(0))
    model.advance(0, STEPS)
    restore(model, x(0), start)
    model.advance(0, STEPS - 1)
    assert model.functional == whole(make).functional


def test_a_read_that_fails_leaves_the_model_as_it_was(make: Make) -> None:
    model = make()
    model.record(0, 3)
    for key in (x(3), t(2), a(3)):
        before = save(model, key)
        with suppress(OSError), model.load(key, model.layout(key)) as buffers:
            buffers[0][:] = bytes(len(buffers[0]))
            raise OSError
        assert save(model, key) == before


def test_checkpoints_have_the_fields_of_state_tape_and_adjoint(make: Make) -> None:
    model = make()
    names = {kind: [f.name for f in model.layout(Key(kind, 0))] for kind in Kind}
    assert names == {
        Kind.RESTART: ["x", "month"],
        Kind.TAPE: ["x", "month"],
        Kind.ADJOINT: ["adjoint_x", "gradient_rate", "functional"],
    }


def test_a_result_has_the_controls_and_not_the_state_in_the_same_memory(
    make: Make, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"model": make, "steps": STEPS, "ram": "1KiB"}
    result = Job(tmp_path / "run", **options).run()
    read_back = Job(tmp_path / "run", **options).result()
    for control in (result.control, read_back.control):
        for name, begun in make().control.items():
            assert np.array_equal(control[name], begun), name


def test_each_step_is_reported(make: Make) -> None:
    steps: list[int] = []
    model = make()
    model.on_step = steps.append
    model.advance(0, 2)
    model.record(2, 4)
    model.reverse(2, 4)
    assert steps == [1, 2, 3, 4, 3, 2]


def test_the_library_is_freed_once_when_no_array_is_in_use(make: Make, lib: ctypes.CDLL) -> None:
    model = whole(make)
    library, gradient = model.solver, model.gradient["rate"]
    del model
    gc.collect()
    assert lib.lib_freed(library) == 0
    assert gradient.any()
    del gradient
    gc.collect()
    assert lib.lib_freed(library) == 1


def test_a_status_ends_the_run_with_its_step(make: Make, lib: ctypes.CDLL) -> None:
    model = make()
    lib.lib_fail_at(model.solver, 4)
    with pytest.raises(RunFailed, match="step 4: the library returned 3; it must return 0"):
        model.advance(0, 9)


def test_a_seed_without_restype_is_told(make: Make) -> None:
    model = make(seed=lambda n: 7)
    model.advance(0, 2)
    with pytest.raises(RunFailed, match="seed returned 7; it must return J: set its restype"):
        _ = model.functional


def test_a_model_that_was_used_is_told(make: Make) -> None:
    with pytest.raises(RunFailed, match=f"the state is at step {STEPS}, not 0; make a new model"):
        whole(make).advance(0, 1)
    model = make()
    model.record(0, 3)
    with pytest.raises(RunFailed, match="the adjoint is at step 3, not 2; make a new model"):
        model.reverse(0, 2)
    model.reverse(2, 3)
    model.reverse(1, 2)
    model.record(3, 4)
    with pytest.raises(RunFailed, match="no tape of step 0 is stored; record the step, or read"):
        model.reverse(0, 1)


@pytest.mark.parametrize("address", [None, 0, -8, 2**64 - 8, 12.5, ctypes.c_void_p(None), 4097])
def test_an_address_that_is_none_is_refused_by_name(make: Make, address: Any) -> None:
    with pytest.raises(BadInput, match=r"adjoint\['x'\] = Memory\(.*address"):
        make(adjoint={"x": Memory(address, (N,))})


@pytest.mark.parametrize("shape", [(-1,), (2.5,), 5, "x"])
def test_a_shape_that_is_none_is_refused_by_name(make: Make, shape: Any) -> None:
    with pytest.raises(BadInput, match=r"state\['x'\] = Memory\(.*give an address, a shape and a"):
        make(state={"x": Memory(4096, shape)})


@pytest.mark.parametrize("dtype", ["O", "no such type"])
def test_a_type_that_is_none_is_refused_by_name(make: Make, dtype: str) -> None:
    with pytest.raises(BadInput, match=r"state\['x'\] = Memory\(.*(a shape and a type|of numbers)"):
        make(state={"x": Memory(4096, (N,), dtype)})


def test_arrays_that_share_memory_are_refused(make: Make, lib: ctypes.CDLL) -> None:
    s = lib.lib_new(N)
    begin = lib.lib_memory(s, X)
    with pytest.raises(BadInput, match=r"state\['x'\] and adjoint\['x'\] share memory"):
        make(state={"x": Memory(begin, (N,))}, adjoint={"x": Memory(begin + 8, (N,))})


def test_controls_and_gradient_must_have_the_same_shapes(make: Make, lib: ctypes.CDLL) -> None:
    begin = lib.lib_memory(lib.lib_new(N), OF_RATE)
    with pytest.raises(BadInput, match="give both the same shapes"):
        make(gradient={"rate": Memory(begin, (N - 1,))})
    with pytest.raises(BadInput, match="give both the same shapes"):
        make(gradient={})


def test_a_tape_that_is_no_layout_is_refused(make: Make) -> None:
    with pytest.raises(BadInput, match="it must be a tuple such as"):
        make(tape=["x"])


def test_a_checkpoint_of_other_options_is_refused(make: Make) -> None:
    with pytest.raises(BadInput, match="use the same options"), make().load(x(0), ()):
        pass


def restarting(lib: ctypes.CDLL, make: Make) -> Make:
    """The same library with tapes that contain the state after their step."""

    def made() -> Any:
        model = make(
            tape=(Field("x", "<f8", (N,)), Field("month", "<i4", ()), Field("after", "<f8", (N,))),
            record=lambda i, *tape: lib.lib_record_both(model.solver, i, *tape),
            reverse=lambda i, x, month, _: lib.lib_reverse(model.solver, i, x, month),
            restart=lambda i, *tape: lib.lib_restart(model.solver, i, *tape),
        )
        return model

    return made


def test_the_forward_restarts_from_a_tape(lib: ctypes.CDLL, make: Make) -> None:
    """Fewer steps, and the gradient to the last bit; the model's check finds the restart right."""
    model = restarting(lib, make)()
    sizes = sizes_of(model)
    assert optional(model).tape_restarts
    chain = Chain(
        steps=STEPS, advance=1, record=1, reverse=1, **sizes, tape_restarts=model.tape_restarts
    )
    level = Level(name="ram", capacity=3 * sizes["tape"])
    machine = Platform((level,), working_memory=sizes["tape"])
    plain = mixed(replace(chain, tape_restarts=False), machine)
    schedule = mixed(chain, machine)
    assert makespan(schedule, machine) < makespan(plain, machine)
    run(schedule, machine, model, [Ram(capacity=level.capacity)])
    right = whole(make)
    assert model.functional == right.functional
    assert all(np.array_equal(model.gradient[it], right.gradient[it]) for it in right.gradient)
    assert check_model(restarting(lib, make)).verified


def test_a_tape_without_the_state_is_found(lib: ctypes.CDLL, make: Make) -> None:
    wrong = partial(make, restart=lambda i, *tape: None)
    check = check_model(wrong)
    assert "after the tape of step" in check.summary()
    assert "tape_restarts" in check.summary()
    with pytest.raises(BadInput, match="give one of them"):
        make(restart=lambda i, *tape: None, record_only=lambda i, *tape: None)
