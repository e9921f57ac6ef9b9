"""The request for a run, and the manifest that identifies a run.

A `Request` has the options of a command line or a Python caller. An option that survives the
process is a field made by `_option`, with the types that a manifest may have for it and the rule
(`resume`) by which a resumed run uses it. The `Manifest` has the request with which the run was
begun, and the facts that were determined then, such as the costs of the model.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, TextIO

import numpy as np
import xxhash

from ckio.actions import Kind
from ckio.actions.checks import is_whole
from ckio.errors import BadInput, CkioError
from ckio.jobs.models import Settings, identity
from ckio.model import Array
from ckio.model.arrays import check_unmasked
from ckio.platform import Platform
from ckio.platform.chain import COSTS, Chain, PerStep
from ckio.schedule.policy import Overlap, Policy, policy_of

FORMAT: Final = 3

DAY: Final = 86400.0

MOST_RANKS: Final = 1 << 20
"""The most ranks that a run may have."""

_RUN: Final = re.compile(r"[0-9a-f]{8}")
_DIGEST: Final = re.compile(r"[0-9a-f]{1,64}")

Resume = Literal["same", "replace", "either"]
"""The rule for an option of a process that resumes a run.

"same": it must be equal to that of the run. "replace": it replaces that of the run. "either": it
applies if the run or the process asks for it.
"""


def _option(default: Any, *types: type, said: str, resume: Resume) -> Any:
    """Return the field of an option that survives the process."""
    metadata = {"types": types, "said": said, "resume": resume}
    if default is dict:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for a run. An option that is not given is None or False, or has no entry.

    Attributes
    ----------
    model : str or None
        The name of the model, as on a command line.
    settings : mapping
        The options of the model.
    steps : int or None
        The number of steps; None also if the model decides itself when it is finished.
    planner : str or None
        The planner in the form NAME or NAME:OPTION=VALUE,...
    overlap : Overlap, "auto" or None
        The policy for overlap; None if the plan decides.
    every : float or None
        Seconds of predicted work between two adjoint checkpoints; None for Daly's interval.
    mtbf : float or None
        Mean time between failures of the machine, in seconds; None for one day.
    keep : bool
        Whether checkpoints remain on the levels after the run has ended.
    by_variable : bool
        Whether each variable of the state is stored separately, and only if it is needed.
    allow_nan : bool
        Whether the run continues if values are infinite or NaN.
    allow_rounding : bool
        Whether states may differ by rounding when they are computed again.
    gradient : str or None
        The file of the gradient; None for `gradient.h5` in the run's directory. It is not stored,
        because a manifest must not name a file that a process replaces.
    platform : Platform or None
        The levels with their costs; None to measure them, or to use those of the run.
    control : mapping of str to array, Path or None
        The controls, instead of the model's own, or their file.
    walltime : float or None
        Seconds, counted from the start of the process, by which it has to end.
    guarded, check : bool
        Whether each step is compared with its declaration; whether the gradient is verified.
    journal : Path, text file or None
        The file to which a line of JSON is written for each action.

    Raises
    ------
    BadInput
        If a value has the wrong type or is out of range.
    """

    model: str | None = _option(None, str, said="the model", resume="same")
    settings: Settings = _option(dict, dict, said="--set", resume="same")  # noqa: RUF009
    steps: int | None = _option(None, int, said="--steps", resume="same")
    planner: str | None = _option(None, str, said="--planner", resume="same")
    by_variable: bool = _option(False, bool, said="--by-variable", resume="same")
    overlap: Policy | None = _option(None, str, said="--overlap", resume="replace")  # noqa: RUF009
    every: float | None = _option(None, float, said="--every", resume="replace")
    mtbf: float | None = _option(None, float, said="--mtbf", resume="replace")
    keep: bool = _option(False, bool, said="--keep", resume="either")
    allow_nan: bool = _option(False, bool, said="--allow-nan", resume="either")
    allow_rounding: bool = _option(False, bool, said="--allow-rounding", resume="either")

    platform: Platform | None = None
    gradient: str | None = None
    control: Mapping[str, Array] | Path | None = None
    walltime: float | None = None
    guarded: bool = False
    check: bool = False
    journal: Path | TextIO | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", dict(self.settings))
        if isinstance(self.control, Mapping):
            for name, control in self.control.items():
                check_unmasked(f"control {name!r}", control)
        for option in surviving():
            value, types = _plain(getattr(self, option.name)), option.metadata["types"]
            object.__setattr__(self, option.name, value)
            if option.name == "overlap" and isinstance(value, Overlap | None):
                continue
            if value is not None and not _is_of(value, types):
                name = option.name
                raise BadInput(f"{name} = {value!r:.80}; it must be {_words(types)}, or None")
        _check_storable(self.settings, "setting")
        if self.steps is not None and not 1 <= self.steps < 2**63:
            raise BadInput(f"steps = {self.steps}; a chain has at least 1 step, and less than 2^63")
        for name, least in (("every", 0.0), ("mtbf", 0.0), ("walltime", 0.0)):
            value = getattr(self, name)
            if value is not None and not least <= value <= inf:
                raise BadInput(f"{name} = {value!r}; it must be seconds, and at least 0")
        if isinstance(self.overlap, str):
            object.__setattr__(self, "overlap", policy_of(self.overlap))

    def resumed(self, begun: "Request", /) -> "Request":
        """Return the request of a process that resumes a run which was begun with another one."""
        said: dict[str, Any] = {}
        for option in surviving():
            mine, theirs = getattr(self, option.name), getattr(begun, option.name)
            match option.metadata["resume"]:
                case "replace":
                    said[option.name] = theirs if mine is None else mine
                case "either":
                    said[option.name] = mine or theirs
                case _:
                    said[option.name] = theirs
        return replace(self, **said)

    def differences(self, begun: "Request", /) -> Iterator[str]:
        """Yield a text for each option of this request that differs from that of the begun run."""
        if self.model not in (None, begun.model):
            yield f"the model is {self.model}, that of the run {begun.model}"
        for name, value in self.settings.items():
            own = begun.settings.get(name)
            if identity("", {name: value}) != identity("", {} if own is None else {name: own}):
                yield f"--set {name} is {value}, in the run it {_was(own)}"
        if self.steps not in (None, begun.steps):
            has = "was begun without" if begun.steps is None else f"has {begun.steps}"
            yield f"--steps is {self.steps}, the run {has}"
        if self.planner not in (None, begun.planner):
            yield f"--planner is {self.planner}, that of the run {begun.planner}"
        if self.by_variable and not begun.by_variable:
            yield "--by-variable is given, the run stores whole checkpoints"

    def to_json(self) -> dict[str, Any]:
        """Return the options that survive the process, as data for JSON."""
        said = {option.name: getattr(self, option.name) for option in surviving()}
        if isinstance(self.overlap, Overlap):
            said["overlap"] = str(self.overlap)
        return said


