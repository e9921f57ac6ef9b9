"""The request for a run, in one record, and the manifest that a begun run keeps of it.

A `Request` is what a command line or a Python caller says. An option that survives the process is
a field made by `_option`: its types say what a manifest may hold, and `resume` what becomes of it
when the run is resumed. The `Manifest` is the request as the run was begun, and what was found out
then.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, TextIO

import xxhash

from ckio.actions import Kind
from ckio.actions.checks import is_whole
from ckio.errors import BadInput, CkioError
from ckio.jobs.models import Settings, identity
from ckio.model import Array
from ckio.platform import Platform
from ckio.platform.chain import COSTS, Chain, PerStep
from ckio.schedule.policy import Overlap, Policy, policy_of

FORMAT: Final = 2

DAY: Final = 86400.0

MOST_RANKS: Final = 1 << 20
"""The most ranks that a run may have."""

_RUN: Final = re.compile(r"[0-9a-f]{8}")
_DIGEST: Final = re.compile(r"[0-9a-f]{1,64}")

Resume = Literal["same", "replace", "either"]
"""How an option of a resumed run relates to the one that it was begun with: it has to be the same,
takes its place, or holds if either process asks for it."""


def _option(default: Any, *types: type, said: str, resume: Resume) -> Any:
    """Return a field of an option that survives the process."""
    metadata = {"types": types, "said": said, "resume": resume}
    if default is dict:
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for a run; None, False, and no entry, where something is not said.

    Attributes
    ----------
    model : str or None
        The name of the model, as a command line gives it.
    settings : mapping
        The model's options.
    steps : int or None
        None also for a model that says itself when it is finished.
    planner, options
        The planner's name and its own options.
    overlap : Overlap, "auto" or None
    effort : int or None
        How long to search for plans with overlap.
    every : float or None
        Seconds of work between two adjoint checkpoints; None for Daly's interval.
    mtbf : float or None
        Mean seconds between two failures of the machine; None for a day.
    keep : bool
        Whether checkpoints stay on the levels when the run has ended.
    by_variable : bool
        Whether each variable of a state is stored only where it is needed.
    allow_nan : bool
        Whether values that are not finite do not stop the run.
    gradient : str or None
        Another file for the gradient than the one in the run's directory.
    platform : Platform or None
    control : mapping of str to array, or None
        The controls to begin with, instead of the model's own.
    walltime : float or None
        Seconds after which the process has to have ended.
    guarded, check : bool
        Whether each step is held against what is declared of it; whether the gradient is verified.
    journal : Path, text file or None
        Where a line of JSON for each action goes.

    Raises
    ------
    BadInput
        Where a value is of the wrong type or out of range.
    """

    model: str | None = _option(None, str, said="the model", resume="same")
    settings: Settings = _option(dict, dict, said="--set", resume="same")  # noqa: RUF009
    steps: int | None = _option(None, int, said="--steps", resume="same")
    planner: str | None = _option(None, str, said="--planner", resume="same")
    options: Mapping[str, Any] = _option(dict, dict, said="--", resume="same")
    by_variable: bool = _option(False, bool, said="--by-variable", resume="same")
    overlap: Policy | None = _option(None, str, said="--overlap", resume="replace")  # noqa: RUF009
    effort: int | None = _option(None, int, said="--effort", resume="replace")
    every: float | None = _option(None, float, said="--every", resume="replace")
    mtbf: float | None = _option(None, float, said="--mtbf", resume="replace")
    gradient: str | None = _option(None, str, said="--gradient", resume="replace")
    keep: bool = _option(False, bool, said="--keep", resume="either")
    allow_nan: bool = _option(False, bool, said="--allow-nan", resume="either")

    platform: Platform | None = None
    control: Mapping[str, Array] | None = None
    walltime: float | None = None
    guarded: bool = False
    check: bool = False
    journal: Path | TextIO | None = None

    def __post_init__(self) -> None:
        for name in ("settings", "options"):
            object.__setattr__(self, name, dict(getattr(self, name)))
        for option in surviving():
            value, types = getattr(self, option.name), option.metadata["types"]
            if option.name == "overlap" and isinstance(value, Overlap | None):
                continue
            if value is not None and not _is_of(value, types):
                name = option.name
                raise BadInput(f"{name} = {value!r:.80}; it must be {_words(types)}, or None")
        if self.steps is not None and not 1 <= self.steps < 2**63:
            raise BadInput(f"steps = {self.steps}; a chain has at least 1")
        for name, least in (("every", 0.0), ("mtbf", 0.0), ("walltime", 0.0)):
            value = getattr(self, name)
            if value is not None and not least <= value <= inf:
                raise BadInput(f"{name} = {value!r}; it must be seconds, and at least 0")
        if self.effort not in (None, 1, 2, 3):
            raise BadInput(f"effort = {self.effort}; it must be 1, 2 or 3")
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
        """Say what is given here and is not the same in the run as it was begun."""
        if self.model not in (None, begun.model):
            yield f"the model is {self.model}, that of the run {begun.model}"
        for name, value in self.settings.items():
            there = begun.settings.get(name)
            if identity("", {name: value}) != identity("", {} if there is None else {name: there}):
                yield f"--set {name} is {value}, in the run it {_was(there)}"
        if self.steps not in (None, begun.steps):
            has = "was begun without" if begun.steps is None else f"has {begun.steps}"
            yield f"--steps is {self.steps}, the run {has}"
        if self.planner not in (None, begun.planner):
            yield f"--planner is {self.planner}, that of the run {begun.planner}"
        for name, value in self.options.items():
            if value is not None and value != (there := begun.options.get(name)):
                yield f"--{name} is {value}, in the run it {_was(there)}"
        if self.by_variable and not begun.by_variable:
            yield "--by-variable is given, the run stores whole checkpoints"

    def to_json(self) -> dict[str, Any]:
        """Return what survives the process, in what JSON has."""
        said = {option.name: getattr(self, option.name) for option in surviving()}
        if isinstance(self.overlap, Overlap):
            said["overlap"] = str(self.overlap)
        return said


