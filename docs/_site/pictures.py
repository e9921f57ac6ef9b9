"""The pictures of the pages: schedules that ckio plans, and draws into docs/pictures.

    python docs/_site/write.py      draws them anew, after a change of the code

A page shows one by `![what it shows](pictures/NAME.svg)`. On the site it becomes a part of the
page, so that it follows the page's light and dark scheme.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from ckio import Affine, Chain, Flow, Level, Overlap, Platform, Schedule, Step, Timeline, simulate
from ckio.actions.variables import Variables
from ckio.analysis import lower
from ckio.jobs.planning import plan_of
from ckio.jobs.sweeping import sweep
from ckio.planners import auto, hrevolve, mixed, online, recompute_all, revolve, store_all
from ckio.planners.recovery import recover, with_adjoint_checkpoints
from ckio.report.pictures import (
    STYLE,
    Picture,
    PlotAxis,
    over_memory,
    resources,
    spacetime,
    storage,
    sweeps,
)
from ckio.report.pictures.svg import DARK, LIGHT
from ckio.schedule.machine import Machine

HERE: Final = Path(__file__).parent
MB: Final = 1_000_000
ALONE: Final = Overlap()
BEHIND: Final = Overlap(write_behind=None, read_ahead=None)

IMAGE: Final = re.compile(r'<p><img alt="([^"]*)" src="[^"]*pictures/([\w-]+)\.svg" ?/?></p>')


@dataclass(frozen=True)
class Case:
    """A schedule on a platform, and the policy with which it is simulated."""

    schedule: Schedule
    platform: Platform
    overlap: Overlap = ALONE

    @property
    def timeline(self) -> Timeline:
        """When everything happens."""
        return simulate(self.schedule, self.platform, overlap=self.overlap)

    def steps(self) -> Picture:
        """Steps across, time down."""
        return spacetime(self.timeline, self.schedule.chain, self.platform)

    def work(self, until: float = 0.0) -> Picture:
        """Who works when."""
        return resources(self.timeline, self.platform, self._axis(until))

    def stored(self, until: float = 0.0) -> Picture:
        """How full each level is."""
        return storage(self.timeline, self.schedule.chain, self.platform, self._axis(until))

    def moving(self) -> Picture:
        """Step number over time."""
        return sweeps(self.timeline, self.schedule.chain, self.platform, self._axis(0.0))

    def _axis(self, until: float) -> PlotAxis:
        return PlotAxis(max(until, self.timeline.makespan))


def chain(steps: int, **costs: float) -> Chain:
    """Steps of one second, whose checkpoints take 8 MB each."""
    seconds = {"advance": 1.0, "record": 1.2, "reverse": 2.5} | costs
    return Chain(steps=steps, restart=8 * MB, tape=8 * MB, adjoint=8 * MB, **seconds)


def level(name: str, slots: int | None, seconds: float) -> Level:
    """Room for so many of those checkpoints, each of which takes so long to write or to read."""
    cost = Affine(seconds)
    return Level(name=name, capacity=slots and slots * 8 * MB, write=cost, read=cost)


def memory(slots: int, tapes: int = 1) -> Platform:
    """Slots in memory alone, and room for the tapes of so many steps."""
    return Platform((level("ram", slots, 0.02),), working_memory=tapes * 8 * MB)


def two_levels(slots: int, far: int | None, seconds: float) -> Platform:
    """A few slots in memory, and more where they cost something."""
    return Platform((level("ram", slots, 0.02), level("nvme", far, seconds)), 8 * MB)


def everything() -> Case:
    """All tapes at once."""
    platform = memory(1, tapes=10)
    return Case(store_all(chain(10), platform), platform)


def nothing() -> Case:
    """x_0 alone."""
    return Case(recompute_all(chain(10), memory(1)), memory(1))


def binomial() -> Case:
    """Three slots, and as many steps as they allow with each advanced over twice."""
    return Case(revolve(chain(10), memory(3)), memory(3))


def hierarchical() -> Case:
    """Two slots in memory, and a far level."""
    platform = two_levels(2, 20, 0.8)
    return Case(hrevolve(chain(30), platform), platform)


def tapes() -> Case:
    """The same machine, where tapes are stored too."""
    platform = two_levels(2, 20, 0.8)
    return Case(mixed(chain(30), platform), platform)


def endless() -> Case:
    """Forward without knowing the end."""
    return Case(online(chain(30), two_levels(4, None, 0.8)), two_levels(4, None, 0.8))


def behind(overlap: Overlap) -> Case:
    """A far level whose transfers take as long as two steps."""
    platform = two_levels(4, 20, 2.0)
    return Case(hrevolve(chain(40), platform), platform, overlap)


@cache
def whole() -> Case:
    """A run that stores its adjoint now and then."""
    platform = two_levels(2, 20, 0.8)
    smaller = two_levels(2, 18, 0.8)  # two slots are for adjoints
    plan = hrevolve(chain(30), smaller)
    return Case(with_adjoint_checkpoints(plan, platform, 45.0, level=1), platform)


@cache
def killed() -> Case:
    """The same, up to an action in the middle of its way back."""
    case = whole()
    number = len(case.schedule.actions) * 3 // 5
    return replace(case, schedule=replace(case.schedule, actions=case.schedule.actions[:number]))


def resumed() -> Case:
    """What a new process does with what is left on the far level."""
    plan, platform = killed().schedule, killed().platform
    machine = Machine(plan.chain, platform)
    for action in plan.actions:
        machine.apply(action)
    left = ((), tuple(machine.stored[1]))
    return Case(recover(plan.chain, platform, left, level=1, every=45.0), platform)


def whole_states() -> Case:
    """States of three arrays, stored whole."""
    return Case(hrevolve(chain(24), memory(6)), memory(6))


def by_variable() -> Case:
    """The same array by array: one of them never changes, and one is dead between steps."""
    out = {"zeta", "flux"}
    flow = Step(Flow({"zeta", "depth"}, out, out), record=Flow({"zeta", "depth"}, out, out))
    sizes = {"zeta": 3 * MB, "flux": 3 * MB, "depth": 2 * MB}
    case = whole_states()
    variables = Variables(sizes, flow, seed={"zeta"})
    return replace(case, schedule=lower(case.schedule, variables, platform=case.platform))


@cache
def tour() -> Case:
    """The tour's plan, for the machine on which it was made."""
    platform = Platform.loads((HERE / "tour.toml").read_text(encoding="utf-8"))
    return Case(auto(platform.models["ocean.py"].with_steps(200), platform), platform)


