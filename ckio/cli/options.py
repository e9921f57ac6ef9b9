"""The options that several commands share, in groups, and help that ends with an example."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from ckio.cli.files import INPUT
from ckio.errors import BadInput
from ckio.platform import Option, size
from ckio.platform.readable import duration
from ckio.schedule.policy import AUTO, policy_of

MOST_BYTES: Final = 2**63 - 1
"""Bytes are counted in 64 bits."""

COSTS_GROUP: Final = "Costs and sizes of the chain"
OVERLAP_GROUP: Final = "Overlap of I/O with computation"
PLANNER_GROUP: Final = "Options of single planners"
PAPERS_GROUP: Final = "To reproduce papers"

Rows = Sequence[tuple[str, str]]


# Help


class GroupedOption(click.Option):
    """An option that the help of a command lists under the title of its group."""

    def __init__(self, *arguments: Any, group: str = "", **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.group = group


class ExampleCommand(click.Command):
    """A command whose help has its options in groups, and ends with an example.

    Attributes
    ----------
    example : str
        A command line that works where the examples of earlier commands have been typed.
    sections : callable, optional
        Returns what else is listed after the options: titles, each with rows of two columns.
    """

    def __init__(
        self,
        *arguments: Any,
        example: str,
        sections: Callable[[], dict[str, Rows]] = dict,
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.example, self.sections = example, sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usual options first, then each group in the order of the options."""
        groups: dict[str, list[tuple[str, str]]] = {"": []}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None:
                group = parameter.group if isinstance(parameter, GroupedOption) else ""
                groups.setdefault(group, []).append(row)
        for title in sorted(groups, key=lambda title: title == PAPERS_GROUP):  # that is the last
            with formatter.section(title or "Options"):
                formatter.write_dl(groups[title])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what else there is to know, and the example."""
        del ctx
        for title, rows in self.sections().items():
            with formatter.section(title):
                formatter.write_dl(rows)
        with formatter.section("Example"):
            for line in self.example.splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def with_example(example: str, /, **attributes: Any) -> Callable[[Any], ExampleCommand]:
    """Return what makes a command of a function, whose help ends with this example."""
    return click.command(cls=ExampleCommand, example=example, **attributes)


def option(*names: str, group: str = "", **attributes: Any) -> Callable[[Any], Any]:
    """Return an option, which is listed with its group."""
    return click.option(*names, cls=GroupedOption, group=group, **attributes)


def together(*options: Any) -> Callable[[Any], Any]:
    """Return several options as one decorator, in their order."""
    return lambda function: functools.reduce(
        lambda decorated, add: add(decorated), options[::-1], function
    )


# Values in words


def typed(text: str, /) -> Option:
    """Return a whole number, a number, true or false, or the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def read_by(read: Callable[[str], Any], /, hint: str = "") -> Callable[..., Any]:
    """Return a callback that reads the words of an option, and says which option is wrong."""

    def callback(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
        if value is None or isinstance(value, tuple):
            return value and tuple(callback(_context, _option, one) for one in value)
        try:
            return read(value)
        except BadInput as error:
            raise click.BadParameter(f"{error}{hint}") from None

    return callback


def _bytes(text: str) -> int:
    nbytes = size(text)
    if nbytes > MOST_BYTES:
        raise BadInput(f"{text!r} is more than 8 EiB")
    return nbytes


def _settings(_context: click.Context, _option: click.Parameter, values: Any) -> Any:
    """Return a model's options by name; of two with one name the last counts."""
    settings: dict[str, Option] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        settings[name] = typed(text)
    return settings


def size_option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Return an option for bytes."""
    return option(*names, metavar="SIZE", callback=read_by(_bytes), **attributes)


def duration_option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Return an option for a time span."""
    return option(*names, metavar="TIME", callback=read_by(duration), **attributes)


# Options


json_option = option("--json", "as_json", is_flag=True, help="print one JSON object, no more")

settings_option = option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", callback=_settings,
    help="option of the model; may be repeated",
)  # fmt: skip

overlap_option = option(
    "--overlap", metavar="[POLICY]", is_flag=False, flag_value=AUTO, group=OVERLAP_GROUP,
    callback=read_by(policy_of),
    help="auto (also without a word: whatever takes least), none, all, or"
    " write_behind=N,read_ahead=N[,horizon=SECONDS], where N may be all  [default: as the schedule"
    " was planned; of a plan, auto where that was measured on all far levels]",
)  # fmt: skip
effort_option = option(
    "--effort", type=click.IntRange(1, 3), metavar="1|2|3", group=OVERLAP_GROUP,
    help="how long --overlap auto searches for a better plan: 1, a quick answer; 3, the best"
    "  [default: 2]",
)  # fmt: skip

by_variable_option = option(
    "--by-variable", is_flag=True, help="store each variable of a state only where it is needed"
)

planner_options = together(
    option("--steps", type=int, help="steps of the chain"),
    option(
        "--platform", type=INPUT, metavar="FILE",
        help="what storage costs here: a file of `ckio calibrate`",
    ),
    option("--planner", metavar="NAME", help="which planner  [default: auto, the best of all]"),
    option("--on", metavar="LEVEL", group=PLANNER_GROUP, help="the level of a one-level planner"),
    option("--near", metavar="LEVEL", group=PLANNER_GROUP, help="the nearer of two levels"),
    option("--far", metavar="LEVEL", group=PLANNER_GROUP, help="the farther of two levels"),
    option(
        "--period", type=int, group=PLANNER_GROUP,
        help="steps between checkpoints of a periodic planner",
    ),
    option(
        "--insist", is_flag=True, default=None, group=PLANNER_GROUP,
        help="plan a long chain without numba, slowly",
    ),
    option(
        "--reread", is_flag=True, default=None, group=PAPERS_GROUP,
        help="two-level: read the checkpoint of a block again and again",
    ),
    option(
        "--certify", is_flag=True, default=None, group=PAPERS_GROUP,
        help="periodic-disk-revolve: find the period by search, not in closed form",
    ),
)  # fmt: skip
"""The options that choose a planner; those after `--planner` are its own, if it has them."""

cost_options = together(
    option(
        "--model", metavar="MODEL", group=COSTS_GROUP, help="take costs and sizes from a model"
    ),
    option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE", callback=_settings,
        group=COSTS_GROUP, help="option of the model; may be repeated",
    ),
    option("--advance", type=float, group=COSTS_GROUP, help="seconds of a forward step"),
    option(
        "--record", type=float, group=COSTS_GROUP,
        help="seconds of a forward step that keeps its tape",
    ),
    option("--reverse", type=float, group=COSTS_GROUP, help="seconds of an adjoint step"),
    size_option(
        "--restart", group=COSTS_GROUP,
        help="bytes of a restart checkpoint: 64MiB (or 64M), 64MB, 6.4e7",
    ),
    size_option("--tape", group=COSTS_GROUP, help="bytes of one step's tape"),
    size_option("--adjoint", group=COSTS_GROUP, help="bytes of an adjoint checkpoint"),
    option(
        "--costs", type=INPUT, metavar="FILE", group=COSTS_GROUP,
        help="costs that differ: a table with columns of these names, a line for each step",
    ),
)  # fmt: skip
"""The options that price and size the chain."""
