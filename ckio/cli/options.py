"""The options that commands share: how costs, planners and plans are given in words."""

import functools
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from ckio.chain import COSTS, Chain
from ckio.cli import console
from ckio.cli.files import FILE, read_text
from ckio.cli.models import Settings, costs
from ckio.errors import BadInput
from ckio.platforms import Option, Platform, is_paper_text, size
from ckio.registry import find
from ckio.schedule import Schedule

TEXT_COSTS: Final[Mapping[str, float | int]] = {
    "advance": 1.0,
    "record": 0.0,
    "reverse": 0.0,
    "restart": 1,
    "tape": 1,
    "adjoint": 1,
}
"""What paper 004's text form takes for granted: a checkpoint is one byte, so capacity is slots."""

MOST_BYTES: Final = 2**63 - 1
"""Bytes are counted in 64 bits."""

MOST_STEPS: Final = 2**31 - 1
"""The schedule of more would take some 100 GB."""


def typed(text: str, /) -> Option:
    """A whole number, a number, true or false, or the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _size(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
    """Sizes in bytes, one or several."""
    if value is None or isinstance(value, tuple):
        return value and tuple(_size(_context, _option, one) for one in value)
    try:
        nbytes = size(value)
    except BadInput as error:
        raise click.BadParameter(str(error)) from None
    if nbytes > MOST_BYTES:
        raise click.BadParameter(f"{value!r} is more than 8 EiB")
    return nbytes


def _settings(_context: click.Context, _option: click.Parameter, values: Any) -> Any:
    """A model's options by name; of two with one name the last counts."""
    settings = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        settings[name] = typed(text)
    return settings


def size_option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """An option for bytes."""
    return click.option(*names, metavar="SIZE", callback=_size, **attributes)


settings_option = click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", callback=_settings,
    help="option of the model; may be repeated",
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="print one JSON object, no more")


def _all(*options: Any) -> Callable[[Any], Any]:
    """Several options in one."""
    return lambda command: functools.reduce(lambda made, add: add(made), options[::-1], command)


planner_options = _all(
    click.option("--planner", show_default="hrevolve", help="which planner"),
    click.option("--steps", type=int, help="steps of the chain"),
    click.option("--platform", type=FILE, metavar="FILE", help="TOML, or paper 004's text"),
    click.option("--on", metavar="LEVEL", help="the level of a one-level planner"),
    click.option("--period", type=int, help="steps between checkpoints of `periodic`"),
)
"""The options that choose a planner."""

cost_options = _all(
    click.option("--advance", type=float, help="seconds of a forward step"),
    click.option("--record", type=float, help="seconds of a forward step that keeps its tape"),
    click.option("--reverse", type=float, help="seconds of an adjoint step"),
    size_option("--restart", help="bytes of a restart checkpoint, e.g. 64MiB"),
    size_option("--tape", help="bytes of one step's tape"),
    size_option("--adjoint", help="bytes of an adjoint checkpoint"),
    click.option("--model", metavar="MODEL", help="take costs and sizes from a model"),
    settings_option,
)
"""The options that price and size the chain."""


@dataclass(frozen=True)
class Plan:
    """What the planning options of one command line come to."""

    planner: str
    chain: Chain
    platform: Platform
    call: Callable[[Chain, Platform], Schedule]

    def schedule(self, *, quiet: bool) -> tuple[Schedule, float]:
        """The schedule, and the seconds it took to make."""
        what = f"planning {self.chain.length} steps with {self.planner}"
        too_large = BadInput(f"{what} takes more memory than there is; plan fewer")
        if self.chain.length > MOST_STEPS:
            raise too_large
        with console.progress(what, quiet=quiet):
            start = time.perf_counter()
            try:
                schedule = self.call(self.chain, self.platform)
            except (MemoryError, OverflowError):
                raise too_large from None
            return schedule, time.perf_counter() - start


def plan_of(
    *,
    planner: str | None,
    steps: int | None,
    platform: Path | None,
    on: str | None,
    period: int | None,
    model: str | None = None,
    settings: Settings,
    quiet: bool,
    **given: float | int | None,
) -> Plan:
    """The plan that the options ask for; raises BadInput where they do not fit together."""
    if steps is None:
        raise BadInput("--steps is missing: the number of steps of the chain")
    if platform is None:
        raise BadInput("--platform is missing: a file from `ckio calibrate`, or paper 004's text")
    if settings and model is None:
        raise BadInput("--set gives options to a model: give --model as well")
    text = read_text(platform)
    machine = Platform.loads(text, source=str(platform))
    call = planner_call(planner or "hrevolve", on=on, period=period)
    values = dict(_known_costs(text, machine, platform, model, settings, quiet=quiet))
    values |= {name: value for name, value in given.items() if value is not None}
    missing = [f"--{name}" for name in COSTS if name not in values]
    if missing:
        raise BadInput(
            f"{platform}: no model costs in it; give --model, or {', '.join(missing)} as well"
        )
    chain = Chain(steps=steps, **values)  # type: ignore[arg-type]
    if is_paper_text(text):
        machine = replace(machine, working_memory=chain.tape)
    return Plan(planner or "hrevolve", chain, machine, call)


def _known_costs(
    text: str, machine: Platform, path: Path, model: str | None, settings: Settings, *, quiet: bool
) -> Mapping[str, float | int]:
    """Seconds and bytes that need not be given: a model's, or those of paper 004's text."""
    if model is not None:
        chain = costs(model, settings, machine, quiet=quiet)
    elif is_paper_text(text):
        return TEXT_COSTS
    elif len(machine.models) == 1:
        (chain,) = machine.models.values()
    elif machine.models:
        names = "; ".join(machine.models)
        raise BadInput(f"{path}: it knows the costs of several models ({names}); choose by --model")
    else:
        return {}
    return {name: getattr(chain, name) for name in COSTS}


def planner_call(
    name: str, /, *, on: str | None = None, period: int | None = None
) -> Callable[[Chain, Platform], Schedule]:
    """A planner with its options; raises BadInput for an option that it does not have."""
    planner = find("planners", name)
    given = {"on": on, "period": period}
    options = {option: value for option, value in given.items() if value is not None}
    known = inspect.signature(planner).parameters
    for option in options:
        if option not in known:
            raise BadInput(f"planner {name!r} has no option --{option}")
    return functools.partial(planner, **options)