View: TypeAlias = Callable[[Case], Picture]

PICTURES: Final[dict[str, tuple[Callable[[], Case], View]]] = {
    "everything": (everything, Case.steps),
    "nothing": (nothing, Case.steps),
    "binomial": (binomial, Case.steps),
    "hierarchical": (hierarchical, Case.steps),
    "hierarchical-stored": (hierarchical, Case.stored),
    "tapes": (tapes, Case.steps),
    "endless": (endless, Case.steps),
    "alone": (partial(behind, ALONE), Case.work),
    "behind": (partial(behind, BEHIND), lambda case: case.work(behind(ALONE).timeline.makespan)),
    "killed": (killed, Case.steps),
    "resumed": (resumed, Case.steps),
    "whole-states": (whole_states, Case.stored),
    "by-variable": (by_variable, Case.stored),
    "tour-steps": (tour, Case.steps),
    "tour-stored": (tour, Case.stored),
    "tour-work": (tour, Case.work),
    "tour-sweeps": (tour, Case.moving),
}
"""By name: of what, and which picture of it."""


def memory_of_the_tour() -> Picture:
    """The tour's chain with more memory and with less."""
    path = HERE / "tour.toml"
    return over_memory(sweep(plan_of(platform=path, model="ocean.py", steps=200)).curve())


CURVES: Final = {"memory": memory_of_the_tour}
"""Pictures of more than one schedule."""

NAMES: Final = (*PICTURES, *CURVES)


@cache
def picture(name: str, /) -> Picture:
    """One of them, drawn once however many pages show it."""
    if name in CURVES:
        return CURVES[name]()
    case, view = PICTURES[name]
    return view(case())


def style() -> str:
    """How pictures look on the site, whose readers choose between light and dark."""
    schemes = {"default": LIGHT, "slate": DARK}
    chosen = (
        f'[data-md-color-scheme="{name}"] .picture {{\n{is_}\n}}\n' for name, is_ in schemes.items()
    )
    return STYLE + "".join(chosen)


def on_files(files: Any, *, config: Any) -> Any:
    """Add the style of the pictures."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "stylesheets/pictures.css", content=style()))
    return files


def on_page_content(html: str, *, page: Any, config: Any, files: Any) -> str:
    """Put the pictures into the page, each with what it shows below it."""
    del config, files, page
    return IMAGE.sub(_figure, html)


def _figure(image: re.Match[str]) -> str:
    words, name = image.groups()
    return (
        f'<figure class="timeline"><div>{picture(name).element()}</div>'
        f"<figcaption>{words}</figcaption></figure>"
    )
