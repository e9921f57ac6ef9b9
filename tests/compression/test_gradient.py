"""What compression does to a gradient: lossless nothing, lossy what its tolerance lets it."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from installed import LOSSLESS, needs_zfp

from ckio import Chain, Compressed, Level, Platform, Ram, run
from ckio.compression import Codec, Zfp
from ckio.model import sizes_of
from ckio.models.vorticity import Vorticity
from ckio.planners import revolve

STEPS = 40
TOLERANCES = [1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10]


def flow() -> Vorticity:
    """The vorticity model in units of its basin and its eddies, in which all fields are about 1."""
    return Vorticity(
        grid=32, length=1.0, depth=1.0, speed=1.0, beta=10.0, drag=0.05, viscosity=1e-3, wind=1e3
    )


def gradient_by(codec: Codec | None) -> np.ndarray:
    """The gradient where three slots hold what the codec leaves of the restart data."""
    model = flow()
    chain = Chain(steps=STEPS, advance=1.0, record=1.0, reverse=1.0, **sizes_of(model))
    memory = Platform((Level(name="memory", capacity=3 * chain.largest("restart")),))
    level = Compressed(Ram(), codec) if codec else Ram()
    run(revolve(chain, memory), memory, model, [level])
    return np.concatenate([gradient.ravel() for gradient in model.gradient.values()])


@pytest.fixture(scope="module")
def exact() -> np.ndarray:
    return gradient_by(None)


@pytest.mark.parametrize("make", LOSSLESS)
def test_a_lossless_codec_leaves_every_bit_of_the_gradient(
    make: Callable[[], Codec], exact: np.ndarray
) -> None:
    assert gradient_by(make()).tobytes() == exact.tobytes()


@pytest.mark.campaign
@needs_zfp
@pytest.mark.parametrize("bound", ["tolerance", "relative"])
def test_the_error_of_the_gradient_falls_with_the_tolerance(bound: str, exact: np.ndarray) -> None:
    size = np.linalg.norm(exact)
    errors = [
        np.linalg.norm(gradient_by(Zfp(**{bound: tolerance})) - exact) / size
        for tolerance in TOLERANCES
    ]
    for tolerance, error in zip(TOLERANCES, errors, strict=True):
        print(f"{bound} {tolerance:.0e}: relative error of the gradient {error:.1e}")  # noqa: T201
        assert 0 < error < tolerance
    assert all(after < before for before, after in pairwise(errors))
