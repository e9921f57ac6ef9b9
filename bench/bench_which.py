"""Which schedule, when? Makespans and planning times of every planner; the tables in the docs.

python bench/bench_which.py          all of it, into docs/which_schedule.md, some minutes
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import record

from ckio.adapters.registry import find, names
from ckio.errors import BadInput, NoSchedule
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import makespan
from ckio.schedule.replay import validate

PAGE = Path(__file__).parents[1] / "docs" / "which_schedule.md"

STEPS = (100, 1000, 10_000)
TIMED_ON = "RAM and NVMe"


@dataclass(frozen=True)
class Machine:
    """Levels of (name, slots, seconds to write, to read), in seconds of a forward step.

    Attributes
    ----------
    levels : tuple
        Nearest first; slots are of restart checkpoints, None without end.
    tape : int
        Bytes of a step's tape, where a restart checkpoint takes 100.
    tapes : int
        Steps whose tape the working memory holds.
    """

    levels: tuple[tuple[str, int | None, float, float], ...]
    tape: int = 100
    tapes: int = 1

    def chain(self, steps: int) -> Chain:
        """A step that takes a second forward, 1.2 where its tape is kept, and 2 back."""
        return Chain(
            steps=steps, advance=1, record=1.2, reverse=2, restart=100, tape=self.tape, adjoint=100
        )

    def platform(self) -> Platform:
        return Platform(
            tuple(
                Level(
                    name=name,
                    capacity=None if slots is None else 100 * slots,
                    write=Affine(per_byte=write / 100),
                    read=Affine(per_byte=read / 100),
                )
                for name, slots, write, read in self.levels
            ),
            working_memory=self.tapes * self.tape,
        )


MACHINES: Mapping[str, Machine] = {
    "RAM": Machine((("ram", 20, 0.02, 0.02),)),
    "costly RAM": Machine((("ram", 30, 2, 2),)),
    "RAM and NVMe": Machine((("ram", 20, 0.02, 0.02), ("nvme", 200, 0.5, 0.5))),
    "RAM and files": Machine((("ram", 10, 0.02, 0.02), ("files", None, 5, 5))),
    "RAM, NVMe, files": Machine(
        (("ram", 10, 0.02, 0.02), ("nvme", 100, 0.5, 0.3), ("files", None, 4, 6)), tape=800
    ),
    "tapes in memory": Machine((("ram", 20, 0.02, 0.02), ("nvme", 200, 0.5, 0.5)), tapes=50),
}


def compared() -> list[str]:
    """All planners but that for overlap: in these makespans one transfer waits for another."""
    return [name for name in names("planners") if name != "overlapped"]


def relative(steps: int, planners: Iterable[str]) -> dict[str, list[str]]:
    """Each planner's makespan beside the best one, machine by machine."""
    planners = list(planners)
    columns = [_column(machine, steps, planners) for machine in MACHINES.values()]
    return {name: [column[name] for column in columns] for name in planners}


def _column(machine: Machine, steps: int, planners: Sequence[str]) -> dict[str, str]:
    seconds = {name: _seconds(name, machine, steps) for name in planners}
    least = min(value for value in seconds.values() if value is not None)
    return {
        name: "–" if value is None else f"{value / least:.2f}" for name, value in seconds.items()
    }


def _seconds(name: str, machine: Machine, steps: int) -> float | None:
    """The makespan of a planner's schedule, replayed; None where it has none."""
    platform = machine.platform()
    try:
        schedule = find("planners", name)(machine.chain(steps), platform)
    except (NoSchedule, BadInput):
        return None
    if validate(schedule, platform).adjoint:
        raise AssertionError(f"{name} does not reverse every step")
    return makespan(schedule, platform)


def planning(planners: Iterable[str]) -> dict[str, list[str]]:
    """CPU milliseconds of one call of each planner, the best of three."""
    machine = MACHINES[TIMED_ON]
    platform = machine.platform()
    return {
        name: [
            _milliseconds(partial(find("planners", name), machine.chain(steps), platform))
            for steps in STEPS
        ]
        for name in planners
    }


def _milliseconds(call: Callable[[], object]) -> str:
    times: list[float] = []
    while len(times) < 3 and sum(times) < 10:
        start = time.process_time()
        try:
            call()
        except (NoSchedule, BadInput):
            return "–"
        times.append(time.process_time() - start)
    return f"{1000 * min(times):.1f}"


def markdown(header: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A table whose first column is code and whose others are numbers."""
    lines = [f"| {' | '.join(header)} |", "|---|" + "--:|" * (len(header) - 1)]
    lines += [f"| `{name}` | {' | '.join(cells)} |" for name, cells in rows.items()]
    return "\n".join(lines)


def tables(planners: Iterable[str]) -> dict[str, str]:
    """Every table of the page, by the name that its comment gives it."""
    planners = list(planners)
    found = {
        f"makespans, {steps} steps": markdown(["", *MACHINES], relative(steps, planners))
        for steps in STEPS
    }
    return found | {"planning": times(planners)}


def times(planners: Iterable[str]) -> str:
    """The table of planning times, under the machine that it was taken on."""
    head = ["", *(f"{steps} steps" for steps in STEPS)]
    return f"{record.machine()}.\n\n{markdown(head, planning(planners))}"


def fill(page: str, found: Mapping[str, str]) -> str:
    """The page with the tables between their comments."""
    for name, table in found.items():
        page, count = re.subn(
            rf"(?s)(<!-- table: {re.escape(name)} -->\n).*?(<!-- end -->)",
            lambda match, table=table: f"{match[1]}{table}\n{match[2]}",
            page,
        )
        if count != 1:
            raise ValueError(f"{PAGE.name} has {count} places for the table {name!r}")
    return page


def read(page: str, name: str) -> dict[str, list[str]]:
    """The rows of one table of the page."""
    (text,) = re.findall(rf"(?s)<!-- table: {re.escape(name)} -->\n(.*?)<!-- end -->", page)
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", text, flags=re.MULTILINE)
    return {planner: cells.split(" | ") for planner, cells in rows}


def test_the_page_has_a_section_and_a_row_for_every_planner() -> None:
    page = PAGE.read_text(encoding="utf-8")
    told = re.findall(r"^\*\*`([^`]+)`\*\*", page, flags=re.MULTILINE)
    assert sorted(told) == names("planners")
    for table in (*(f"makespans, {steps} steps" for steps in STEPS), "planning"):
        assert sorted(read(page, table)) == compared()


@pytest.mark.parametrize("name", compared())
def test_the_page_says_what_the_planner_does_on_a_hundred_steps(name: str) -> None:
    page = read(PAGE.read_text(encoding="utf-8"), "makespans, 100 steps")
    least = {name, "mixed", "hrevolve", "store-all", "periodic"}
    assert relative(100, sorted(least))[name] == page[name]


def test_planning_every_planner(benchmark) -> None:
    benchmark(lambda: [_seconds(name, MACHINES[TIMED_ON], 20) for name in compared()])


if __name__ == "__main__":
    logging.getLogger("ckio").setLevel(logging.ERROR)  # which levels are too small, each time
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), tables(compared())), "utf-8")
    print(PAGE.read_text(encoding="utf-8"))