def surviving() -> list[Any]:
    """Return the fields of the options that survive the process."""
    return [each for each in fields(Request) if each.metadata]


def _was(there: object) -> str:
    return "was not given" if there is None else f"is {there}"


def _is_of(value: object, types: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, (*types, int) if float in types else types)


def _words(types: tuple[type, ...]) -> str:
    names = {str: "text", dict: "a table", int: "a whole number", float: "a number", bool: "true"}
    return " or ".join(names[each] for each in types)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The identity of a run, and all that a later process needs to resume it.

    Attributes
    ----------
    run : str
        The id of the run on its levels: eight hexadecimal digits.
    ckio : str
        The version that began it.
    request : Request
        What was asked for, with the planner and the overlap that were decided.
    control : str or None
        The digest of the controls at the start; None where the model has none to show.
    given : str or None
        Where these controls were given, the checksum of their file in the run's directory.
    chain : Chain
        Steps, and all costs as they were first known: a resumed run does not measure again. There
        are no steps as long as a run of unknown length goes forward.
    variables : str or None
        The digest of what the model declares of its variables, where they are stored one by one.
    platform : str
        The digest of the platform, which itself is in schedule.txt.
    adjoints : str or None
        The name of the level for adjoint checkpoints; None where no level can keep them.
    every : float
        Seconds of predicted work between two of them.
    here : str
        The directory in which it was begun, from which relative paths of levels count; "" where
        that is not known.
    ranks : int
        How many ranks it has, each with its part of the state and of the levels.
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
    ranks: int = 1

    @cached_property
    def identity(self) -> str:
        """Return the digest of what is computed: model, settings, controls, chain and variables.

        It is stored with each checkpoint, so that none is read for another computation.
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
        """Return it as JSON; `loads` reads it back, equal."""
        chain: dict[str, object] = {"steps": self.chain.steps}
        chain |= {name: _listed(getattr(self.chain, name)) for name in COSTS}
        if self.chain.handed:
            chain["handed"] = sorted(kind.value for kind in self.chain.handed)
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        said |= {"request": self.request.to_json(), "chain": chain, "identity": self.identity}
        return json.dumps({"format": FORMAT, **said}, indent=2)

    @staticmethod
    def loads(text: str, /, *, source: str) -> "Manifest":
        """Read it; raises BadInput where it is of another format, or says what cannot be."""
        try:
            said = json.loads(text)
            version = said.pop("format")
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise BadInput(f"{source} is damaged: it does not say which run this is") from None
        if version != FORMAT:
            raise BadInput(f"{source} has format {version!r:.20}; this ckio reads format {FORMAT}")
        try:
            digest = said.pop("identity")
            costs, request = dict(said["chain"]), dict(said["request"])
            handed = frozenset(map(Kind, costs.pop("handed", ())))
            chain = Chain(**costs, handed=handed)
            manifest = Manifest(**{**said, "request": Request(**request), "chain": chain})
            manifest._check()
        except (CkioError, TypeError, ValueError, LookupError, RecursionError) as error:
            raise BadInput(f"{source} is damaged: {error}") from None
        if digest != manifest.identity:
            raise BadInput(
                f"{source} is damaged: it is not of the computation that it was made for"
            )
        return manifest

    def _check(self) -> None:
        """Raise ValueError for what no run says of itself."""
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
            "ranks": is_whole(said["ranks"]) and 1 <= self.ranks <= MOST_RANKS,
            "request": request.model and request.planner and isinstance(request.overlap, Overlap),
        }
        for name, holds in rules.items():
            if not holds:
                raise ValueError(f"{name} cannot be {said[name]!r:.80}")


def _is_plain(here: Path) -> bool:
    """Whether a directory is none, or absolute and without a way up."""
    return here == Path() or (here.is_absolute() and ".." not in here.parts)


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _listed(cost: object) -> object:
    return list(cost) if isinstance(cost, PerStep) else cost
