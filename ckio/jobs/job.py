"""`Job`: a run that survives its process. `Job.run` begins it or resumes it."""

import os
import time
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Final, TextIO

from ckio.errors import BadInput
from ckio.jobs import open_ended, run
from ckio.jobs.directory import (
    PLATFORM,
    RESULT,
    SCHEDULE,
    RunDirectory,
    all_ranks,
    check_alike,
    is_run_directory,
    manifest_in,
    platform_in,
    with_paths,
)
from ckio.jobs.display import Display
from ckio.jobs.gradients import check_names, controls_of, given_control, with_control
from ckio.jobs.known import Known, code_of, known_costs
from ckio.jobs.models import (
    GUARDED_IS_SLOW,
    Settings,
    costs,
    factory_of,
    identity,
    maker,
    measured,
    name_of,
    settings_of_costs,
)
from ckio.jobs.planning import Planning, chosen, planner_call, with_working_memory
from ckio.jobs.request import Request
from ckio.jobs.result import Result, read_back, refuse_unverified
from ckio.jobs.resume import attempt_of, ended
from ckio.jobs.run import Attempt, cleared_if_nothing_is_left, has_tapes, wrapping
from ckio.jobs.stopping import Stopper
from ckio.model import Array
from ckio.model.comm import Comm
from ckio.parallel.group import RankGroup
from ckio.planners.compared import Plan
from ckio.platform import Level, Platform, platform_of
from ckio.platform.places import (
    check_exist,
    levels_of,
    with_copies,
    within_what_is_free,
    words_of,
)
from ckio.platform.readable import age_text, duration, option, path_of
from ckio.runner.reproducible import ReplayCheck
from ckio.schedule.policy import AUTO, SYNCHRONOUS, Policy

Seconds = float | str
Bytes = int | str