def surviving() -> list[Any]:
    """Return the fields of the options that survive the process."""
    return [each for each in fields(Request) if each.metadata]


def _was(value: object) -> str:
    return "was not given" if value is None else f"is {value}"


def _plain(value: Any) -> Any:
    """Return a number of numpy as one of Python, which a manifest can contain; also in a table."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _check_storable(table: Mapping[str, Any], what: str) -> None:
    """Raise BadInput for an entry that does not come back from the JSON of a manifest."""
    for name, value in table.items():
        try:
            same = identity("", {name: json.loads(json.dumps(value))}) == identity(
                "", {name: value}
            )
        except (TypeError, ValueError, RecursionError):
            same = False
        if not same:
            raise BadInput(
                f"{what} {name!r} = {value!r:.80} cannot be stored in the manifest of the run; give"
                " text (for a path, str(path)), a number, true, false, or a list of these"
            )


def _is_of(value: object, types: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in types
    if isinstance(value, int) and float in types:
        return abs(value) < 2**63  # an integer of JSON may be too large for a float
    return isinstance(value, types)


def _words(types: tuple[type, ...]) -> str:
    names = {str: "text", dict: "a table", int: "a whole number", float: "a number", bool: "true"}
    return " or ".join(names[each] for each in types)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The identity of a run, with the data that a later process needs to resume it.

    Attributes
    ----------
    run : str
        The id of the run on its levels: eight hexadecimal digits.
    ckio : str
        The version of ckio that began the run.
    request : Request
        The request, with the planner and the overlap that were decided.
    control : str or None
        The digest of the controls at the start; None if the model has no controls.
    given : str or None
        The checksum of the file of the controls in the run's directory; None if none were given.
    chain : Chain
        The number of steps, and the costs of the model when the run began, because a resumed run
        does not measure again. It has no steps during the forward sweep of a run of unknown length.
    variables : str or None
        The digest of the variables that the model declares, if they are stored one by one.
    platform : str
        The digest of the platform. The platform itself is in schedule.txt.
    adjoints : str or None
        The name of the level for adjoint checkpoints; None if no level can store them.
    every : float
        Seconds of predicted work between two adjoint checkpoints.
    here : str
        The directory in which the run was begun, to which relative paths of levels refer; "" if it
        is not known.
    made : list of str
        The folders above the levels that the run has made, and removes at its end.
    ranks : int
        The number of ranks. Each has its part of the state and of the levels.
    """

    run: str
    ckio: str
    request: Request
    control: str | None
    given: str | None = None
    chain: Chain
    variables: str | None = None
    platform: str
    adjoints: str | None
    every: float
    here: str = ""
    made: list[str] = field(default_factory=list)
    ranks: int = 1

    @cached_property
    def identity(self) -> str:
        """Return the digest of the computation: model, settings, controls, chain and variables.

        It is stored with each checkpoint, so that no other computation reads it.
        """
        said = {
            "model": identity(self.request.model or "", self.request.settings, ranks=self.ranks),
            "control": self.control,
            "steps": self.request.steps,
            "chain": {name: _listed(getattr(self.chain, name)) for name in COSTS},
            "variables": self.variables,
        }
        return xxhash.xxh3_128(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def dumps(self) -> str:
        """Return the manifest as JSON, which `loads` reads."""
        chain: dict[str, object] = {"steps": self.chain.steps}
        chain |= {name: _listed(getattr(self.chain, name)) for name in COSTS}
        if self.chain.handed:
            chain["handed"] = sorted(kind.value for kind in self.chain.handed)
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        said |= {"request": self.request.to_json(), "chain": chain, "identity": self.identity}
        return json.dumps({"format": FORMAT, **said}, indent=2)

    @staticmethod
    def loads(text: str, /, *, source: str) -> "Manifest":
        """Read a manifest; raises BadInput if it has another format or impossible values."""
        try:
            said = json.loads(text)
            version = said.pop("format")
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise BadInput(
                f"{source} is damaged: it is not the manifest of a run; restore it, or begin a new"
                " run in another directory"
            ) from None
        if version != FORMAT:
            raise BadInput(
                f"{source} has format {version!r:.20}; this ckio reads format {FORMAT}; use the"
                " version that began the run, or begin a new run in another directory"
            )
        try:
            digest = said.pop("identity")
            costs, request = dict(said["chain"]), dict(said["request"])
            handed = frozenset(map(Kind, costs.pop("handed", ())))
            chain = Chain(**costs, handed=handed)
            manifest = Manifest(**{**said, "request": Request(**request), "chain": chain})
            manifest._check()
        except (
            CkioError,
            TypeError,
            ValueError,
            LookupError,
            AttributeError,
            RecursionError,
        ) as error:
            raise BadInput(f"{source} is damaged: {error}") from None
        if digest != manifest.identity:
            raise BadInput(
                f"{source} is damaged: its identity is not that of its model, settings and costs;"
                " restore it, or begin a new run in another directory"
            )
        return manifest

    def _check(self) -> None:
        """Raise ValueError for a value that the manifest of a run cannot have."""
        said: Mapping[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        request, here = self.request, said["here"]
        rules = {
            "run": isinstance(said["run"], str) and _RUN.fullmatch(self.run),
            "ckio": isinstance(said["ckio"], str),
            "control": said["control"] is None or _is_digest(self.control),
            "given": said["given"] is None or _is_digest(self.given),
            "variables": said["variables"] is None or _is_digest(self.variables),
            "platform": _is_digest(said["platform"]),
            "adjoints": isinstance(said["adjoints"], str | None),
            "every": _is_of(said["every"], (float,)) and self.every >= 0,
            "here": isinstance(here, str) and "\0" not in here and _is_plain(Path(here)),
            "made": all(isinstance(folder, str) for folder in said["made"]),
            "ranks": is_whole(said["ranks"]) and 1 <= self.ranks <= MOST_RANKS,
            "request": request.model and request.planner and isinstance(request.overlap, Overlap),
        }
        for name, holds in rules.items():
            if not holds:
                raise ValueError(f"{name} cannot be {said[name]!r:.80}")


def _is_plain(here: Path) -> bool:
    """Return whether a directory is empty, or an absolute path without ".."."""
    return here == Path() or (here.is_absolute() and ".." not in here.parts)


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _listed(cost: object) -> object:
    return list(cost) if isinstance(cost, PerStep) else cost
