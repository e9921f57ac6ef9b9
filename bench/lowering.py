"""How long does it take to make a schedule of single variables of one of whole checkpoints?

Seconds of processor time of `lower` with a platform, of `validate` on what comes out, and of
hrevolve beside them: 20 whole states in memory, and a disk without end. The variables are those of
two models: `vorticity`, all of whose steps do the same to five arrays, and `permafrost`, whose
steps say each for itself what they do.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import record
from example_models.permafrost import CONDUCT, THAW

from ckio.actions.variables import Variables
from ckio.analysis.lowering import lower
from ckio.models.vorticity import FLOW
from ckio.planners.dp import hrevolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule.replay import validate

STEPS, SLOTS, FIELD = (1000, 10_000, 100_000), 20, 8 << 20

_Made = TypeVar("_Made")


def vorticity(steps: int) -> Variables:
    """Five arrays, and the functional; the same for any number of steps."""
    fields = dict.fromkeys(("zeta", "psi", "F_1", "F_2", "Q"), FIELD)
    return Variables({**fields, "J": 8}, FLOW, ("zeta", "psi", "J"), ("zeta", "psi"))


def permafrost(steps: int) -> Variables:
    """One array that all steps overwrite, and another that a tenth of them do."""
    thaw = range(steps // 3, steps // 3 + max(1, steps // 10))
    does = tuple(THAW if i in thaw else CONDUCT for i in range(steps))
    return Variables({"T": FIELD, "K": 2 * FIELD, "J": 8}, does, ("T", "J"), ("T", "K"))


MODELS: Final[Mapping[str, Callable[[int], Variables]]] = {
    "vorticity": vorticity,
    "permafrost": permafrost,
}


def example(steps: int, variables: Variables) -> tuple[Chain, Platform]:
    """A chain of whole states, and a platform that holds some of them in memory."""
    size = sum(variables.nbytes.values())
    chain = Chain(
        steps=steps,
        advance=1e-3,
        record=1.2e-3,
        reverse=2e-3,
        restart=size,
        tape=size,
        adjoint=size,
    )
    copy, disk = Affine(per_byte=1e-10), Affine(1e-3, 1e-9)
    ram = Level(name="ram", capacity=SLOTS * size, write=copy, read=copy)
    far = Level(name="disk", write=disk, read=disk)
    return chain, Platform((ram, far), working_memory=2 * size)


def took(action: Callable[[], _Made]) -> tuple[float, _Made]:
    """Seconds of processor time of a call, and what it returns."""
    start = time.process_time()
    made = action()
    return time.process_time() - start, made


def row(name: str, steps: int) -> list[str]:
    """One model and one length: every figure is of a first call, with new variables."""
    chain, platform = example(steps, MODELS[name](steps))
    planning, whole = took(lambda: hrevolve(chain, platform))
    variables = MODELS[name](steps)
    lowering, lowered = took(lambda: lower(whole, variables, platform=platform))
    checking, machine = took(lambda: validate(lowered, platform))
    assert machine.adjoint == 0
    seconds = [f"{each:.3f}" for each in (planning, lowering, checking)]
    return [name, f"{steps:,}", f"{len(whole):,}", f"{len(lowered):,}", *seconds]


HEADER = ("model", "steps", "actions", "by variable", "hrevolve s", "lower s", "validate s")


def table(lengths: tuple[int, ...] = STEPS) -> str:
    """All models and lengths."""
    row("vorticity", 100)  # what is loaded and compiled once
    return record.columns(HEADER, [row(name, steps) for name in MODELS for steps in lengths])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="keep the table in results/")
    found = table()
    if parser.parse_args().save:
        record.save("lowering", found)
    else:
        print(found)