class Job:
    """A run in a directory of its own. One process begins it, and any later process may resume it.

    For example, a gradient over 20,000 steps in batch jobs of four hours:

        job = ckio.Job("run1", model=make_model, steps=20_000, ram="64GiB", disk="/scratch")
        result = job.run(walltime="3h55m")    # raises Halted if the run was stopped in time
        result.gradient["zeta"]

    Each batch job runs these same lines. The first one begins the run. Each later one resumes it
    from the checkpoints that are stored. After the run has ended, the stored result is returned.

    Parameters
    ----------
    directory : path
        The directory of the run, with its manifest, plan, timelines, result and gradient.
    model : str or callable
        The name of a registered model, MODULE:ATTRIBUTE, FILE.py:ATTRIBUTE, or a function that
        returns a fresh model. It may be None if the run was begun with a registered model.
    steps : int, optional
        The number of time steps n. None if the model decides itself when it is finished, or if the
        run was begun before.
    settings : mapping, optional
        The options with which the model is made.
    platform : Platform or path, optional
        The levels with their measured costs, from `ckio calibrate`. Without it, the levels given by
        `ram`, `disk` and `archive` are measured when the run begins, for a second or 3 % of the
        predicted run, and at length if `overlap` is given. The result is stored in the directory.
    ram : int or str, optional
        Memory for checkpoints, in bytes or as "2GiB". With no platform and none of these levels, it
        is half of the available memory.
    disk, archive : path, optional
        A directory for files of checkpoints, and an HDF5 file for checkpoints; with a capacity, as
        in "/scratch:200GiB". By default it is 90 % of what is free there.
    copies : path, optional
        A directory for copies of the files of `disk` (or `archive`), such as "/shared/saved:10m",
        made every 10 minutes and when the run stops. A job on a node without these files resumes
        the run from the copies.
    planner : str, optional
        The planner, with its options if any, for example "periodic:period=10". The default "auto"
        takes the best plan of all planners.
    overlap : Overlap, "auto", "all", "none" or str, optional
        The policy that decides which transfers overlap with computation. By default the plan
        decides.
    control : mapping of str to array, or path, optional
        The controls, instead of the model's own. With many ranks, the part of this rank.
    every : float or str, optional
        The predicted work between two adjoint checkpoints, in seconds or as "10m". By default
        Daly's interval.
    mtbf : float or str, optional
        The mean time between failures of the machine, in seconds or as "12h", from which that
        interval is computed. By default one day.
    by_variable : bool
        Whether each variable of the state is stored separately, and only if it is needed.
    guarded : bool
        Whether the run fails at the first step that violates the model's declaration of what its
        steps use and overwrite.
    check : bool
        Whether the gradient is verified by a Taylor test (see `check_gradient`). If it is not
        verified, `run` raises NotVerified.
    allow_nan : bool
        Whether the run continues if values are infinite or NaN.
    allow_rounding : bool
        Whether the run continues if states differ by rounding when they are computed again, or when
        another process resumes the run.
    journal : path or text file, optional
        The file to which a line of JSON is written for each action.
    comm : Comm, optional
        The ranks. By default all ranks that mpiexec or srun started, or this process alone.
    display : Display, optional
        The object that receives progress and notes. By default a progress bar is drawn if the
        output is a terminal.

    Raises
    ------
    BadInput
        If an argument has a wrong type or value.
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
        copies: str | os.PathLike[str] | None = None,
        planner: str | None = None,
        overlap: Policy | str | None = None,
        control: Mapping[str, Array] | str | os.PathLike[str] | None = None,
        every: Seconds | None = None,
        mtbf: Seconds | None = None,
        by_variable: bool = False,
        guarded: bool = False,
        check: bool = False,
        allow_nan: bool = False,
        allow_rounding: bool = False,
        journal: str | os.PathLike[str] | TextIO | None = None,
        comm: Comm | None = None,
        display: Display | None = None,
    ) -> None:
        _check_objects(directory, journal, display)
        self.directory = path_of(directory)
        self._make, self._comm = model, comm
        self._display = display or Display()
        self._levels_asked = words_of(ram, disk, archive, platform=platform)
        if copies is not None and platform is not None:
            raise BadInput(
                "copies cannot be given with a platform: give a level of it the options copies and"
                " copies_every, in seconds"
            )
        self._copies = copies
        # A list, because the jobs that `again` returns share it: they use what one has planned.
        self._plans = list[tuple[Planning, Plan]]()
        self.request = Request(
            model=None if model is None else name_of(model),
            settings=settings or {},
            steps=steps,
            planner=planner,
            by_variable=by_variable,
            overlap=overlap,  # type: ignore[arg-type]
            every=_seconds(every),
            mtbf=_seconds(mtbf),
            allow_nan=allow_nan,
            allow_rounding=allow_rounding,
            platform=platform_of(platform),
            guarded=guarded,
            check=check,
            journal=path_of(journal) if isinstance(journal, str | os.PathLike) else journal,
        )
        self._control = control

    def __repr__(self) -> str:
        return f"Job({str(self.directory)!r}, model={self.request.model!r})"

    @property
    def has_ended(self) -> bool:
        """Whether the directory has the result of a run that ended without an error."""
        return os.path.lexists(self.directory / RESULT)

    def run(self, *, walltime: Seconds | None = None, resume: bool = True) -> Result:
        """Begin the run, or resume the run that an earlier process began. Return its result.

        The run stops at the next step after SIGTERM or SIGINT, and shortly before the walltime is
        over. It then stores its present state and raises Halted. On many ranks, all ranks call this
        method together.

        Parameters
        ----------
        walltime : float or str, optional
            The time by which this process has to end: seconds since it was started, or "3h55m".
        resume : bool
            Whether a run that is in the directory already is resumed. If False, BadInput is raised
            for such a directory.

        Raises
        ------
        BadInput
            If an option does not fit, or the directory has another run.
        Halted
            If the run was stopped. It can be resumed.
        NotVerified
            If the gradient was checked and is wrong, or the check is inconclusive. The run has
            ended all the same: its result is stored, and is `result` of the error.
        LevelInUse
            If another process works on the same run.
        RunFailed
            If the model failed, or all levels that the run needs.
        """
        seconds = replace(self.request, walltime=_seconds(walltime)).walltime  # is checked
        if not isinstance(resume, bool):
            raise BadInput(f"resume = {resume!r:.80}; give True or False")
        with all_ranks(self._comm) as ranks, Stopper(seconds, ranks) as stopper:
            result = self.run_on(ranks, stopper, resume=resume)
        refuse_unverified(result)
        return result

    def run_on(
        self, ranks: RankGroup, stopper: Stopper | None, /, *, resume: bool = True
    ) -> Result:
        """Do the same as `run`, on these ranks, until `stopper` stops the run.

        This is for a caller that has the ranks already, such as a command. A result whose gradient
        is not verified is returned, too.

        The stopper is a context that the caller has entered. Without one, signals interrupt the
        run immediately.
        """
        control = self._control
        if isinstance(control, str | os.PathLike):
            control = path_of(control)
        walltime = None if stopper is None else stopper.walltime
        request = replace(self.request, control=control, walltime=walltime)
        asked = {name: getattr(request, name) for name in _ALIKE}
        # Ranks have different controls, each its part, but all have some or none has.
        check_alike(ranks, asked | {"control": "missing" if control is None else "given"})
        _check_alone(request, ranks)
        return self._work(request, stopper, ranks, resume=resume)

    def again(
        self,
        directory: str | os.PathLike[str],
        control: Mapping[str, Array] | str | os.PathLike[str],
        /,
    ) -> "Job":
        """Return a job with the same options for other controls, in a directory of its own.

        The new job reuses the calibration. It also reuses the plan, if this job made one in this
        process. For example, an optimisation evaluates J and its gradient for one set of controls
        after the other. Each evaluation has a directory whose name is its number, so that the
        optimisation can be killed and started again.
        """
        job = copy(self)
        job.directory = path_of(directory)
        job._control = control  # noqa: SLF001  (its own)
        if is_run_directory(self.directory):
            manifest = manifest_in(self.directory)
            platform = platform_in(self.directory / SCHEDULE)
            platform = with_paths(platform, self.directory, manifest)
            job.request = replace(self.request, platform=platform)
        return job

    def result(self) -> Result:
        """Return the stored result of a run that has ended; raises BadInput if it has not ended."""
        with all_ranks(self._comm) as ranks:
            if not ranks.once(lambda: self.has_ended):
                raise BadInput(
                    f"{self.directory} has no result, because the run has not ended; call run()"
                    " first"
                )
            directory = RunDirectory(self.directory, ranks, resume=True)
            try:
                return read_back(directory, directory.platform(), ranks)
            finally:
                directory.release()

    def _work(
        self, request: Request, stopper: Stopper | None, ranks: RankGroup, /, *, resume: bool
    ) -> Result:
        """Begin a run, resume it, or read its result."""
        into, display, make = self.directory, self._display, self._make
        directory = RunDirectory(into, ranks, resume=resume)
        try:
            manifest, has_ended = directory.manifest, directory.has_ended
            if manifest is None:
                with cleared_if_nothing_is_left(directory):
                    attempt = self._new(request, directory, stopper, ranks, resume=resume)
                if request.guarded:
                    display.tell(GUARDED_IS_SLOW)
                begin = open_ended.begin if attempt.chain.steps is None else run.begin
                return begin(attempt)
            if request.guarded and not has_ended:
                display.tell(GUARDED_IS_SLOW)
            args = request, make, directory, manifest
            levels = self._levels(ranks) if any(self._levels_asked) else ()
            if has_ended:
                return ended(*args, levels=levels, ranks=ranks)
            attempt, model = attempt_of(
                *args, levels=levels, display=display, stopper=stopper, ranks=ranks
            )
            resume_it = open_ended.resume if manifest.chain.steps is None else run.resume
            return resume_it(attempt, model, manifest)
        finally:
            directory.release()

    def _new(
        self,
        request: Request,
        directory: RunDirectory,
        stopper: Stopper | None,
        ranks: RankGroup,
        /,
        *,
        resume: bool,
    ) -> Attempt:
        """Return the attempt that begins a run; raises BadInput if the request is not complete."""
        hint = f" ({self.directory.absolute()} has no run to take it from)" if resume else ""
        if self._make is None:
            raise BadInput(f"MODEL is missing{hint}; name the model to run")
        if request.steps is None and request.planner not in (None, open_ended.PLANNER):
            raise BadInput(
                f"{option('steps')} is missing{hint}: planner {request.planner!r} needs the number"
                f" of steps; give {option('steps')}, or use planner {open_ended.PLANNER!r}, which"
                " does not need it"
            )
        if request.steps is None and request.by_variable:
            raise BadInput(
                f"{option('by_variable')} needs {option('steps')}, because it plans for a known"
                f" number of steps; give {option('steps')}"
            )
        name = request.model or ""
        _check_auto_overlap(request)
        if request.planner is not None:
            planner_call(request.planner)  # reports a wrong name or option before the calibration
        # The model is measured without the checks of `wrapping`, whose time is not the model's.
        plain = maker(self._make, request.settings, ranks)
        replay = ReplayCheck(allow_rounding=request.allow_rounding)
        wrap = wrapping(request, replay, is_alone=ranks.is_alone)
        fresh = maker(self._make, request.settings, ranks, wrap=wrap)
        first = plain()
        check_names(f"model {name!r}", controls_of(first))
        if request.control is not None:
            request = replace(request, control=given_control(request.control, ranks))
            fresh = with_control(fresh, request.control)  # type: ignore[arg-type]
        if request.guarded or request.control is not None:
            fresh()  # reports controls or declarations that do not fit before the calibration
        if request.steps is None:
            open_ended.check_finishes(name, plain(), hint=hint)
        costs_known = None
        platform = request.platform
        if platform is None:
            platform, costs_known = self._calibrated(plain, first, ranks)
        planner, overlap, levels = _chosen(request, platform, ranks)
        if request.platform is None:
            levels = ()  # a brief calibration has decided that overlap is not worth its measurement
        call = planner_call(planner)
        options: dict[str, Any] = {"display": self._display, "ranks": ranks}
        settings = settings_of_costs(factory_of(self._make), request.settings)
        chain = costs(name, settings, platform, make=plain, steps=request.steps, **options)
        models = {**platform.models, identity(name, settings, ranks=ranks.size): chain}
        platform = replace(with_working_memory(platform, chain), models=models)
        if request.platform is None:
            directory.write(PLATFORM, platform.dumps())
        if request.steps is not None:
            chain = chain.with_steps(request.steps)
        tapes = has_tapes(chain, fresh)
        return Attempt(
            request=request,
            directory=directory,
            fresh=fresh,
            planning=Planning(planner, chain, platform, call, overlap, tapes, levels),
            stopper=stopper,
            plans=self._plans,
            replay=replay,
            code=ranks.once(lambda: code_of(factory_of(self._make or ""))),
            costs=costs_known,
            **options,
        )

    def _levels(self, ranks: RankGroup) -> tuple[Level, ...]:
        levels = levels_of(*self._levels_asked, ranks=ranks.size)
        return levels if self._copies is None else with_copies(levels, self._copies)

    def _calibrated(
        self, make: Callable[[], Any], first: Any, ranks: RankGroup
    ) -> tuple[Platform, Known | None]:
        """Return the levels and the costs of the model: of an earlier run, or else measured now.

        `first` is a fresh model. The second value is where the costs are known from.
        """
        request = self.request
        levels = ranks.once(lambda: within_what_is_free(self._levels(ranks), ranks.size))
        ranks.once(lambda: check_exist(levels))
        at_length = request.overlap not in (None, SYNCHRONOUS)
        steps = None if at_length else request.steps
        factory = factory_of(self._make or "")
        name, known = known_costs(request, factory, first, levels, steps=steps, ranks=ranks)
        platform = None if known is None else known.on(levels)
        if known is not None and platform is not None:
            ago = age_text(time.time() - known.when)
            self._display.tell(f"costs as measured {ago} ago; remove {known.file} to measure again")
            return platform, known
        platform = measured(
            levels,
            models={name: make},
            run_steps=request.steps,
            at_length=at_length,
            display=self._display,
            ranks=ranks,
        )
        self._display.tell(f"calibrated; the platform is stored in {self.directory / PLATFORM}")
        if known is not None:
            ranks.once(lambda: known.keep(platform, steps))
        return platform, known


_ALIKE: Final = ("model", "steps", "planner", "overlap", "every", "mtbf", "check")
"""The options that must be the same on all ranks."""


def _seconds(value: Seconds | None) -> float | None:
    return duration(value) if isinstance(value, str) else value


def _check_objects(directory: object, journal: object, display: object) -> None:
    """Raise BadInput for an argument of a job that is no object of its kind."""
    if not isinstance(directory, str | os.PathLike) or not os.fspath(directory):
        raise BadInput(f"directory = {directory!r:.80}; give a path, such as 'run1'")
    is_path = isinstance(journal, str | os.PathLike)
    if not is_path and journal is not None and not hasattr(journal, "write"):
        raise BadInput(f"journal = {journal!r:.80}; give a path, or a file open for text")
    if display is not None and not isinstance(display, Display):
        raise BadInput(
            f"display = {display!r:.80}; give an object of ckio.jobs.display, such as"
            " Display(say=print)"
        )


def _check_alone(request: Request, ranks: RankGroup, /) -> None:
    """Raise BadInput for options that need a job of one rank."""
    if not ranks.is_alone and (request.by_variable or request.guarded):
        name = option("by_variable" if request.by_variable else "guarded")
        raise BadInput(
            f"{name} needs a job of one rank, and this job has {ranks.size}; leave it out"
        )


def _check_auto_overlap(request: Request) -> None:
    """Raise BadInput if the plan is asked to decide the overlap, and cannot."""
    if request.overlap == AUTO and (request.by_variable or request.steps is None):
        by_variable = request.by_variable
        why = f"with {option('by_variable')}" if by_variable else f"without {option('steps')}"
        raise BadInput(
            f"{option('overlap', 'auto')} is not possible {why}, because it compares plans of whole"
            f" checkpoints for a known number of steps; give {option('overlap', 'none')} or a"
            " policy"
        )


def _chosen(
    request: Request, platform: Platform, ranks: RankGroup
) -> tuple[str, Policy, tuple[str, ...]]:
    """Return the planner, the overlap, and the levels for which no overlap was considered.

    Plans with overlap are compared only for one rank, whole checkpoints and a known number of
    steps. Otherwise only transfers overlap that the request names.
    """
    overlap = request.overlap
    plan_decides = ranks.is_alone and not request.by_variable and request.steps is not None
    if overlap is None and not plan_decides:
        overlap = SYNCHRONOUS
    planner = request.planner or (None if request.steps else open_ended.PLANNER)
    return chosen(planner, overlap, platform)
