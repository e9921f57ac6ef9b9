"""A platform is given as an object or as the path of its file, to every adapter as to a job."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckio import Level, Platform, Ram
from ckio.errors import BadInput
from ckio.programs import Options, checkpoint_vjp, program


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = {"path": str(tmp_path / "ck")}
    level = Level(name="disk", backend="directory", options=place)
    (tmp_path / "node.toml").write_text(Platform((level,)).dumps())
    return str(tmp_path / "node.toml")


def test_jax(path: str) -> None:
    jax = pytest.importorskip("jax")
    from ckio.adapters.jax import checkpointed_scan

    def end(r: Any, platform: Any) -> Any:
        def step(x: Any, r: Any, i: Any) -> Any:
            return r * x * (1 - x)

        return checkpointed_scan(step, np.ones(2) / 3, 9, params=r, platform=platform).sum()

    assert jax.grad(end)(2.0, path) == jax.grad(end)(2.0, None)
    with pytest.raises(BadInput, match=r"no\.toml: No such file"):
        jax.grad(end)(2.0, "no.toml")
    with pytest.raises(BadInput, match="platform = 3; it must be a Platform, or the path"):
        jax.grad(end)(2.0, 3)
    masked = np.ma.masked_array([1.0, 2.0], mask=[True, False])
    with pytest.raises(BadInput, match="x0 is a masked array"):
        checkpointed_scan(lambda x, _, i: x, masked, 2)


def test_torch(path: str) -> None:
    torch = pytest.importorskip("torch")
    from ckio.adapters.torch import checkpointed_loop

    def slope(platform: Any) -> Any:
        x = torch.tensor([0.3, 0.4], requires_grad=True)
        checkpointed_loop(lambda x, i: 2 * x * (1 - x), x, 9, platform=platform).sum().backward()
        return x.grad

    assert torch.equal(slope(path), slope(None))
    with pytest.raises(BadInput, match="platform = 3; it must be a Platform, or the path"):
        slope(3)


def test_pyadjoint(path: str) -> None:
    pyadjoint = pytest.importorskip("pyadjoint")
    from ckio.adapters.pyadjoint import enable

    with enable(pyadjoint.Tape(), path, steps=3):
        assert list((Path(path).parent / "ck").iterdir())  # the level is open
    with pytest.raises(BadInput, match="platform = 3; it must be a Platform, or the path"):
        enable(pyadjoint.Tape(), 3, steps=3)  # type: ignore[arg-type]


@program
def doubled(x: Any) -> Any:
    for _ in range(4):
        x = 2 * x
    return x


def test_programs(path: str) -> None:
    x = np.ones(2)
    given = checkpoint_vjp(doubled, x, x, options=Options(platform=path, backends=[Ram()]))
    assert np.array_equal(given[1], [16, 16])
    masked = np.ma.masked_array([1.0, 2.0], mask=[True, False])
    with pytest.raises(BadInput, match=r"x\.0 is a masked array"):
        checkpoint_vjp(doubled, masked, x)
