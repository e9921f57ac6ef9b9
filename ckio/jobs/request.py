"""The request for a run, and the manifest that identifies a run.

A `Request` has the options of a command line or a Python caller. Some of them survive the process.
The `Manifest` has the request with which the run was begun, and the facts that were determined
then, such as the costs of the model.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
import xxhash

from ckio.actions import Kind
from ckio.errors import BadInput, CkioError
from ckio.jobs.models import Settings, identity
from ckio.model import Array
from ckio.model.arrays import check_unmasked
from ckio.platform import Platform
from ckio.platform.chain import Chain, PerStep
from ckio.platform.readable import option
from ckio.schedule.policy import Overlap, Policy, policy_of

FORMAT: Final = 4

DAY: Final = 86400.0

_SAME: Final = ("model", "settings", "steps", "planner", "by_variable")
"""The options that a process which resumes a run must repeat, or leave out."""

_REPLACED: Final = ("overlap", "every", "mtbf")
"""The options that replace those of the run, if they are given."""

_EITHER: Final = ("allow_nan", "allow_rounding")
"""The options that apply if the run or the process that resumes it asks for them."""

SURVIVING: Final = (*_SAME, *_REPLACED, *_EITHER)
"""The options that are stored in the manifest."""

_TYPES: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    **dict.fromkeys(("model", "planner"), (str, "text")),
    **dict.fromkeys(("every", "mtbf", "walltime"), ((int, float), "seconds")),
    **dict.fromkeys(("by_variable", "check", "guarded", *_EITHER), (bool, "true or false")),
    "settings": (dict, "a table"),
    "steps": (int, "a whole number"),
    "overlap": ((str, Overlap), "a policy"),
}
"""The types of options, and their names in errors."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for a run. An option that is not given is None or False, or has no entry.

    The attributes have the meaning of the parameters of `Job`. A `control` may also be the path of
    a file. `walltime` is counted in seconds from the start of the process.

    Raises
    ------
    BadInput
        If a value has the wrong type or is out of range.
    """

    model: str | None = None
    settings: Settings = field(default_factory=dict)
    steps: int | None = None
    planner: str | None = None
    by_variable: bool = False
    overlap: Policy | None = None
    every: float | None = None
    mtbf: float | None = None
    allow_nan: bool = False
    allow_rounding: bool = False

    platform: Platform | None = None
    control: Mapping[str, Array] | Path | None = None
    walltime: float | None = None
    guarded: bool = False
    check: bool = False
    journal: Path | TextIO | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.settings, Mapping):
            raise BadInput(
                f"settings = {self.settings!r:.80}; give a dict of the model's options, such as"
                " {'grid': 64}"
            )
        object.__setattr__(self, "settings", {k: _plain(v) for k, v in self.settings.items()})
        for name, control in self.control.items() if isinstance(self.control, Mapping) else ():
            check_unmasked(f"control {name!r}", control)
        for name, (types, words) in _TYPES.items():
            value = _plain(getattr(self, name))
            object.__setattr__(self, name, value)
            is_flag = isinstance(value, bool) and types is not bool  # which is an int in Python
            if value is not None and (is_flag or not isinstance(value, types)):
                raise BadInput(f"{name} = {value!r:.80}; it must be {words}, or None")
        _check_storable(self.settings)
        if self.steps is not None and not 1 <= self.steps < 2**63:
            raise BadInput(f"steps = {self.steps}; a chain has at least 1 step, and less than 2^63")
        for name in ("every", "mtbf", "walltime"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= inf:
                raise BadInput(f"{name} = {value!r}; it must be seconds, and at least 0")
        if isinstance(self.overlap, str):
            object.__setattr__(self, "overlap", policy_of(self.overlap))

    def resumed(self, begun: "Request", /) -> "Request":
        """Return the request of a process that resumes a run which was begun with another one."""
        own = {name: getattr(self, name) for name in _REPLACED}
        return replace(
            self,
            **{name: getattr(begun, name) for name in _SAME},
            **{name: getattr(begun, name) if own[name] is None else own[name] for name in own},
            **{name: getattr(self, name) or getattr(begun, name) for name in _EITHER},
        )

    def differences(self, begun: "Request", /) -> Iterator[str]:
        """Yield a text for each option of this request that differs from that of the begun run."""
        if self.model is not None and _without_folder(self.model) != _without_folder(begun.model):
            yield f"the model is {self.model}, that of the run {begun.model}"
        for name, value in self.settings.items():
            own = begun.settings.get(name)
            if identity("", {name: value}) != identity("", {} if own is None else {name: own}):
                yield f"{option('settings')} {name} is {value}, in the run it {_was(own)}"
        if self.steps not in (None, begun.steps):
            has = "was begun without" if begun.steps is None else f"has {begun.steps}"
            yield f"{option('steps')} is {self.steps}, the run {has}"
        if self.planner not in (None, begun.planner):
            yield f"{option('planner')} is {self.planner}, that of the run {begun.planner}"
        if self.by_variable and not begun.by_variable:
            yield f"{option('by_variable')} is given, the run stores whole checkpoints"

    def to_json(self) -> dict[str, Any]:
        """Return the options that survive the process, as data for JSON."""
        options = {name: getattr(self, name) for name in SURVIVING}
        if isinstance(self.overlap, Overlap):
            options["overlap"] = str(self.overlap)
        return options


def _without_folder(model: str | None) -> str:
    """Return the name of a model without the path to its file, which depends on the directory.

    Whether it computes the same is told by its states.
    """
    return (model or "").rpartition("/")[2]


def _was(value: object) -> str:
    return "was not given" if value is None else f"is {value}"


def _plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, which a manifest can contain."""
    return value.item() if isinstance(value, np.generic) else value


