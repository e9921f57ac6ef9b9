"""The directories of two runs, read for a comparison of the runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckio.errors import BadInput
from ckio.jobs.directory import MEASURED, PREDICTED, RESULT, manifest_in, read_sealed
from ckio.jobs.leftovers import is_run_directory
from ckio.jobs.request import Manifest
from ckio.jobs.result import VERDICTS, figures_in
from ckio.platform.readable import shown
from ckio.report.two_runs import RunSide
from ckio.schedule.text import Document, loads

_UNKNOWN = "unknown"


def sides_of(first: Path, second: Path, /) -> tuple[RunSide, RunSide]:
    """Return two runs that have ended; raise BadInput if a path is not the directory of one."""
    names = first.name, second.name
    if names[0] == names[1] or not all(names):
        names = str(first), str(second)
    if names[0] == names[1]:
        names = "A", "B"
    return _side(first, shown(names[0])), _side(second, shown(names[1]))


def check_ended(path: Path, /) -> None:
    """Raise BadInput if a directory does not belong to a run that has ended."""
    if not is_run_directory(path):
        raise BadInput(
            f"{path}: not the directory of a run, because it has no manifest.json; give the"
            " directory that `ckio run --into` wrote"
        )
    if not (path / RESULT).is_file():
        raise BadInput(
            f"{path}: its run has not ended, because there is no {RESULT} yet; finish it"
            " with `ckio run --resume`"
        )


def _side(path: Path, name: str) -> RunSide:
    check_ended(path)
    manifest = manifest_in(path)
    figures = figures_in(path)
    measured, predicted = _timeline(path / MEASURED), _timeline(path / PREDICTED)
    if measured.timeline is None or measured.platform is None or predicted.timeline is None:
        raise BadInput(
            f"{path}: its timelines are missing, because the files were edited; run the model again"
        )
    request = manifest.request
    settings = ", ".join(f"{key}={value}" for key, value in sorted(request.settings.items()))
    return RunSide(
        name=name,
        timeline=measured.timeline,
        chain=measured.schedule.chain,
        platform=measured.platform,
        facts=_facts(path, manifest, figures),
        problem={
            "model": str(request.model or _UNKNOWN),
            "settings": settings,
            "steps": f"{measured.schedule.chain.length:,}",
        },
        predicted=predicted.timeline.makespan,
        digest=str(figures["gradient_digest"]),
    )


def _facts(path: Path, manifest: Manifest, figures: Mapping[str, Any]) -> dict[str, str]:
    origin = figures.get("origin")
    known = origin if isinstance(origin, dict) else {}
    return {
        "directory": shown(path),
        "planner": str(figures["planner"]),
        "plan": str(figures.get("note", "")).partition(":")[0],
        "overlap": str(figures.get("overlap") or "none"),
        "forward steps": f"{figures['forward_steps']:,}",
        "gradient": VERDICTS[figures["verified"]],
        "ranks": str(manifest.ranks),
        "host": str(known.get("host", ""))[:80],
        "ended": str(known.get("when", _UNKNOWN)),
        "ckio": str(known.get("ckio", manifest.ckio)),
        "Python": str(known.get("python", _UNKNOWN)),
        "numpy": str(known.get("numpy", _UNKNOWN)),
    }


def _timeline(file: Path) -> Document:
    return loads(read_sealed(file), source=str(file))
