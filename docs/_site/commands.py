"""The page of commands on the site: the help of every command, as the commands print it."""

from typing import Any, Final

import click

from ckio.cli.entry import COMMANDS, cli
from ckio.cli.options import HELP_ALL

_WIDTH = 92

PAGE: Final = "commands.md"
"""Where the navigation has the page, which is made when the site is built."""

IN_PYTHON = {
    "demo": ("Job",),
    "calibrate": ("jobs.models.measured", "calibrate"),
    "check": ("model.check.check_model",),
    "analyze": ("jobs.analyzing.model_figures",),
    "plan": ("jobs.planning.plan_of", "plan", "jobs.sweeping.sweep"),
    "simulate": ("simulate", "sim.ranks.sharing.simulate_ranks"),
    "run": ("Job",),
    "compare": ("compare",),
    "show": ("render", "report.pictures.draw", "report.page.page", "report.trace.trace"),
    "inspect": ("jobs.leftovers.find", "jobs.leftovers.clean"),
}
"""The functions of the library, below `ckio`, that do what each command does."""

_HEAD = """\
# The command line

Everything that a command does is also a call of the library, as the table below says. The help of
each command ends with an example. In this order, the examples work in an empty directory. All
commands but `show` take `--json` and then print one object on one line. Errors are one line on
stderr; [batch jobs](batch_jobs.md#exit-status) lists the exit statuses.

"""


def on_files(files: Any, *, config: Any) -> Any:
    """Add the page to the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=page()))
    return files


def page() -> str:
    """The text of the page: a table of commands, and a section for each."""
    with click.Context(cli, info_name="ckio") as context:
        rows = (
            f"| [`{name}`](#ckio-{name}) | {line} | {_calls(name)} |\n"
            for name, line in COMMANDS.items()
        )
        sections = (
            f"## ckio {name}\n\n```text\n{_help(context, name)}\n```\n" for name in COMMANDS
        )
        head = "| command | | in Python, below `ckio` |\n|---|---|---|\n"
        return f"{_HEAD}{head}{''.join(rows)}\n" + "\n".join(sections)


def _calls(name: str) -> str:
    return ", ".join(f"`{function}`" for function in IN_PYTHON[name])


def _help(parent: click.Context, name: str) -> str:
    command = cli.get_command(parent, name)
    if command is None:
        raise KeyError(name)
    told = {"terminal_width": _WIDTH, "max_content_width": _WIDTH, "help_option_names": ["--help"]}
    with click.Context(command, info_name=name, parent=parent, **told) as context:
        context.meta[HELP_ALL] = True
        return command.get_help(context)
