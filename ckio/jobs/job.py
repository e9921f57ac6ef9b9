"""A run that survives its process, as one object: begun or resumed by `Job.run`."""

import os
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from ckio.errors import BadInput
from ckio.jobs import unknown
from ckio.jobs.begin import begin, cleared_if_nothing_is_left, with_control, wrapping
from ckio.jobs.directory import (
    MANIFEST,
    PLATFORM,
    RESULT,
    all_ranks,
    check_new,
    manifest_in,
    run_directory,
    sound_platform_in,
)
from ckio.jobs.display import Display
from ckio.jobs.gradients import read_control
from ckio.jobs.models import TOLD, Settings, costs, identity, levels_of, maker, measured, name_of
from ckio.jobs.planning import Planning, chosen, planner_call, with_room
from ckio.jobs.process import Process, has_tapes
from ckio.jobs.request import Request
from ckio.jobs.result import Result, read_back
from ckio.jobs.resume import again, ended, resumed
from ckio.jobs.stopping import Stopper
from ckio.model import Array
from ckio.model.comm import Comm
from ckio.parallel.group import RankGroup
from ckio.planners.compared import Planned
from ckio.platform import Level, Platform, size
from ckio.platform.chain import Chain
from ckio.platform.readable import duration
from ckio.schedule.policy import AUTO, SYNCHRONOUS, Policy

Seconds = float | str
Bytes = int | str


