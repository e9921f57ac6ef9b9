"""Which schedule, when? Makespans and planning times of every planner.

It takes some minutes. With --record it fills the table of docs/which_schedule.md, too, which has
some of the planners.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench import ROOT, record
from ckio.adapters.registry import find, names
from ckio.errors import BadInput, NoSchedule
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import makespan
from ckio.schedule.replay import validate

PAGE = ROOT / "docs" / "which_schedule.md"

STEPS = (100, 1000, 10_000)
SHOWN = ("mixed", "hrevolve", "online", "revolve", "periodic")
"""The planners in the table of the page, for 1000 steps."""
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
    """Every table, by its title."""
    planners = list(planners)
    found = {
        f"makespans, {steps} steps": markdown(["", *MACHINES], relative(steps, planners))
        for steps in STEPS
    }
    head = ["", *(f"{steps} steps" for steps in STEPS)]
    times = markdown(head, planning(planners))
    return found | {f"CPU milliseconds of planning on {TIMED_ON}, the best of three": times}


def fill(page: str, rows: Mapping[str, Sequence[str]]) -> str:
    """The page with its table."""
    table = markdown(["", *MACHINES], rows)
    return re.sub(
        r"(?s)(<!-- table: makespans, 1000 steps -->\n).*?(<!-- end -->)",
        lambda match: f"{match[1]}{table}\n{match[2]}",
        page,
    )


def read(text: str, title: str) -> dict[str, list[str]]:
    """The rows of the table below a title."""
    table = text.partition(title)[2].strip().lstrip("-> \n").partition("\n\n")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", table, flags=re.MULTILINE)
    return {planner: cells.split(" | ") for planner, cells in rows}


def results() -> str:
    """The file with all tables."""
    return (record.RESULTS / "which_schedule.txt").read_text(encoding="utf-8")


def table() -> str:
    """All tables."""
    logging.getLogger("ckio").setLevel(logging.ERROR)  # which levels are too small, each time
    return "\n\n".join(f"{title}\n\n{it}" for title, it in tables(compared()).items())


def page() -> str:
    """The page with the table of the results."""
    rows = read(results(), "makespans, 1000 steps")
    return fill(PAGE.read_text(encoding="utf-8"), {name: rows[name] for name in SHOWN})


if __name__ == "__main__":
    record.main("which_schedule", table)
    PAGE.write_text(page(), encoding="utf-8")