def _check_storable(settings: Settings) -> None:
    """Raise BadInput for a setting that does not come back from the JSON of a manifest."""
    for name, value in settings.items():
        try:
            same = repr(json.loads(json.dumps(value))) == repr(value)
        except (TypeError, ValueError, RecursionError):
            same = False
        if not same:
            raise BadInput(
                f"setting {name!r} = {value!r:.80} cannot be stored in the manifest of the run;"
                " give text (for a path, str(path)), a number, true, false, or a list of these"
            )


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
    code : str or None
        The digest of the code of the model, as of `code_of`; None if it could not be read.
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
        The directory to which relative paths of levels refer, from that of the run: the current
        directory when the run began.
    ranks : int
        The number of ranks. Each has its part of the state and of the levels.
    """

    run: str
    ckio: str
    request: Request
    control: str | None
    given: str | None = None
    code: str | None = None
    chain: Chain
    variables: str | None = None
    platform: str
    adjoints: str | None
    every: float
    here: str = ""
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
            "chain": {name: _listed(cost) for name, cost in self.chain.costs.items()},
            "variables": self.variables,
        }
        return xxhash.xxh3_128(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def dumps(self) -> str:
        """Return the manifest as JSON, which `loads` reads."""
        chain: dict[str, object] = {"steps": self.chain.steps}
        chain |= {name: _listed(cost) for name, cost in self.chain.costs.items()}
        if self.chain.handed:
            chain["handed"] = sorted(kind.value for kind in self.chain.handed)
        if self.chain.tape_restarts:
            chain["tape_restarts"] = True
        entries = {each.name: getattr(self, each.name) for each in fields(self)}
        entries |= {"request": self.request.to_json(), "chain": chain}
        return json.dumps({"format": FORMAT, **entries}, indent=2)

    @staticmethod
    def loads(text: str, /, *, source: str) -> "Manifest":
        """Read a manifest, whose checksum was verified; raises BadInput for another format."""
        entries = json.loads(text)
        if (version := entries.pop("format", None)) != FORMAT:
            raise BadInput(
                f"{source} has format {version!r:.20}; this ckio reads format {FORMAT}; use the"
                " version that began the run, or begin a new run in another directory"
            )
        try:
            costs, request = entries["chain"], Request(**entries["request"])
            costs["handed"] = frozenset(map(Kind, costs.get("handed", ())))
            return Manifest(**{**entries, "request": request, "chain": Chain(**costs)})
        except (CkioError, TypeError, ValueError, LookupError) as error:
            raise BadInput(f"{source} is damaged: {error}") from None


def _listed(cost: object) -> object:
    return list(cost) if isinstance(cost, PerStep) else cost
