"""The directories of runs, read for a comparison: of two runs, or of a run with its prediction."""

from pathlib import Path

from ckio.adapters.registry import lossy
from ckio.errors import BadInput
from ckio.jobs.directory import MEASURED, RESULT, is_run_directory, manifest_in, no_run
from ckio.jobs.result import OUTCOMES, StoredRun, stored_run
from ckio.report import Report, compare
from ckio.report.two_runs import RunSide


def sides_of(first: Path, second: Path, /) -> tuple[RunSide, RunSide]:
    """Return two runs that have ended; raise BadInput if a path is not the directory of one."""
    names = first.name, second.name
    if names[0] == names[1] or not all(names):
        names = ("A", "B") if first == second else (str(first), str(second))
    return _side(first, names[0]), _side(second, names[1])


def report_of(path: Path, /) -> Report:
    """Return the predicted and the measured times of a run that has ended; raises BadInput."""
    run = _ended(path)
    names = [level.name for level in run.platform.levels]
    return compare(run.prediction, run.timeline, names=names, lossy=lossy(run.platform))


def _ended(path: Path, /) -> StoredRun:
    """Read a run that has ended; raises BadInput if it has not, or its times are not stored."""
    if not is_run_directory(path):
        raise no_run(path)
    if not (path / RESULT).is_file():
        raise BadInput(
            f"{path}: its run has not ended, because there is no {RESULT} yet; finish it"
            " with `ckio run --resume`"
        )
    run = stored_run(path)
    if not len(run.timeline):
        raise BadInput(f"{path}: it has no {MEASURED}, for which the disk was too full; run again")
    return run


def _side(path: Path, name: str) -> RunSide:
    run, manifest = _ended(path), manifest_in(path)
    request, figures, chain = manifest.request, run.figures, run.schedule.chain
    origin = figures["origin"]
    settings = ", ".join(f"{key}={value}" for key, value in sorted(request.settings.items()))
    return RunSide(
        name=name,
        timeline=run.timeline,
        chain=chain,
        platform=run.platform,
        facts={
            "directory": str(path),
            "planner": figures["planner"],
            "plan": figures.get("note", "").partition(":")[0],
            "overlap": figures["overlap"] or "none",
            "forward steps": f"{figures['forward_steps']:,}",
            "gradient": OUTCOMES[figures["verified"]],
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
        predicted=run.prediction.makespan,
        digest=figures["gradient_digest"],
    )
