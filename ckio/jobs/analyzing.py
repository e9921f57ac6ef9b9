"""Which arrays the checkpoints of a model must contain, and what this saves.

figures = model_figures("ckio.models.burgers:Burgers")           as `ckio analyze --json` prints
[array["name"] for array in figures["arrays"] if array["stored"] == "never"]
"""

from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from ckio.actions.variables import Step
from ckio.analysis.model_arrays import analyze, declaration, uses
from ckio.errors import BadInput
from ckio.jobs.display import QUIET, Display
from ckio.jobs.models import Settings, identity, maker, naming
from ckio.platform.readable import option


def model_figures(
    model: str,
    /,
    *,
    settings: Settings = MappingProxyType({}),
    steps: int | None = None,
    display: Display = QUIET,
) -> dict[str, Any]:
    """Return the arrays that checkpoints of a model must contain, as `ckio analyze --json` does.

    Parameters
    ----------
    model, settings : str, mapping
        The name of the model and its options, as for a run.
    steps : int, optional
        The number of steps, if only the first of the declared steps are to be analyzed.

    Raises
    ------
    BadInput
        If the model is unknown, or has fewer steps.
    RunFailed
        If a step of the model fails.
    """
    if steps is not None and steps < 1:
        raise BadInput(f"{option('steps', steps)}: a chain has at least 1 step")
    what, fresh = f"model {model!r}", maker(model, settings)
    with display.progress(f"watching {model}"), naming(f"{what}, watched"):
        arrays = analyze(fresh, steps=steps, what=what)
        wrong = list(arrays.contradictions())
    declared = arrays.declared
    unlike = wrong and declared is not None and isinstance(declared.steps, Step)
    return {
        "model": identity(model, settings),
        "source": "observed" if declared is None else "declared",
        "watched": arrays.watched,
        "contradictions": wrong,
        "unchanged": arrays.unchanged,
        "notes": list(arrays.notes()),
        "declaration": declaration(arrays) if declared is None or unlike else None,
        "arrays": list(map(asdict, uses(arrays, steps))),
        "checkpoints": {"whole": arrays.whole, "needed": arrays.needed},
    }
