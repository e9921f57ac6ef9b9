"""How long does each planner take?"""

import statistics

import pytest
import record

from ckio.chain import Chain
from ckio.errors import NoSchedule
from ckio.planners.base import Planner
from ckio.planners.binomial import revolve
from ckio.planners.hrevolve import hrevolve, hrevolve_2020
from ckio.planners.trivial import periodic, recompute_all, store_all
from ckio.platforms import Platform

# Paper 004's two machines, and one of today; write and read in units of one advance.
PLATFORMS = {
    "arch_1": "4\n 1 1 1\n 1 5 5\n 2 10 10\n 20 20 20",
    "arch_2": "3\n 2 .5 .5\n 20 10 10\n 20 20 20",
    "RAM, NVMe, archive": "3\n 50 .05 .05\n 1000 1 1\n 10000 5 5",
}
PLANNERS: dict[str, Planner] = {
    "hrevolve": hrevolve,
    "hrevolve-2020": hrevolve_2020,
    "revolve": revolve,
    "periodic": periodic,
    "store-all": store_all,
    "recompute-all": recompute_all,
}
LENGTHS = (100, 1000, 5000)


def example(length: int, platform: str) -> tuple[Chain, Platform]:
    steps = length + 1
    chain = Chain(steps=steps, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    return chain, Platform.from_hrevolve(PLATFORMS[platform])


def milliseconds(planner: Planner, chain: Chain, platform: Platform) -> str:
    try:
        took = [record.seconds(lambda: planner(chain, platform)) for _ in range(3)]
    except NoSchedule:
        return "-"
    return f"{1000 * statistics.median(took):.1f}"


def table() -> str:
    rows = [
        [f"{platform}: {name}"]
        + [milliseconds(planner, *example(length, platform)) for length in LENGTHS]
        for platform in PLATFORMS
        for name, planner in PLANNERS.items()
    ]
    head = "Milliseconds of the planner call, columns included; median of 3; - where none fits\n"
    return head + record.columns(
        ["platform: planner", *(f"l = {length}" for length in LENGTHS)], rows
    )


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("planner", [hrevolve, revolve])
def test_planning(benchmark, planner: Planner, platform: str) -> None:
    benchmark(planner, *example(100, platform))


if __name__ == "__main__":
    record.save("planning", table())
