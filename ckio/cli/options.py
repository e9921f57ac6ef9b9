"""Command-line options that several commands share, and the layout of the help texts."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from ckio.cli.files import INPUT
from ckio.errors import BadInput
from ckio.platform import Option, size
from ckio.platform.readable import duration, typed
from ckio.schedule.policy import AUTO, policy_of

MOST_BYTES: Final = 2**63 - 1
"""The largest size that an option accepts, in bytes: the largest signed 64-bit integer."""

COSTS_GROUP: Final = "Costs and sizes of the time steps"
OVERLAP_GROUP: Final = "Overlap of I/O with computation"

Rows = Sequence[tuple[str, str]]


# Help


class GroupedOption(click.Option):
    """A command-line option that the help text lists under the title of its group."""

    def __init__(self, *arguments: Any, group: str = "", **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.group = group


class ExplainedArgument(click.Argument):
    """A positional argument with an explanation, which the help text lists before the options."""

    def __init__(self, *arguments: Any, explanation: str, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.explanation = explanation

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the name and the explanation. Before version 8.5, click lists no arguments."""
        del ctx
        return self.human_readable_name, self.explanation


class ExampleCommand(click.Command):
    """A command whose help text lists its options in groups and ends with an example.

    Attributes
    ----------
    example : str
        A command line. It works in a directory in which the examples of the commands before it
        (in the order of `ckio --help`) have been run.
    sections : callable, optional
        Returns further lists for the end of the help text: from the title of each list to its rows,
        which are pairs of a name and its explanation.
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
        """Write the options without a group first, then the groups in the order of the options."""
        groups: dict[str, list[tuple[str, str]]] = {"": []}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None:
                group = parameter.group if isinstance(parameter, GroupedOption) else ""
                groups.setdefault(group, []).append(row)
        for title, rows in groups.items():
            with formatter.section(title or "Options"):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lists of `sections`, and then the example."""
        del ctx
        for title, rows in self.sections().items():
            with formatter.section(title):
                formatter.write_dl(rows)
        with formatter.section("Example"):
            for line in self.example.splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def with_example(example: str, /, **attributes: Any) -> Callable[[Any], ExampleCommand]:
    """Return a decorator that makes a function a command; its help text ends with this example."""
    return click.command(cls=ExampleCommand, example=example, **attributes)


def argument(name: str, explanation: str, /, **attributes: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds a positional argument with this explanation."""
    return click.argument(name, cls=ExplainedArgument, explanation=explanation, **attributes)


def option(*names: str, group: str = "", **attributes: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds an option; the help text lists it in this group."""
    return click.option(*names, cls=GroupedOption, group=group, **attributes)


def together(*options: Any) -> Callable[[Any], Any]:
    """Return one decorator that adds several options, in this order."""
    return lambda function: functools.reduce(
        lambda decorated, add: add(decorated), options[::-1], function
    )


# Values of options, which are read from text


def read_by(read: Callable[[str], Any], /, hint: str = "") -> Callable[..., Any]:
    """Return a callback that converts the text of an option by `read`.

    If `read` raises BadInput, the error that the user sees names the option and ends with `hint`.
    """

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
        raise BadInput(f"{text!r} is more than 8 EiB, the largest size; give a smaller one")
    return nbytes


def _settings(_context: click.Context, _option: click.Parameter, values: Any) -> Any:
    """Return the options of a model by name; if a name occurs twice, the last value counts."""
    settings: dict[str, Option] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE, e.g. grid=64")
        settings[name] = typed(text)
    return settings


def size_option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds an option whose value is a size, converted to bytes."""
    return option(*names, metavar="SIZE", callback=read_by(_bytes), **attributes)


def duration_option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds an option whose value is a time span, converted to seconds."""
    return option(*names, metavar="TIME", callback=read_by(duration), **attributes)


# Options


json_option = option(
    "--json", "as_json", is_flag=True,
    help="Print the result as one line of JSON instead of text.",
)  # fmt: skip
_SETTINGS_HELP: Final = "Set an option of the model, e.g. grid=64. May be repeated."

settings_option = option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", callback=_settings,
    help=_SETTINGS_HELP,
)  # fmt: skip

overlap_option = option(
    "--overlap", metavar="[POLICY]", is_flag=False, flag_value=AUTO, group=OVERLAP_GROUP,
    callback=read_by(policy_of),
    help="Transfer checkpoints while the model computes. POLICY is none; all; auto, the fastest"
    " (also if POLICY is left out); or write_behind=N,read_ahead=N[,horizon=SECONDS], where N is a"
    " number of checkpoints or all.  [default: the policy of the schedule; for a new plan auto, if"
    " `ckio calibrate --model` measured overlap, else none]",
)  # fmt: skip

by_variable_option = option(
    "--by-variable",
    is_flag=True,
    help="Store each array of the state separately, and only when it is needed, instead of whole"
    " states.",
)

planner_options = together(
    option("--steps", type=int, metavar="N", help="Number of time steps."),
    option(
        "--platform", type=INPUT, metavar="FILE",
        help="Platform file: capacities and costs of the storage levels. `ckio calibrate` writes"
        " it.",
    ),
    option(
        "--planner", metavar="NAME",
        help="Planner that computes the schedule, with its options if any, e.g."
        " periodic:period=10,on=ram; `ckio plan --help` lists them.  [default: auto, the fastest"
        " schedule of all planners that apply]",
    ),
)  # fmt: skip
"""The options that choose a planner."""

cost_options = together(
    option(
        "--model", metavar="MODEL", group=COSTS_GROUP,
        help="Take the costs and sizes from this model: from the platform file, or measured now.",
    ),
    option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE", callback=_settings,
        group=COSTS_GROUP, help=_SETTINGS_HELP,
    ),
    option(
        "--advance", type=float, metavar="SECONDS", group=COSTS_GROUP,
        help="Time of one forward step, in seconds.",
    ),
    option(
        "--record", type=float, metavar="SECONDS", group=COSTS_GROUP,
        help="Time of one forward step that also writes its tape, in seconds.",
    ),
    option(
        "--reverse", type=float, metavar="SECONDS", group=COSTS_GROUP,
        help="Time of one adjoint step, in seconds.",
    ),
    size_option(
        "--restart", group=COSTS_GROUP,
        help="Size of a restart checkpoint (a state), in bytes or with a unit: 6.4e7, 64MB, 64MiB"
        " (or 64M).",
    ),
    size_option("--tape", group=COSTS_GROUP, help="Size of the tape of one step."),
    size_option("--adjoint", group=COSTS_GROUP, help="Size of an adjoint checkpoint."),
    option(
        "--costs", type=INPUT, metavar="FILE", group=COSTS_GROUP,
        help="Table of costs that differ from step to step: one line for each step, in columns"
        " with the names of these options.",
    ),
)  # fmt: skip
"""The options that give the cost of a time step and the sizes of checkpoints."""
