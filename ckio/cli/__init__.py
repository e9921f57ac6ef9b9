"""The command line: strings in and out; everything it does is a call of the library."""

import importlib
import logging
import sys
from pathlib import Path
from typing import Final

import click

from ckio import __version__
from ckio.errors import BadInput, CkioError

COMMANDS: Final = {
    "demo": "The whole loop on a real model, nothing to configure.",
    "calibrate": "Measure this machine's storage levels and a model's steps.",
    "plan": "Make the schedule that is best for a chain on a platform.",
    "simulate": "Predict when every action of a schedule begins and ends.",
    "run": "Run a model's adjoint by a schedule, on real storage.",
    "compare": "Line up a predicted and a measured timeline.",
    "show": "Draw a schedule or a timeline.",
}
"""Each command is a module of this package; it is imported when it is called."""

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if ctx.command is self and "--help" in sys.argv[1:2]:
            # The overview needs one line of each command, not the command.
            return click.Command(cmd_name, short_help=COMMANDS[cmd_name])
        command: click.Command = importlib.import_module(f"ckio.cli.{cmd_name}").command
        return command


@click.group(
    cls=_Lazy,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="ckio", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Checkpoint I/O for adjoint computation: measure, plan, simulate, run, compare.

    Start with `ckio demo`. With --debug anywhere, errors come with their traceback.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: list[str] | None = None, /) -> None:
    """Run the command line and leave the process with its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    sys.path.insert(0, str(Path.cwd()))  # where people keep the MODULE of their model
    debug = "--debug" in given
    logging.basicConfig(format="ckio: %(message)s", level=logging.WARNING)
    try:
        status = cli.main(
            [word for word in given if word != "--debug"], prog_name="ckio", standalone_mode=False
        )
    except (CkioError, click.ClickException, click.Abort, KeyboardInterrupt, MemoryError) as error:
        if debug:
            raise
        status = _explain(error)
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        sys.stderr.close()
        status = FAILED
    sys.exit(status if isinstance(status, int) else 0)


def _explain(error: BaseException) -> int:
    """Say in one line what is wrong; returns the exit status."""
    match error:
        case click.ClickException():
            where = getattr(error, "ctx", None)
            name = where.command_path if where else "ckio"
            text, status = f"{name}: {error.format_message()}", BAD_INPUT
        case BadInput():
            text, status = f"ckio: {error}", BAD_INPUT
        case CkioError():
            text, status = f"ckio: {error}", FAILED
        case MemoryError():
            text, status = "ckio: out of memory; plan with less working memory or capacity", FAILED
        case _:
            text, status = "ckio: interrupted", INTERRUPTED
    click.echo(" ".join(text.split()), err=True)
    return status
