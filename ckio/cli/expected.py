"""What failures do to a run, for people and for scripts: a table, or the figures of `--json`."""

import math
from dataclasses import dataclass
from typing import Any

from ckio.cli import console
from ckio.pictures.words import seconds_text
from ckio.sim.failures import QUANTILES, Tried, best


@dataclass(frozen=True)
class Found:
    """What failures do to a run.

    Attributes
    ----------
    mean : float
        Seconds between two failures, on the average; infinite where there is none.
    level : str or None
        Where the adjoint is stored; None where no level keeps it.
    young, daly : float
        Their intervals, in seconds; infinite where the adjoint is not stored.
    tried : tuple of Tried
        Ascending intervals, the run's own among them.
    """

    mean: float
    level: str | None
    young: float
    daly: float
    tried: tuple[Tried, ...]


def figures(found: Found, /) -> dict[str, Any]:
    """What `--json` says of failures: seconds, but for counts and for the part that is redone."""
    return {
        "mtbf": found.mean,
        "young": found.young,
        "daly": found.daly,
        "best": best(found.tried).every,
        "level": found.level,
        "intervals": [_figures(one) for one in found.tried],
    }


def _figures(one: Tried) -> dict[str, Any]:
    outcomes, expected = one.outcomes, one.outcomes.expected
    return {
        "every": one.every,
        "adjoints": one.adjoints,
        "planned": outcomes.planned,
        "expected": expected.seconds,
        "error": expected.error,
        "quantiles": {
            f"{share:.0%}": seconds
            for share, seconds in zip(QUANTILES, outcomes.quantiles(), strict=True)
        },
        "trajectories": len(outcomes.makespan),
        "failures": float(outcomes.failures.mean()),
        "restarting": float(outcomes.restarting.mean()),
        "redone": outcomes.share_redone,
        "plans": outcomes.plans,
    }


def show(found: Found, /) -> None:
    """The table of the intervals that were tried, and the best beside the estimates."""
    runs = len(found.tried[0].outcomes.makespan)
    often = f"one in {seconds_text(found.mean)} on the average"
    console.echo(
        f"failures: {often if found.mean < math.inf else 'none'};"
        f" {runs} run{'s' * (runs > 1)}, makespans in seconds\n"
    )
    spread = QUANTILES if runs > 1 else ()
    header = ["adjoint stored every", "times", "no failure", "expected"]
    header += ["±"] * bool(spread) + [f"{share:.0%}" for share in spread]
    rows = [_row(one) for one in found.tried]
    bold = [found.tried.index(best(found.tried))]
    console.print_table("", [*header, "failures", "redone"], rows, bold=bold)
    if found.level is None:
        console.echo("the adjoint is not stored: no durable level has room for two of them")
    elif len(found.tried) > 1:
        console.echo(_said(found, found.level))


def _row(one: Tried) -> list[str]:
    outcomes, expected = one.outcomes, one.outcomes.expected
    row = [
        seconds_text(one.every) if one.adjoints else "never",
        f"{one.adjoints}",
        f"{outcomes.planned:.6g}",
        f"{expected.seconds:.6g}",
    ]
    if len(outcomes.makespan) > 1:
        row += [f"{expected.error:.3g}", *(f"{seconds:.6g}" for seconds in outcomes.quantiles())]
    return [*row, f"{outcomes.failures.mean():.3g}", f"{outcomes.share_redone:.1%}"]


def _said(found: Found, level: str) -> str:
    """The best interval in words, and by how much it is better than Daly's."""
    least = best(found.tried)
    often = f"every {seconds_text(least.every)}" if least.adjoints else "never"
    words = f"best of these: stored {often} on {level}"
    nearest = min(found.tried, key=lambda one: abs(one.every - found.daly))
    if nearest is not least:
        saved = least.outcomes.less_than(nearest.outcomes)
        error = f" ± {saved.error:.2g}" if math.isfinite(saved.error) else ""
        words += f", {saved.seconds:.3g}{error} s less than at Daly's interval"
    return f"{words}; Daly's is {seconds_text(found.daly)}, Young's {seconds_text(found.young)}"
