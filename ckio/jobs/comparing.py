"""The directories of runs, read for a comparison: of two runs, or of a run with its prediction."""

from pathlib import Path

from ckio.adapters.registry import lossy
from ckio.errors import BadInput
from ckio.jobs.directory import (
    MEASURED,
    PREDICTED,
    RESULT,
    is_run_directory,
    manifest_in,
    read_sealed,
)
from ckio.jobs.result import VERDICTS, figures_in
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.report import Report, compare
from ckio.report.two_runs import RunSide
from ckio.schedule.text import loads
from ckio.schedule.timeline import Timeline


def sides_of(first: Path, second: Path, /) -> tuple[RunSide, RunSide]:
    """Return two runs that have ended; raise BadInput if a path is not the directory of one."""
    names = first.name, second.name
    if names[0] == names[1] or not all(names):
        names = ("A", "B") if first == second else (str(first), str(second))
    return _side(first, names[0]), _side(second, names[1])


def report_of(path: Path, /) -> Report:
    """Return the predicted and the measured times of a run that has ended; raises BadInput."""
    _check_ended(path)
    predicted, *_ = _timeline(path / PREDICTED)
    measured, _, platform = _timeline(path / MEASURED)
    names = [level.name for level in platform.levels]
    return compare(predicted, measured, names=names, lossy=lossy(platform))


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


def _timeline(file: Path) -> tuple[Timeline, Chain, Platform]:
    document = loads(read_sealed(file), source=str(file))
    if document.timeline is None or document.platform is None:
        raise BadInput(f"{file}: it contains no timeline, because it was edited; run again")
    return document.timeline, document.schedule.chain, document.platform


def _side(path: Path, name: str) -> RunSide:
    _check_ended(path)
    manifest, figures = manifest_in(path), figures_in(path)
    predicted, *_ = _timeline(path / PREDICTED)
    timeline, chain, platform = _timeline(path / MEASURED)
    request, origin = manifest.request, figures["origin"]
    settings = ", ".join(f"{key}={value}" for key, value in sorted(request.settings.items()))
    return RunSide(
        name=name,
        timeline=timeline,
        chain=chain,
        platform=platform,
        facts={
            "directory": str(path),
            "planner": figures["planner"],
            "plan": figures.get("note", "").partition(":")[0],
            "overlap": figures["overlap"] or "none",
            "forward steps": f"{figures['forward_steps']:,}",
            "gradient": VERDICTS[figures["verified"]],
            "ranks": str(manifest.ranks),
            "host": origin["host"][:80],
            "ended": origin["when"],
            "ckio": origin["ckio"],
            "Python": origin["python"],
            "numpy": origin["numpy"],
        },
        problem={
            "model": request.model or "unknown",
            "settings": settings or "none",
            "steps": f"{chain.length:,}",
        },
        predicted=predicted.makespan,
        digest=figures["gradient_digest"],
    )
