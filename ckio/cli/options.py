"""Command-line options that several commands share, and the layout of the help texts."""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from ckio.cli.files import INPUT
from ckio.errors import BadInput
from ckio.platform import Option, size
from ckio.platform.readable import duration, typed
from ckio.schedule.policy import AUTO, policy_of

Rows = Sequence[tuple[str, str]]

HELP_ALL: Final = "ckio.help_all"
"""The key of the context by which `--help-all` asks for all options."""


class ExampleCommand(click.Command):
    """A command whose help text ends with an example.

    Options with `hidden=True`, which few users need, are listed by `--help-all` only.

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
        if any(getattr(parameter, "hidden", False) for parameter in self.params):
            self.params.append(
                click.Option(
                    ["--help-all"], is_flag=True, is_eager=True, expose_value=False,
                    callback=_help_all, help="Show all options and exit.",
                )
            )  # fmt: skip

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options; after `--help-all`, the hidden ones in a list of their own."""
        titles = {False: "Options", True: "More options"}
        for hidden, title in titles.items():
            if hidden and not ctx.meta.get(HELP_ALL):
                continue
            rows = []
            for parameter in self.get_params(ctx):
                if isinstance(parameter, click.Option) and parameter.hidden == hidden:
                    visible = copy.copy(parameter)
                    visible.hidden = False
                    rows.append(visible.get_help_record(ctx))
            if rows:
                with formatter.section(title):
                    formatter.write_dl([row for row in rows if row is not None])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lists of `sections`, and then the example."""
        del ctx
        for title, rows in self.sections().items():
            with formatter.section(title):
                formatter.write_dl(rows)
        with formatter.section("Example"):
            for line in self.example.splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def _help_all(context: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked:
        context.meta[HELP_ALL] = True
        click.echo(context.get_help())
        context.exit()


def with_example(example: str, /, **attributes: Any) -> Callable[[Any], ExampleCommand]:
    """Return a decorator that makes a function a command; its help text ends with this example."""
    return click.command(cls=ExampleCommand, example=example, **attributes)


def together(*options: Any) -> Callable[[Any], Any]:
    """Return one decorator that adds several options, in this order."""
    return lambda function: functools.reduce(
        lambda decorated, add: add(decorated), options[::-1], function
    )


# Values of options, which are read from text


def read_by(read: Callable[[Any], Any], /) -> Callable[..., Any]:
    """Return a callback that converts the text of an option by `read`.

    If `read` raises BadInput, the error that the user sees names the option.
    """

    def callback(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else read(value)
        except BadInput as error:
            raise click.BadParameter(str(error)) from None

    return callback


def _settings(texts: tuple[str, ...]) -> dict[str, Option]:
    """Return the options of a model by name; if a name occurs twice, the last value counts."""
    settings: dict[str, Option] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadInput(f"{text!r} is not NAME=VALUE, e.g. grid=64")
        settings[name] = typed(value)
    return settings


def size_option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds an option whose value is a size, converted to bytes."""
    return click.option(*names, metavar="SIZE", callback=read_by(size), **attributes)


def duration_option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds an option whose value is a time span, converted to seconds."""
    return click.option(*names, metavar="TIME", callback=read_by(duration), **attributes)


# Options


json_option = click.option(
    "--json", "as_json", is_flag=True,
    help="Print the result as one line of JSON instead of text.",
)  # fmt: skip

settings_option = click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", callback=read_by(_settings),
    help="Set an option of the model, e.g. grid=64. May be repeated.",
)  # fmt: skip

overlap_option = click.option(
    "--overlap", metavar="[POLICY]", is_flag=False, flag_value=AUTO, callback=read_by(policy_of),
    help="Transfer checkpoints while the model computes. POLICY is none; all; auto, the fastest"
    " (also if POLICY is left out); or write_behind=N,read_ahead=N[,horizon=SECONDS], where N is a"
    " number of checkpoints or all.  [default: the policy of the schedule; for a new plan auto, if"
    " calibration measured overlap, else none]",
)  # fmt: skip

by_variable_option = click.option(
    "--by-variable", is_flag=True, hidden=True,
    help="Store each array of the state separately, and only when it is needed, instead of whole"
    " states. The model must declare which arrays its steps use; see `ckio analyze`.",
)  # fmt: skip

planner_options = together(
    click.option("--steps", type=int, metavar="N", help="Number of time steps."),
    click.option(
        "--platform", type=INPUT, metavar="FILE",
        help="Platform file: capacities and costs of the storage levels. `ckio calibrate` writes"
        " it.",
    ),
    click.option(
        "--planner", metavar="NAME",
        help="Planner that computes the schedule, with its options if any, e.g."
        " periodic:period=10,on=ram; `ckio plan --help` lists them.  [default: auto, the fastest"
        " schedule of all planners that apply]",
    ),
)  # fmt: skip
"""The options that choose a planner."""

cost_options = together(
    click.option(
        "--model", metavar="MODEL",
        help="Take the costs and sizes from this model: from the platform file, or measured now.",
    ),
    settings_option,
    click.option(
        "--advance", type=float, metavar="SECONDS", hidden=True,
        help="Time of one forward step, in seconds.",
    ),
    click.option(
        "--record", type=float, metavar="SECONDS", hidden=True,
        help="Time of one forward step that also writes its tape, in seconds.",
    ),
    click.option(
        "--record-only", type=float, metavar="SECONDS", hidden=True,
        help="Time to record the tape of a step whose next state is not needed, in seconds;"
        " by default that of --record.",
    ),
    click.option(
        "--reverse", type=float, metavar="SECONDS", hidden=True,
        help="Time of one adjoint step, in seconds.",
    ),
    size_option(
        "--restart", hidden=True,
        help="Size of a restart checkpoint (a state), in bytes or with a unit: 6.4e7, 64MB, 64MiB"
        " (or 64M).",
    ),
    size_option("--tape", hidden=True, help="Size of the tape of one step."),
    size_option("--adjoint", hidden=True, help="Size of an adjoint checkpoint."),
    click.option(
        "--costs", type=INPUT, metavar="FILE", hidden=True,
        help="Table of costs that differ from step to step: one line for each step, in columns"
        " with the names of these options.",
    ),
)  # fmt: skip
"""The options that give the cost of a time step and the sizes of checkpoints."""
