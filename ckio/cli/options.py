"""The options that commands share: how costs and planners are given in words."""

import functools
from collections.abc import Callable
from typing import Any, Final

import click

from ckio.cli.files import INPUT
from ckio.errors import BadInput
from ckio.platform import Option, size
from ckio.platform.readable import duration
from ckio.schedule.policy import AUTO, POLICIES, Overlap

MOST_BYTES: Final = 2**63 - 1
"""Bytes are counted in 64 bits."""


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


def _overlap(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
    """A policy, or "auto"; None where none is given."""
    if value is None or value in POLICIES:
        return POLICIES.get(value)
    try:
        return Overlap.parse(value)
    except BadInput as error:
        raise click.BadParameter(f"{error}; nor is it auto, all, or none") from None


overlap_option = click.option(
    "--overlap", metavar="[POLICY]", callback=_overlap, is_flag=False, flag_value=AUTO,
    help="whether I/O overlaps with computation: auto (also without a word: whatever takes least),"
    " none, all, or write_behind=N,read_ahead=N[,horizon=SECONDS], where N may be all  [default:"
    " as the schedule was planned; of a plan, auto where that was measured on all far levels]",
)  # fmt: skip
effort_option = click.option(
    "--effort", type=click.IntRange(1, 3), metavar="1|2|3",
    help="how long --overlap auto searches for a better plan: 1, a quick answer; 3, the best"
    "  [default: 2]",
)  # fmt: skip


def duration_option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """An option for a time span."""

    def seconds(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else duration(value)
        except BadInput as error:
            raise click.BadParameter(str(error)) from None

    return click.option(*names, metavar="TIME", callback=seconds, **attributes)


json_option = click.option("--json", "as_json", is_flag=True, help="print one JSON object, no more")


def _all(*options: Any) -> Callable[[Any], Any]:
    """Several options in one."""
    return lambda command: functools.reduce(lambda made, add: add(made), options[::-1], command)


planner_options = _all(
    click.option(
        "--planner",
        metavar="NAME",
        help="which planner  [default: auto]",
    ),
    click.option("--steps", type=int, help="steps of the chain"),
    click.option("--platform", type=INPUT, metavar="FILE", help="TOML, or paper 004's text"),
    click.option("--on", metavar="LEVEL", help="the level of a one-level planner"),
    click.option("--near", metavar="LEVEL", help="the nearer level of a two-level planner"),
    click.option("--far", metavar="LEVEL", help="the farther level of a two-level planner"),
    click.option(
        "--reread", is_flag=True, default=None, help="two-level: read a block's checkpoint often"
    ),
    click.option(
        "--certify", is_flag=True, default=None, help="find a period by search, not in closed form"
    ),
    click.option("--period", type=int, help="steps between checkpoints of a periodic planner"),
    click.option(
        "--insist", is_flag=True, default=None, help="plan a long chain without numba, slowly"
    ),
)
"""The options that choose a planner; those after `--platform` are its own, if it has them."""

cost_options = _all(
    click.option("--advance", type=float, help="seconds of a forward step"),
    click.option("--record", type=float, help="seconds of a forward step that keeps its tape"),
    click.option("--reverse", type=float, help="seconds of an adjoint step"),
    size_option("--restart", help="bytes of a restart checkpoint: 64MiB (or 64M), 64MB, 6.4e7"),
    size_option("--tape", help="bytes of one step's tape"),
    size_option("--adjoint", help="bytes of an adjoint checkpoint"),
    click.option(
        "--costs",
        type=INPUT,
        metavar="FILE",
        help="costs that differ: a table with columns of these names, a line for each step",
    ),
    click.option("--model", metavar="MODEL", help="take costs and sizes from a model"),
    settings_option,
)
"""The options that price and size the chain."""
