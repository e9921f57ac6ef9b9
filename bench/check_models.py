"""What does `ckio check` say of right models, and of models with one mistake each?

The right models are those of the package and of the examples that need no other library. The wrong
ones are those of `tests/model/wrong_models.py`, in Python and in C.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import record

from ckio.model.check import check_model
from ckio.models.burgers import Burgers
from ckio.models.vorticity import Vorticity
from ckio.models.wave import Wave

HEADER = ["model", "verdict", "test", "array", "step", "seconds"]


def right(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    from example_models.altimetry import Altimetry
    from example_models.ocean import Ocean
    from example_models.permafrost import Permafrost
    from example_models.shallow_water import ShallowWater

    yield "burgers", partial(Burgers, grid=40)
    yield "vorticity", partial(Vorticity, grid=16)
    yield "wave", partial(Wave, grid=24)
    np.save(folder / "observed.npy", np.random.default_rng(1).normal(0, 1e4, (15, 15)))
    yield "altimetry", partial(Altimetry, folder / "observed.npy")
    yield "ocean", partial(Ocean, grid=16)
    yield "permafrost", partial(Permafrost, grid=6)
    yield "shallow water", partial(ShallowWater, grid=6)


def wrong(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from model import wrong_models

    yield "right, in C", wrong_models.in_c(_made(folder / "right"))
    for name in ("Right", "Single", "Complex"):
        yield f"right: {name}", getattr(wrong_models, name)
    for kind, *_ in wrong_models.WRONG:
        yield f"wrong: {kind.__name__}", kind
    for number, (name, changes) in enumerate(wrong_models.IN_C.items()):
        yield f"wrong, in C: {name}", wrong_models.in_c(_made(folder / str(number)), *changes)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def row(name: str, make: Callable[[], Any]) -> list[str]:
    start = time.perf_counter()
    check = check_model(make)
    seconds = f"{time.perf_counter() - start:.2f}"
    if not check.faults:
        return [name, "verified" if check.verified else "no fault", "", "", "", seconds]
    fault = check.faults[0]
    return [name, "wrong", fault.check, fault.array, str(fault.step), seconds]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(*each) for each in (*right(Path(folder)), *wrong(Path(folder)))]
    record.save("check_models", record.columns(HEADER, rows))


if __name__ == "__main__":
    main()
