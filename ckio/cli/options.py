"""What the commands share: how platforms, costs, models and levels are given in words."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from ckio.chain import COSTS, Chain
from ckio.errors import BadInput
from ckio.platforms import Level, Option, Platform, is_paper_text, size
from ckio.registry import find, find_model, make
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

Settings = Mapping[str, Option]


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else size(value)
        except BadInput as error:
            self.fail(str(error), param, ctx)


class _Setting(click.ParamType[tuple[str, Option]]):
    name = "k=v"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, Option]:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, typed(text)


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


SIZE, SETTING = _Size(), _Setting()
FILE = click.Path(path_type=Path)


def read_text(path: Path, /) -> str:
    """The text of a file; BadInput where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not a text file") from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def write_text(path: Path, text: str, /) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from None


def read_platform(path: Path, /) -> Platform:
    """A platform from a file in either form."""
    return Platform.loads(read_text(path), source=str(path))


def identity(model: str, settings: Settings, /) -> str:
    """The name under which a model's costs are kept: the model and its options, sorted."""
    return " ".join([model, *(f"{name}={settings[name]}" for name in sorted(settings))])


def maker(model: str, settings: Settings, /) -> Callable[[], Any]:
    """What makes fresh instances of a model; its options are checked once, now."""
    factory = find_model(model)
    try:
        inspect.signature(factory).bind(**settings)
    except TypeError as error:
        raise BadInput(f"model {model!r}: {error}") from None
    return functools.partial(make, f"model {model!r}", factory, settings)


@dataclass(frozen=True)
class Plan:
    """What the planning options of one command line come to."""

    planner: str
    chain: Chain
    platform: Platform
    call: Callable[[Chain, Platform], Schedule]


def planner_options(command: Callable[..., Any], /) -> Callable[..., Any]:
    """The options that choose a planner."""
    for option in reversed(
        (
            click.option("--planner", default="hrevolve", show_default=True, help="which planner"),
            click.option("--steps", type=int, help="steps of the chain"),
            click.option("--platform", type=FILE, metavar="FILE", help="TOML, or paper 004's text"),
            click.option("--on", metavar="LEVEL", help="the level of a one-level planner"),
            click.option("--period", type=int, help="steps between checkpoints of `periodic`"),
        )
    ):
        command = option(command)
    return command


def cost_options(command: Callable[..., Any], /) -> Callable[..., Any]:
    """The options that price and size the chain."""
    for option in reversed(
        (
            click.option("--advance", type=float, help="seconds of a forward step"),
            click.option(
                "--record", type=float, help="seconds of a forward step that keeps its tape"
            ),
            click.option("--reverse", type=float, help="seconds of an adjoint step"),
            click.option("--restart", type=SIZE, help="bytes of a restart checkpoint"),
            click.option("--tape", type=SIZE, help="bytes of one step's tape"),
            click.option("--adjoint", type=SIZE, help="bytes of an adjoint checkpoint"),
            click.option("--model", metavar="MODEL", help="take costs and sizes from a model"),
            click.option(
                "--set", "settings", type=SETTING, multiple=True, help="option of the model"
            ),
        )
    ):
        command = option(command)
    return command


def plan_of(
    *,
    planner: str,
    steps: int | None,
    platform: Path | None,
    on: str | None,
    period: int | None,
    model: str | None = None,
    settings: tuple[tuple[str, Option], ...] = (),
    **costs: float | int | None,
) -> Plan:
    """The plan that the options ask for; raises BadInput where they do not fit together."""
    if steps is None:
        raise BadInput("--steps is missing: the number of steps of the chain")
    if platform is None:
        raise BadInput("--platform is missing: a file from `ckio calibrate`, or paper 004's text")
    text = read_text(platform)
    machine = Platform.loads(text, source=str(platform))
    if is_paper_text(text):
        known = TEXT_COSTS
    else:
        known = _model_costs(machine, platform, model, dict(settings))
    given = {name: value for name, value in costs.items() if value is not None}
    values = {**known, **given}
    missing = [f"--{name}" for name in COSTS if name not in values]
    if missing:
        raise BadInput(
            f"{platform}: no model costs in it; give --model, or {', '.join(missing)} as well"
        )
    chain = Chain(steps=steps, **values)  # type: ignore[arg-type]
    if is_paper_text(text):
        machine = replace(machine, working_memory=chain.tape)
    return Plan(planner, chain, machine, planner_call(planner, on=on, period=period))


def planner_call(
    name: str, /, *, on: str | None = None, period: int | None = None
) -> Callable[[Chain, Platform], Schedule]:
    """A planner with its options; raises BadInput for an option that it does not have."""
    planner = find("planners", name)
    options = {key: value for key, value in (("on", on), ("period", period)) if value is not None}
    known = inspect.signature(planner).parameters
    for option in options:
        if option not in known:
            raise BadInput(f"planner {name!r} has no option --{option}")
    return functools.partial(planner, **options)


def _model_costs(
    machine: Platform, path: Path, model: str | None, settings: Settings
) -> Mapping[str, float | int]:
    """Costs and sizes that the platform file knows of the model, or that are measured now."""
    if model is not None:
        name = identity(model, settings)
        chain = machine.models.get(name) or _measured(model, settings)
    elif len(machine.models) == 1:
        (chain,) = machine.models.values()
    elif machine.models:
        names = "; ".join(machine.models)
        raise BadInput(f"{path}: it knows the costs of several models ({names}); choose by --model")
    else:
        return {}
    return {name: getattr(chain, name) for name in COSTS}


def _measured(model: str, settings: Settings) -> Chain:
    from ckio.calibrate import measure_model

    return measure_model(maker(model, settings))


def parse_level(text: str, /, *, here: Path) -> Level:
    """A level from `NAME=BACKEND[:PLACE][,option=value]...`; a relative PLACE is made absolute.

    `capacity` is a size; everything else is an option of the backend, or of its codec
    (`codec=zstd`, `codec_level=3`).
    """
    match = re.fullmatch(r"([^=,]+)=([^:,]+)(?::([^,]*))?((?:,.*)?)", text)
    if not match:
        raise BadInput(f"--level {text!r} is not NAME=BACKEND[:PLACE][,option=value]...")
    name, backend, place, rest = match.groups()
    options: dict[str, Option] = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise BadInput(f"--level {text!r}: {part!r} is not option=value")
        options[option] = typed(value)
    capacity = options.pop("capacity", None)
    channel = str(options.pop("channel", ""))
    if place:
        options = {"path": str((here / place).absolute()), **options}
    return Level(
        name=name,
        backend=backend,
        capacity=None if capacity is None else size(str(capacity)),
        channel=channel,
        options=options,
    )