class Job:
    """A run in a directory of its own, which a process begins and any later one may resume.

    For example, a gradient over 20,000 steps in batch jobs of four hours:

        job = ckio.Job("run1", model=make_model, steps=20_000, ram="64GiB", disk="/scratch")
        result = job.run(walltime="3h55m")    # raises Halted where it was stopped in time
        result.gradient["zeta"]

    Each batch job runs these same lines: the first begins the run, later ones resume it from the
    checkpoints that are stored, and once it has ended the stored result is returned.

    Parameters
    ----------
    directory : path
        The directory of the run: its manifest, plan, timelines, result and gradient.
    model : str or callable
        A registered model, MODULE:ATTRIBUTE, FILE.py:ATTRIBUTE, or what makes fresh models. None
        only for a run that was begun before with a registered model.
    steps : int, optional
        None for a model that says itself when it is finished, and for a run begun before.
    settings : mapping, optional
        Options that the model is made with.
    platform : Platform or path, optional
        From `ckio calibrate`. Without it, the levels of the next three are calibrated when the run
        begins, which takes some seconds, and the result is kept in the directory.
    ram : int or str, optional
        Bytes of memory for checkpoints, such as "2GiB". With neither platform nor levels it is half
        of the memory that is available.
    disk, archive : path, optional
        A directory for files of checkpoints, and an HDF5 file for them.
    planner : str, optional
        "auto" by default: the best of all planners. Its own options are further keywords.
    overlap : Overlap, "auto", "all", "none" or str, optional
        Whether I/O overlaps with computation; by default as the plan decides.
    effort : int, optional
        How long to search for plans with overlap: 1, 2 or 3.
    control : mapping of str to array, or path, optional
        Controls to begin with, instead of the model's own; of many ranks, the part of this one.
    gradient : path, optional
        The file of the gradient; by default `gradient.h5` in the directory.
    every : float or str, optional
        Work between two adjoint checkpoints, in seconds or as "10m"; Daly's interval by default.
    mtbf : float or str, optional
        Mean time between failures of the machine, for that interval; a day by default.
    keep : bool
        Whether checkpoints stay on the levels when the run has ended.
    by_variable : bool
        Whether each variable of a state is stored only where it is needed.
    guarded : bool
        Whether the run fails at the first step that breaks the model's declaration.
    check : bool
        Whether the gradient is verified by a Taylor test.
    allow_nan : bool
        Whether values that are not finite do not stop the run.
    journal : Path or text file, optional
        Where a line of JSON for each action goes.
    comm : Comm, optional
        The ranks; by default all that mpiexec or srun started, or this process alone.
    display : Display, optional
        Who is told what goes on; by default there is a progress bar on a terminal.

    Raises
    ------
    BadInput
        An argument is not what it has to be.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        model: str | Callable[..., Any] | None = None,
        steps: int | None = None,
        settings: Settings | None = None,
        platform: Platform | str | os.PathLike[str] | None = None,
        ram: Bytes | None = None,
        disk: str | os.PathLike[str] | None = None,
        archive: str | os.PathLike[str] | None = None,
        planner: str | None = None,
        overlap: Policy | str | None = None,
        effort: int | None = None,
        control: Mapping[str, Array] | str | os.PathLike[str] | None = None,
        gradient: str | os.PathLike[str] | None = None,
        every: Seconds | None = None,
        mtbf: Seconds | None = None,
        keep: bool = False,
        by_variable: bool = False,
        guarded: bool = False,
        check: bool = False,
        allow_nan: bool = False,
        journal: Path | TextIO | None = None,
        comm: Comm | None = None,
        display: Display | None = None,
        **options: Any,
    ) -> None:
        self.directory = Path(directory)
        self._make, self._comm = model, comm
        self._display = display or Display()
        if isinstance(platform, str | os.PathLike):
            text = Path(platform).read_text(encoding="utf-8-sig")
            platform = Platform.loads(text, source=str(platform))
        self._asked = (
            size(ram) if isinstance(ram, str) else ram,
            None if disk is None else Path(disk),
            None if archive is None else Path(archive),
        )
        if platform is not None and any(place is not None for place in self._asked):
            raise BadInput("a platform says what levels there are: leave out ram, disk and archive")
        self._measured = list[Platform]()  # shared with the jobs that `again` returns
        self._plans = list[tuple[Planning, Planned]]()
        self.request = Request(
            model=None if model is None else name_of(model),
            settings=settings or {},
            steps=steps,
            planner=planner,
            options={name: value for name, value in options.items() if value is not None},
            by_variable=by_variable,
            overlap=overlap,  # type: ignore[arg-type]
            effort=effort,
            every=_seconds(every),
            mtbf=_seconds(mtbf),
            gradient=None if gradient is None else str(Path(gradient).absolute()),
            keep=keep,
            allow_nan=allow_nan,
            platform=platform,
            guarded=guarded,
            check=check,
            journal=journal,
        )
        self._control = control

    def __repr__(self) -> str:
        return f"Job({str(self.directory)!r}, model={self.request.model!r})"

    @property
    def has_ended(self) -> bool:
        """Whether the directory holds the result of a run that ended well."""
        return os.path.lexists(self.directory / RESULT)

    def run(self, *, walltime: Seconds | None = None, resume: bool = True) -> Result:
        """Begin the run, or resume what an earlier process left of it; return its result.

        SIGTERM, SIGINT, and a walltime that is nearly over stop it at the next step: where it
        stands is stored, and Halted is raised. On many ranks all of them call it together.

        Parameters
        ----------
        walltime : float or str, optional
            Seconds since this process was started, or "3h55m", after which it has to have ended.
        resume : bool
            Whether a run that lies in the directory is resumed; without, that is refused.

        Raises
        ------
        BadInput
            Something that was asked for does not fit, or the directory holds another run.
        Halted
            The run was stopped, and can be resumed.
        LevelInUse
            Another process works on the same run.
        RunFailed
            The model, or all levels that it needs, failed.
        """
        seconds = _seconds(walltime)
        with all_ranks(self._comm) as ranks, Stopper.within(seconds, ranks) as stopper:
            return self.run_on(ranks, stopper, resume=resume)

    def run_on(
        self, ranks: RankGroup, stopper: Stopper | None, /, *, resume: bool = True
    ) -> Result:
        """Do what `run` does on these ranks, until this stopper, which is entered, says to stop.

        Without a stopper, signals interrupt the run.
        """
        control = self._control
        if isinstance(control, str | os.PathLike):
            control = read_control(Path(control), ranks)
        walltime = None if stopper is None else stopper.walltime
        request = replace(self.request, control=control, walltime=walltime)
        _check_alone(request, ranks)
        return self._work(request, stopper, ranks, resume=resume)

    def again(
        self,
        directory: str | os.PathLike[str],
        control: Mapping[str, Array] | str | os.PathLike[str],
        /,
    ) -> "Job":
        """Return the job of the same run for other controls, in a directory of its own.

        It reuses the calibration, and the plan if this job made one in this process. For example,
        an optimisation evaluates J and its gradient at one control after the other, each in a
        directory whose name is its number, so that the whole can be killed and started again.
        """
        job = copy(self)
        job.directory = Path(directory)
        job._control = control  # noqa: SLF001  (its own)
        platform = self._measured[0] if self._measured else self._platform()
        job.request = replace(
            self.request, gradient=None, platform=platform or self.request.platform
        )
        return job

    def result(self) -> Result:
        """Return the stored result of a run that has ended; raises BadInput where it has not."""
        with all_ranks(self._comm) as ranks:
            if not ranks.once(lambda: self.has_ended):
                raise BadInput(f"{self.directory} holds no result: the run has not ended")
            directory = run_directory(self.directory, ranks, resume=True)
            try:
                return read_back(directory, directory.platform(), ranks)
            finally:
                directory.release()

    def _platform(self) -> Platform | None:
        """Return the platform of the run in this directory, if one was begun."""
        if not (self.directory / MANIFEST).is_file():
            return None
        manifest_in(self.directory)  # which says what is wrong with it
        return sound_platform_in(self.directory)

    def _work(
        self, request: Request, stopper: Stopper | None, ranks: RankGroup, /, *, resume: bool
    ) -> Result:
        """Begin a run, or resume one, or read its result back."""
        into, display = self.directory, self._display
        exists = ranks.once(lambda: os.path.lexists(into / MANIFEST))
        if not resume:
            ranks.once(lambda: check_new(into))  # what follows may measure for a long time
        process = None
        if not (exists and resume):
            process = self._new(request, stopper, ranks, resume=resume)
        directory = run_directory(into, ranks, resume=resume)
        try:
            if request.guarded and not directory.has_ended:
                display.tell(TOLD)
            levels = self._levels(ranks) if any(self._asked) else ()
            if directory.manifest is not None and directory.has_ended:
                manifest = directory.manifest
                return ended(request, directory, manifest, levels=levels, ranks=ranks)
            if directory.manifest is not None:
                manifest = directory.manifest
                process, model = resumed(
                    request,
                    self._make,
                    directory,
                    manifest,
                    levels=levels,
                    display=display,
                    stopper=stopper,
                    ranks=ranks,
                )
                resume_it = unknown.again if manifest.chain.steps is None else again
                return resume_it(process, model, directory, manifest)
            if process is None:
                raise BadInput(f"{into}: its run was removed just now")
            if request.platform is None:
                with cleared_if_nothing_is_left(directory):
                    directory.write(PLATFORM, process.platform.dumps())
                display.tell(f"calibrated; the platform is kept in {into / PLATFORM}")
            begin_it = unknown.begin if process.chain.steps is None else begin
            return begin_it(process, directory)
        finally:
            directory.release()

    def _new(
        self, request: Request, stopper: Stopper | None, ranks: RankGroup, /, *, resume: bool
    ) -> Process:
        """Return the process of a run that nobody has begun; raises BadInput."""
        hint = f"; {self.directory.absolute()} holds no run that says it" if resume else ""
        if self._make is None:
            raise BadInput(f"MODEL is missing: what to run{hint}")
        if request.steps is None and request.planner not in (None, unknown.PLANNER):
            raise BadInput(
                f"--steps is missing: planner {request.planner!r} has to know the number of steps;"
                f" {unknown.PLANNER!r} has not{hint}"
            )
        if request.steps is None and request.by_variable:
            raise BadInput("--by-variable needs --steps: it plans for a known number of them")
        name = request.model or ""
        _check_decides(request)
        plain = maker(self._make, request.settings, ranks)
        fresh = maker(self._make, request.settings, ranks, wrap=wrapping(request))
        if request.control is not None:
            fresh = with_control(fresh, request.control)
        if request.guarded or request.control is not None:
            fresh()  # which says what does not fit, before anything is measured
        if request.steps is None:
            unknown.check_finishes(name, plain())
        platform = request.platform or self._calibrated(plain, ranks)
        planner, overlap, levels = _chosen(request, platform, ranks)
        call = planner_call(planner, **request.options)
        chain = self._chain(platform, plain, ranks)
        models = {**platform.models, identity(name, request.settings, ranks=ranks.size): chain}
        platform = replace(with_room(platform, chain), models=models)
        self._measured[:] = [platform]
        if request.steps is not None:
            chain = chain.with_steps(request.steps)
        planning = Planning(
            planner,
            chain,
            platform,
            call,
            overlap,
            request.effort,
            has_tapes(chain, fresh),
            levels,
        )
        return Process(
            request=request,
            fresh=fresh,
            planning=planning,
            stopper=stopper,
            display=self._display,
            ranks=ranks,
            plans=self._plans,
        )

    def _chain(self, platform: Platform, make: Callable[[], Any], ranks: RankGroup) -> Chain:
        """Return the costs of the model: as the platform has them, or measured now."""
        request = self.request
        name = request.model or ""
        return costs(
            name, request.settings, platform, make=make, display=self._display, ranks=ranks
        )

    def _levels(self, ranks: RankGroup) -> tuple[Level, ...]:
        return levels_of(*self._asked, ranks=ranks.size)

    def _calibrated(self, make: Callable[[], Any], ranks: RankGroup) -> Platform:
        """Measure the levels and the model."""
        request = self.request
        name = identity(request.model or "", request.settings, ranks=ranks.size)
        levels = ranks.once(lambda: self._levels(ranks))
        return measured(levels, models={name: make}, display=self._display, ranks=ranks)


def _seconds(value: Seconds | None) -> float | None:
    return duration(value) if isinstance(value, str) else value


def _check_alone(request: Request, ranks: RankGroup, /) -> None:
    """Raise BadInput for what one rank can do and many cannot."""
    asked = {"--by-variable": request.by_variable, "--guarded": request.guarded}
    if not ranks.is_alone and any(asked.values()):
        option = next(option for option, is_asked in asked.items() if is_asked)
        raise BadInput(f"{option} is for one rank, and this job has {ranks.size}: leave it out")


def _refusals(request: Request) -> dict[str, bool]:
    """Return why it is not decided with the plan what overlaps, and whether that is so."""
    return {
        "--by-variable: it plans with whole checkpoints": request.by_variable,
        "a run without --steps: what overlaps is decided with the plan": request.steps is None,
    }


def _check_decides(request: Request) -> None:
    """Raise BadInput where the plan is to decide what overlaps, and cannot."""
    for why, is_so in _refusals(request).items():
        if is_so and request.overlap == AUTO:
            raise BadInput(f"--overlap auto is not for {why}; say --overlap POLICY, or none")


def _chosen(
    request: Request, platform: Platform, ranks: RankGroup
) -> tuple[str, Policy, tuple[str, ...]]:
    """Return the planner, what is to overlap, and the levels for which that was not considered.

    Plans that overlap are compared for one rank, whole checkpoints and a known number of steps:
    otherwise nothing overlaps that is not asked for.
    """
    overlap = request.overlap
    if overlap is None and (not ranks.is_alone or any(_refusals(request).values())):
        overlap = SYNCHRONOUS
    planner = request.planner or (None if request.steps else unknown.PLANNER)
    return chosen(planner, overlap, platform, request.options)
