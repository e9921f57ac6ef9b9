"""The directories of runs, read for a comparison: of two runs, or of a run with its prediction."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckio.adapters.registry import lossy
from ckio.errors import BadInput
from ckio.jobs.directory import MEASURED, PREDICTED, RESULT, manifest_in, read_sealed
from ckio.jobs.leftovers import is_run_directory
from ckio.jobs.request import Manifest
from ckio.jobs.result import VERDICTS, figures_in
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.report import Report, compare
from ckio.report.two_runs import RunSide
from ckio.schedule.text import loads
from ckio.schedule.timeline import Timeline

_UNKNOWN = "unknown"


def sides_of(first: Path, second: Path, /) -> tuple[RunSide, RunSide]:
    """Return two runs that have ended; raise BadInput if a path is not the directory of one."""
    names = first.name, second.name
    if names[0] == names[1] or not all(names):
        names = str(first), str(second)
    if names[0] == names[1]:
        names = "A", "B"
    return _side(first, names[0]), _side(second, names[1])


def report_of(path: Path, /) -> Report:
    """Return the predicted and the measured times of a run that has ended; raises BadInput."""
    _check_ended(path)
    predicted, measured = _timelines(path)
    platform = measured.platform
    names = [level.name for level in platform.levels]
    return compare(predicted.timeline, measured.timeline, names=names, lossy=lossy(platform))


def _check_ended(path: Path, /) -> None:
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
    _check_ended(path)
    manifest = manifest_in(path)
    figures = figures_in(path)
    predicted, measured = _timelines(path)
    request = manifest.request
    settings = ", ".join(f"{key}={value}" for key, value in sorted(request.settings.items()))
    return RunSide(
        name=name,
        timeline=measured.timeline,
        chain=measured.chain,
        platform=measured.platform,
        facts=_facts(path, manifest, figures),
        problem={
            "model": str(request.model or _UNKNOWN),
            "settings": settings,
            "steps": f"{measured.chain.length:,}",
        },
        predicted=predicted.timeline.makespan,
        digest=str(figures["gradient_digest"]),
    )


def _facts(path: Path, manifest: Manifest, figures: Mapping[str, Any]) -> dict[str, str]:
    origin = figures.get("origin")
    known = origin if isinstance(origin, dict) else {}
    return {
        "directory": str(path),
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


@dataclass(frozen=True, slots=True)
class _Timed:
    """A timeline from a file, with its chain and platform."""

    timeline: Timeline
    chain: Chain
    platform: Platform


def _timelines(path: Path) -> tuple[_Timed, _Timed]:
    """Return the predicted and the measured timeline of a run."""
    return _timed(path / PREDICTED), _timed(path / MEASURED)


def _timed(file: Path) -> _Timed:
    document = loads(read_sealed(file), source=str(file))
    if document.timeline is None or document.platform is None:
        raise BadInput(f"{file}: it contains no timeline, because it was edited; run again")
    return _Timed(document.timeline, document.schedule.chain, document.platform)
