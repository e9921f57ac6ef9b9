"""`ckio simulate --ranks`: many ranks with one schedule, which share the bandwidth of levels."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.levels import say_lossy
from ckio.errors import BadInput
from ckio.platform import Platform
from ckio.platform.profile import Spread, parse_spread
from ckio.schedule import Schedule, makespan
from ckio.schedule.policy import Overlap
from ckio.sim.engine import simulate
from ckio.sim.ranks import Barrier, Ranks, Shared

if TYPE_CHECKING:
    from ckio.sim.ranks.sharing import RanksOutcome

_NAMES: Final = ("shared", "spread", "jitter", "barrier", "seed")
"""The options that say something of ranks, beside their number."""


def _shared(_context: click.Context, _option: click.Parameter, values: Any) -> Any:
    """Shared channels by name; none is named twice."""
    found: dict[str, Shared] = {}
    for value in values:
        try:
            name, shared = Shared.parse(value)
        except BadInput as error:
            raise click.BadParameter(str(error)) from None
        if name in found:
            raise click.BadParameter(f"{name} is given twice")
        found[name] = shared
    return found


def _spread(_context: click.Context, _option: click.Parameter, value: Any) -> Spread | None:
    try:
        return None if value is None else parse_spread(value)
    except BadInput as error:
        raise click.BadParameter(str(error)) from None


_OPTIONS: Final = (
    click.option(
        "--ranks",
        type=click.IntRange(1),
        metavar="N",
        help="simulate so many ranks, all with this schedule",
    ),
    click.option(
        "--shared",
        multiple=True,
        metavar="CHANNEL=BANDWIDTH[,collective]",
        callback=_shared,
        help="bytes per second of all ranks together, e.g. archive=100GB; may be repeated;"
        " collective: writes begin when all ranks have come",
    ),
    click.option(
        "--spread",
        metavar="DRAWN",
        callback=_spread,
        help="a factor on the computing of each rank: lognormal:SIGMA or quantiles:FACTOR,...",
    ),
    click.option(
        "--jitter", metavar="DRAWN", callback=_spread, help="one on each step of each rank"
    ),
    click.option(
        "--barrier",
        type=click.Choice([barrier.value for barrier in Barrier]),
        help="when all ranks wait for the slowest: never, after each step, or before each"
        " transfer on a shared channel",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0),
        help="which factors are drawn  [default: 0]",
    ),
)


def ranks_options(command: Callable[..., Any]) -> Any:
    """The options of `--ranks`; `ranks_of` takes them up."""
    return functools.reduce(lambda made, add: add(made), _OPTIONS[::-1], command)


def ranks_of(options: dict[str, Any], /) -> Ranks | None:
    """The ranks that the options ask for, which are taken out; None without `--ranks`.

    Raises BadInput where something is said of ranks, but not how many there are.
    """
    count = options.pop("ranks")
    given = {name: value for name in _NAMES if (value := options.pop(name)) not in (None, {})}
    if count is None:
        if given:
            raise BadInput(f"--{next(iter(given))} is for many ranks; say how many: --ranks")
        return None
    if "barrier" in given:
        given["barrier"] = Barrier(given["barrier"])
    return Ranks(count=count, **given)


def simulate_and_say(
    schedule: Schedule, platform: Platform, ranks: Ranks, overlap: Overlap, /, *, as_json: bool
) -> None:
    """Simulate many ranks, and print what comes of it as a table or as JSON.

    Raises BadInput as `simulate_ranks` does.
    """
    from ckio.sim.ranks.sharing import simulate_ranks
    from ckio.sim.ranks.stretches import is_shared

    transfers = ranks.count * int(is_shared(schedule, platform, ranks).sum())
    bar = console.progress("simulating", transfers, unit="transfers", quiet=as_json)
    with bar as tick:
        outcome = simulate_ranks(schedule, platform, ranks, overlap=overlap, watch=tick)
    alone = (
        simulate(schedule, platform, overlap=overlap).makespan
        if overlap
        else makespan(schedule, platform)
    )
    found = _found(outcome, alone)
    if overlap:
        found["overlap"] = str(overlap)
    if as_json:
        size = {"steps": schedule.chain.length, "actions": len(schedule), "ranks": ranks.count}
        console.print_json({**size, **found, "lossy": lossy(platform)})
        return
    console.echo(
        f"{ranks.count} ranks, {schedule.chain.length} steps, {len(schedule)} actions:"
        f" makespan {outcome.makespan:.6g} s, {alone:.6g} s for one alone"
        + (f"; with {overlap}\n" if overlap else "\n")
    )
    _print_tables(found)
    say_lossy(platform)


def _found(outcome: "RanksOutcome", alone: float) -> dict[str, Any]:
    """What is said of an outcome, in seconds and bytes."""
    return {
        "makespan": outcome.makespan,
        "alone": alone,
        "slowest": outcome.slowest,
        "finish": _over_ranks(outcome.finish),
        "waited": _over_ranks(outcome.waited),
        "channels": {
            name: {
                "bandwidth": use.bandwidth,
                "achieved": use.achieved,
                "bytes": use.nbytes,
                "busy": use.busy,
                "most": use.most,
                "slowed": _over_ranks(use.slowed),
            }
            for name, use in outcome.channels.items()
        },
    }


def _over_ranks(seconds: Any) -> dict[str, float]:
    """The least, the median and the most of all ranks."""
    least, median, most = np.quantile(seconds, (0.0, 0.5, 1.0)).tolist()
    return {"least": least, "median": median, "most": most}


def _print_tables(found: dict[str, Any]) -> None:
    rows = {"finish": found["finish"], "waited for others": found["waited"]}
    rows |= {f"slowed on {name}": use["slowed"] for name, use in found["channels"].items()}
    console.print_table(
        "",
        ["seconds of a rank", "least", "median", "most"],
        [[name, *(f"{value:.6g}" for value in of.values())] for name, of in rows.items()],
    )
    uses = [
        [
            name,
            *(f"{use[entry]:.4g}" for entry in ("bandwidth", "achieved", "bytes", "busy")),
            str(use["most"]),
        ]
        for name, use in found["channels"].items()
    ]
    if uses:
        header = ["shared channel", "bytes/s", "achieved", "bytes", "busy s", "most ranks at once"]
        console.print_table("", header, uses)
