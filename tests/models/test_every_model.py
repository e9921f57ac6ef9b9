"""What all models do, those of ckio and those of its examples; theirs alone is in their files."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models.ocean import Ocean
from example_models.permafrost import Permafrost
from example_models.shallow_water import ShallowWater
from models.fewslots import PLANS, digest_by, digest_by_two
from models.poisoning import flow_of, seed_of, tape_of
from models.variants import ROUGH, Endless
from small_models import digest, reverse_all

from ckio.actions import Key, Kind
from ckio.actions.variables import Step
from ckio.errors import BadInput
from ckio.model.arraymodel import ArrayModel
from ckio.model.gradient import check_gradient
from ckio.models.burgers import Burgers
from ckio.models.vorticity import Vorticity
from ckio.models.wave import Wave

THAWING = {"grid": 6, "steps": 16, "change": 5, "thaw": 6}
"""Permafrost with all three phases."""
SMALL: dict[str, tuple[Callable[..., ArrayModel], int]] = {
    "burgers": (partial(Endless, grid=20, time=0.8), 40),
    "vorticity": (partial(Vorticity, grid=6), 13),
    "wave": (partial(Wave, grid=16, frequency=25.0), 40),
    "ocean": (partial(Ocean, grid=6), 17),
    "permafrost": (partial(Permafrost, **THAWING), 16),
    "permafrost, no thaw": (partial(Permafrost, **THAWING | {"thaw": 0}), 16),
    "permafrost, all thaw": (partial(Permafrost, **THAWING | {"change": 0, "thaw": 16}), 16),
    "shallow water": (partial(ShallowWater, grid=7), 17),
}
LARGE: dict[str, tuple[Callable[..., ArrayModel], int]] = {
    "burgers": (partial(Endless, grid=60), 420),
    "vorticity": (partial(Vorticity, grid=33, seed=3), 120),
    "wave": (partial(Wave, grid=64, frequency=25.0, anomaly=0.4), 90),
    "ocean": (partial(Ocean, grid=24, seed=3), 60),
    "permafrost": (
        partial(Permafrost, grid=33, steps=40, change=7, thaw=10, variation=3.0),
        40,
    ),
    "shallow water": (partial(ShallowWater, grid=48, **ROUGH), 60),
}


def changed(make: Callable[[], ArrayModel]) -> ArrayModel:
    """A model whose controls are none that its checkpoints would give it."""
    model = make()
    for array in model.control.values():
        array[...] *= 1.01
    return model


@pytest.mark.parametrize("name", SMALL)
def test_few_slots_and_two_processes_give_the_bits_of_store_all(name: str, tmp_path: Path) -> None:
    make, steps = SMALL[name]
    expected = digest(reverse_all(changed(make), steps))
    assert expected != digest(reverse_all(make(), steps))
    for plan in PLANS:
        assert digest_by(plan, partial(changed, make), steps, tmp_path / plan) == expected, plan
    assert digest_by_two(partial(changed, make), steps) == expected


@pytest.mark.parametrize("name", LARGE)
def test_the_taylor_test_finds_second_order_over_five_halvings(name: str) -> None:
    make, steps = LARGE[name]
    gradient = reverse_all(make(), steps).gradient
    check = check_gradient(make, steps, gradient)
    assert (check.verified, len(check.rates)) == (True, 5)
    assert min(check.rates) > 1.95


@pytest.mark.parametrize("name", ["burgers", "vorticity"])
def test_the_bytes_do_not_depend_on_where_arrays_lie(name: str) -> None:
    make, steps = SMALL[name]
    expected, kept = digest(reverse_all(make(), steps)), []
    for size in (1, 1000, 40_000):
        kept.append(np.ones(size, np.uint8))  # moves what is allocated next
        model = make()
        for field, array in list(model._state.items()):
            memory = np.zeros(array.nbytes + 8, np.uint8)[8:]
            moved = memory.view(array.dtype).reshape(array.shape)
            moved[...] = array
            dict.__setitem__(model._state, field, moved)
        assert digest(reverse_all(model, steps)) == expected


ALL_OF_OCEAN = "zeta s-1, psi m2 s-1, zeta_prev s-1, F_0 s-2, F_1 s-2, F_2 s-2, Q s-2, J m2 s-2"
CHECKPOINTS = {
    "burgers": ("u m s-1, t s, J m2 s-2", "u m s-1, t s"),
    "vorticity": ("zeta s-1, psi m2 s-1, F_1 s-2, F_2 s-2, J m2 s-2", "zeta s-1, psi m2 s-1"),
    "wave": ("u Pa, du Pa, J Pa2 s", "u Pa"),
    "ocean": (ALL_OF_OCEAN, ALL_OF_OCEAN),
    "permafrost": ("T degC, K W m-1 K-1, J K2", "T degC, K W m-1 K-1"),
    "permafrost, no thaw": ("T degC, J K2", "T degC"),
    "shallow water": (
        "u m s-1, v m s-1, h m, u_old m s-1, v_old m s-1, h_old m, J m3 s-2",
        "u m s-1, v m s-1, h m, u_old m s-1, v_old m s-1",
    ),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints_hold_what_is_needed_with_units(name: str) -> None:
    model = SMALL[name][0]()
    restart, tape, adjoint = (
        [(field.name, field.unit) for field in model.layout(Key(kind, 0))]
        for kind in (Kind.RESTART, Kind.TAPE, Kind.ADJOINT)
    )
    assert (written(restart), written(tape)) == CHECKPOINTS[name]
    expected = {f"adjoint_{field}" for field, _ in restart}
    expected |= {f"gradient_{control}" for control in model.control} | {"functional"}
    assert {field for field, _ in adjoint} >= expected


def written(fields: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {unit}" for name, unit in fields)


@pytest.mark.parametrize(
    ("name", "steps"),
    [("wave", (20, 40)), ("permafrost", (1, 4, 5, 10, 11, 15)), ("shallow water", (1, 8))],
)
def test_the_flow_declared_is_what_a_step_does(name: str, steps: tuple[int, ...]) -> None:
    make = SMALL[name][0]
    declared = make().variables
    for i in steps:
        step = declared.steps if isinstance(declared.steps, Step) else declared.steps[i]
        found = flow_of(make, i)
        assert (found.use, found.out) == (step.forward.use, step.forward.out), i
        assert name == "wave" or found == step.forward, i
        assert tape_of(make, i) == step.record.use
        assert seed_of(make, i) == declared.seed


REFUSED: list[tuple[Callable[..., ArrayModel], dict[str, Any], str]] = [
    (Burgers, {"grid": 3}, "grid = 3.*whole number >= 4"),
    (Burgers, {"grid": 64.0}, r"grid = 64\.0.*whole number"),
    (Burgers, {"seed": -1}, "seed = -1"),
    (Burgers, {"viscosity": 0.0}, "viscosity = 0.*> 0"),
    (Burgers, {"time": float("inf")}, "time = inf.*finite"),
    (Burgers, {"length": "long"}, "length = 'long'.*number"),
    (Burgers, {"speed": float("nan")}, "speed = nan"),
    (Burgers, {"courant": 1.5}, r"courant = 1\.5.*stable"),
    (Vorticity, {"grid": 3}, "grid = 3.*whole number >= 4"),
    (Vorticity, {"seed": -1}, "seed = -1"),
    (Vorticity, {"length": 0.0}, "length = 0.*> 0"),
    (Vorticity, {"depth": float("inf")}, "depth = inf.*finite"),
    (Vorticity, {"drag": -1e-7}, "drag = -1e-07.*>= 0"),
    (Vorticity, {"viscosity": float("nan")}, "viscosity = nan"),
    (Vorticity, {"wind": "strong"}, "wind = 'strong'.*number"),
    (Vorticity, {"dt": 0.0}, "dt = 0.*> 0"),
    (Vorticity, {"dt": 1e6}, r"dt = 1e\+06 s; for damping and Rossby waves"),
    (Wave, {"grid": 7}, "grid = 7.*whole number >= 8"),
    (Wave, {"layers": 0}, "layers = 0.*>= 1"),
    (Wave, {"spacing": 0.0}, "spacing = 0.*> 0"),
    (Wave, {"speed": float("inf")}, "speed = inf.*finite"),
    (Wave, {"deep": -1.0}, "deep = -1.*> 0"),
    (Wave, {"anomaly": -1.0}, "anomaly = -1.*> -1"),
    (Wave, {"frequency": "high"}, "frequency = 'high'.*number"),
    (Wave, {"frequency": 50.0}, r"frequency = 50 Hz.*at most 33\.75 Hz"),
    (Wave, {"border": -1}, "border = -1.*>= 0"),
    (Wave, {"border": 62}, "border = 62.*128 rows.*at most 61"),
    (Wave, {"dt": 0.0}, "dt = 0.*> 0"),
    (Wave, {"dt": 0.01}, r"dt = 0\.01 s.*up to 0\.002449 s"),
    (Ocean, {"grid": 3}, "grid = 3.*>= 4"),
    (Ocean, {"recompute": "psi"}, "recompute = 'psi'.*everything is stored"),
    (Ocean, {"dt": 1e6}, r"dt = 1e\+06 s; for damping and Rossby waves"),
    (Permafrost, {"grid": 2}, "grid = 2.*>= 3"),
    (Permafrost, {"steps": 0}, "steps = 0.*>= 1"),
    (Permafrost, {"change": -1}, "change = -1.*>= 0"),
    (Permafrost, {"thaw": "long"}, "thaw = 'long'.*whole number"),
    (Permafrost, {"change": 190, "thaw": 11}, "change = 190 and thaw = 11.*there are 200"),
    (Permafrost, {"change": 201}, "change = 201 and thaw = 0"),
    (Permafrost, {"heat": 0.0}, "heat = 0.*> 0"),
    (Permafrost, {"ice": -0.1}, r"ice = -0\.1.*>= 0"),
    (Permafrost, {"surface": float("nan")}, "surface = nan.*finite"),
    (Permafrost, {"dt": -1.0}, "dt = -1.*> 0"),
    (Permafrost, {"dt": 1e9}, r"dt = 1e\+09 s; conduction"),
    (ShallowWater, {"grid": 2}, "grid = 2.*>= 3"),
    (ShallowWater, {"seed": -1}, "seed = -1"),
    (ShallowWater, {"length": 0.0}, "length = 0.*> 0"),
    (ShallowWater, {"depth": float("inf")}, "depth = inf.*finite"),
    (ShallowWater, {"bank": 1.0}, "bank = 1.*< 1"),
    (ShallowWater, {"asselin": 0.5}, r"asselin = 0\.5.*< 0\.5"),
    (ShallowWater, {"drag": -1e-7}, "drag = -1e-07.*>= 0"),
    (ShallowWater, {"coriolis": "north"}, "coriolis = 'north'.*number"),
    (ShallowWater, {"surface": 50.0}, "surface = 50 m.*dry"),
    (ShallowWater, {"dt": 0.0}, "dt = 0.*> 0"),
    (ShallowWater, {"dt": 1e4}, "dt = 10000 s; gravity waves"),
]


def test_options_out_of_range_are_refused() -> None:
    for model, options, words in REFUSED:
        with pytest.raises(BadInput, match=words):
            model(**options)
