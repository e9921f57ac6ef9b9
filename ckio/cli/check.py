"""The command `ckio check`: test a model on its first steps."""

from dataclasses import asdict

import click

from ckio.cli import console
from ckio.cli.options import json_option, settings_option, with_example
from ckio.errors import RunFailed
from ckio.jobs.models import Settings, identity, maker
from ckio.model.check import check_model


@with_example("ckio check burgers")
@click.argument("model", help="Model to check.")
@settings_option
@click.option(
    "--steps", type=click.IntRange(1), metavar="N", default=5, show_default=True,
    help="Number of time steps.",
)  # fmt: skip
@json_option
def command(*, model: str, settings: Settings, steps: int, as_json: bool) -> None:
    """Test a model on its first steps, and find out why its gradient is wrong.

    MODEL is FILE.py:ATTRIBUTE, MODULE:ATTRIBUTE, FILE.py with one model in it, or a name that
    `ckio calibrate --help` lists. Each step is computed again in another model, from a checkpoint;
    nothing else than its state may change, and the controls must not. The adjoint of a step is
    tested by the dot-product test, for each pair of arrays. The answer names the step and the
    array, and the exit status is 1 if something is wrong. Use a small grid.
    """
    display = console.display(quiet=as_json)
    with display.progress(f"checking {model}"):
        check = check_model(maker(model, settings), steps=steps)
    if as_json:
        console.print_json(
            {"model": identity(model, settings), "verified": check.verified, **asdict(check)}
        )
    else:
        click.echo(str(check))
    if check.faults:
        fault = check.faults[0]
        raise RunFailed(
            f"model {model!r} is wrong: the {fault.check} test fails in step {fault.step}"
        )
