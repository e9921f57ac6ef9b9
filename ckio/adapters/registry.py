"""Backends, planners, codecs and models by name, including those of other packages.

All of them are entry points, in the groups `ckio.backends`, `ckio.planners`, `ckio.codecs` and
`ckio.models`. An entry point is imported only when its name is used.
"""

import hashlib
import importlib
import importlib.machinery
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ckio.backends.base import Backend
from ckio.backends.runid import RunId, computing, rank_of
from ckio.errors import BadInput, CkioError
from ckio.parallel.group import ALONE, RankGroup
from ckio.platform import Level, Platform
from ckio.platform.readable import did_you_mean, path_of

if TYPE_CHECKING:  # this module imports zstandard
    from ckio.compression import Codec

GROUPS: Final = ("backends", "planners", "codecs", "models")

AUTO: Final = "auto"
"""The codec option with which calibration chooses a codec."""

METHODS: Final = ("layout", "advance", "record", "reverse", "dump", "load")
"""The methods of every model."""

_PRIVATE: Final = "_ckio_file_"
"""The beginning of the names of modules that were imported from a given file."""

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_OF_CODEC: Final = re.compile(r"codec$|codec_(.*)")
_OF_COPIES: Final = frozenset({"copies", "copies_every"})
"""The options of a level that are about its codec, and the codec's own names of them."""

_WORDS: Final = frozenset({"str", "int", "float", "bool", "None"})
"""The types of options that can be written as text."""


@cache
def _entries(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of each name: one, or more if several packages use the name."""
    entries: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=f"ckio.{group}"):
        entries[entry.name] = *entries.get(entry.name, ()), entry
    return entries


def names(group: str, /) -> list[str]:
    """Return the names known in a group, sorted."""
    return sorted(_entries(group))


def find(group: str, name: str, /) -> Any:
    """Return the object that is registered as `name` in a group.

    Raises BadInput, with the most similar known names, if the name is not registered. Raises
    BadInput also if several packages registered it, or if it cannot be imported.
    """
    entries, what = _entries(group), group.removesuffix("s")
    if not entries:
        raise BadInput(
            "ckio is imported, but not installed, so that its planners and backends are not known;"
            " run `pip install .` in its directory, or `pip install ckio`"
        )
    if name not in entries:
        raise BadInput(
            f"no {what} is named {name!r}; {did_you_mean(name, entries, cutoff=0.6)}"
            f" (a {what} of another package is known only if that package is installed)"
        )
    entry, *others = entries[name]
    if others:
        raise BadInput(
            f"{what} {name!r} is registered by {' and by '.join(map(_package, entries[name]))};"
            " only one package may register a name: uninstall all but one"
        )
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        whose = "" if is_ours(group, name) else f" of {_package(entry)}"
        raise BadInput(f"{what} {name!r}{whose} cannot be imported: {_text_of(error)}") from error


def is_ours(group: str, name: str, /) -> bool:
    """Return whether ckio itself registers a name, and no other package."""
    entries = _entries(group).get(name, ())
    return bool(entries) and all(entry.module.partition(".")[0] == "ckio" for entry in entries)


def _package(entry: EntryPoint) -> str:
    """Return the package that registers an entry, with its version."""
    package = entry.dist
    return entry.module if package is None else f"{package.name} {package.version}"


def find_model(name: str, /) -> Any:
    """Return the object of the name of a model: its class, or a function that makes a new model.

    `name` is a registered name, MODULE:ATTRIBUTE, FILE.py:ATTRIBUTE or FILE.py. A module may be in
    the current directory. If a file is given without an attribute, it must contain exactly one
    class of a model. Raises BadInput if the name cannot be imported.
    """
    if file := re.fullmatch(r"(.*\.py)(?::(.+))?", name, re.DOTALL):
        module = _import_file(name, path_of(file[1]))
        return _attribute(module, file[2], name) if file[2] else _only_model(module, name)
    where, colon, attributes = name.partition(":")
    if not colon:
        return find("models", name)
    if where.startswith(".") or not where or not attributes:
        raise BadInput(
            f"model {name!r}: write a registered name, MODULE:ATTRIBUTE, FILE.py:ATTRIBUTE, or"
            " FILE.py with one model in it"
        )
    return _attribute(_import_module(name, where), attributes, name)


def _import_module(name: str, module: str) -> ModuleType:
    """Import a module, which may be in the current directory; raises BadInput."""
    _import_from(Path.cwd())
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise BadInput(f"model {name!r} cannot be imported: {_text_of(error)}") from error


def _import_file(name: str, file: Path) -> ModuleType:
    """Import a file as a module with a private name, once in a process; raises BadInput.

    The private name depends on the whole path, so that two files with one name are two modules. It
    is in sys.modules, so that this process and its forks can unpickle instances of its classes.
    """
    path = Path(os.path.realpath(file))
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    private = f"{_PRIVATE}{re.sub('[^A-Za-z0-9_]', '_', path.stem)}_{digest}"
    if private in sys.modules:
        return sys.modules[private]
    try:
        exists = path.is_file()
    except OSError as error:
        raise BadInput(f"model {name!r}: {str(file)!r}: {error.strerror}") from None
    if not exists:
        siblings = [str(file.with_name(it.name)) for it in path.parent.glob("*.py")]
        question = _near(str(file), siblings)
        raise BadInput(f"model {name!r}: there is no file {str(file)!r}{question}")
    loader = importlib.machinery.SourceFileLoader(private, str(path))
    module = ModuleType(private)
    module.__file__, sys.modules[private] = str(path), module
    _import_from(path.parent)
    try:
        loader.exec_module(module)
    except BaseException as error:
        del sys.modules[private]
        if not isinstance(error, Exception | SystemExit):
            raise
        in_package = isinstance(error, ImportError) and "relative import" in str(error)
        hint = "; it is part of a package: write MODULE:ATTRIBUTE" * in_package
        raise BadInput(f"model {name!r} cannot be imported: {_text_of(error)}{hint}") from error
    return module


def _import_from(folder: Path) -> None:
    """Let Python search this directory first for modules, as `python FILE` does.

    This is done only when a model needs it, because a file in the directory hides a module of
    Python that has the same name.
    """
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _attribute(module: ModuleType, attributes: str, name: str) -> Any:
    """Return an attribute, such as "A" or "A.b", of a module.

    Raises BadInput, with the most similar name, if it does not exist.
    """
    where: Any = module
    for attribute in attributes.split("."):
        try:
            where = getattr(where, attribute)
        except Exception as error:
            known = [it for it in dir(where) if not it.startswith("_")]
            hint = _near(attribute, known) if isinstance(error, AttributeError) else ""
            text = _text_of(error)
            if module.__name__.startswith(_PRIVATE):
                text = text.replace(module.__name__, Path(module.__file__ or "").name)
            raise BadInput(f"model {name!r} cannot be imported: {text}{hint}") from error
    return where


def _only_model(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return the only model of a file: a class, or what `ckio.functions` returns.

    Raises BadInput if it defines none or several.
    """
    models: dict[str, Callable[..., Any]] = {
        name: thing
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and getattr(thing, "__module__", "") == module.__name__
        and (makes_models(thing) or (inspect.isclass(thing) and _is_model(thing)))
    }
    if len(models) == 1:
        return next(iter(models.values()))
    if models:
        raise BadInput(
            f"model {name!r}: the file has several models: {', '.join(models)}; name one of them,"
            f" for example {name}:{next(iter(models))}"
        )
    raise BadInput(
        f"model {name!r}: the file has no model: no class in it has the methods"
        f" {', '.join(METHODS)}; define them, or name a function that returns the model after a"
        " colon"
    )


def makes_models(thing: object, /) -> bool:
    """Return whether an object is what `ckio.functions` returns: a function that makes models."""
    return callable(getattr(thing, "model_of", None))


def _is_model(thing: type) -> bool:
    return not inspect.isabstract(thing) and all(hasattr(thing, method) for method in METHODS)


def _parameters(factory: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return the parameters of a factory, or None for a function in C without a signature."""
    try:
        return list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        return None


def _near(name: str, known: Iterable[str]) -> str:
    """Return a question with the most similar known name, or "" if none is similar."""
    question = did_you_mean(name, known, rule=" ")
    return f"; {question}" if question.strip() else ""


def check_options(what: str, factory: Callable[..., Any], options: Iterable[str], /) -> None:
    """Raise BadInput if `factory` lacks a given option, or needs an option that is not given.

    `what` is the name of the factory in the message.
    """
    if (parameters := _parameters(factory)) is None:
        return
    known = [parameter.name for parameter in parameters if parameter.kind in _NAMED]
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    for name in options:
        if name not in known and not anything:
            raise BadInput(f"{what} has no option {name!r}; {did_you_mean(name, known)}")
    for parameter in parameters:
        needed = parameter.default is parameter.empty and parameter.kind in _NAMED
        if needed and parameter.name not in options:
            raise BadInput(f"{what} needs the option {parameter.name!r}; give it a value")


def options_of(factory: Callable[..., Any], /) -> dict[str, Any]:
    """Return the options of `factory` that can be written as text, with their defaults."""
    return {
        parameter.name: parameter.default
        for parameter in _parameters(factory) or ()
        if parameter.kind in _NAMED and _WORDS.issuperset(_types(parameter))
    }


def _types(parameter: inspect.Parameter) -> list[str]:
    """Return the names of the types in an option's annotation, which may be a string."""
    return inspect.formatannotation(parameter.annotation).strip("'").split(" | ")


def make(what: str, factory: Callable[..., Any], options: Mapping[str, Any], /) -> Any:
    """Return `factory(**options)`.

    Raises BadInput for wrong options and for exceptions of the factory. An error of ckio keeps its
    class, and `what`, the name of the factory, is added to its message.
    """
    check_options(what, factory, options)
    if lacking := sorted(getattr(factory, "__abstractmethods__", ())):
        raise BadInput(f"{what} has no {' and '.join(lacking)}; define it")
    try:
        return factory(**options)
    except CkioError as error:
        name = what.rpartition(": ")[2]  # ckio's own factories begin their messages with it
        error.args = (f"{what}: {str(error).removeprefix(f'{name}: ')}",)
        raise
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        raise BadInput(f"{what} cannot be created: {_text_of(error)}") from error


def backend_of(level: Level, /) -> type[Backend]:
    """Return the class of a level's backend; raises BadInput if the level has none."""
    if not level.backend:
        raise BadInput(
            f"level {level.name!r} has no backend, so that it is only for plans and simulations;"
            ' give it backend="ram" for memory, or options={"path": ...} for a directory or an'
            " archive (.h5)"
        )
    return find_backend(level.backend)


def find_backend(name: str, /) -> type[Backend]:
    """Return the class of the backend that is registered as `name`; raises BadInput."""
    backend = find("backends", name)
    if not (inspect.isclass(backend) and issubclass(backend, Backend)):
        raise BadInput(
            f"backend {name!r} is not a class derived from ckio.backends.base.Backend; derive it"
        )
    return backend


def place(level: Level, run: str, /) -> Path | None:
    """Return the path of the files of a run on a level, or None if the level has no files.

    `run` is the name of the run. If it is "", the path is that of the level itself.
    """
    path, backend = level.options.get("path"), backend_of(level)
    if path is None:
        return None
    own = rank_of(run)[0] if takes(backend, "ranks") else run
    whole = path_of(str(path))
    return backend.for_run(whole, own) if run else whole


def is_shared(level: Level, /) -> bool:
    """Return whether all ranks of a job share the storage, because its factory takes `ranks`."""
    return takes(backend_of(level), "ranks")


def open_level(
    level: Level, /, *, run: str = "", ranks: RankGroup = ALONE, identity: str = ""
) -> Backend:
    """Open the storage of a level for the run called `run`, or for one rank's part of the run.

    `identity` is the digest of the run's computation. It is stored together with the run's name.
    The option `codec` of the level names its codec, and `codec_X` is the option X of the codec. The
    option `path` is the directory or file of the level, and each run has its own files there. If
    all ranks share the level, this is a collective call of `ranks`. The option `copies` is the
    directory for copies of the files of runs, and `copies_every` the seconds between two copies.
    Raises ForeignLevel if the files belong to another run, and BadInput for wrong options.
    """
    codec = codec_of(level)  # before the level is opened, which an error would leave open
    what = f"level {level.name!r}"
    factory = backend_of(level)
    options: dict[str, Any] = {**plain(level).options, "capacity": level.capacity}
    if shared := takes(factory, "ranks"):
        if codec is not None:
            raise BadInput(f"{what} takes no codec, because its slots have one size; use hdf5")
        if copies_at(level, run) is not None:
            raise BadInput(f"{what} takes no copies, because all ranks share its file; use hdf5")
        options["ranks"] = ranks
    if (where := place(level, run)) is not None:
        own = RunId(computing(rank_of(run)[0] if shared else run, identity))
        options |= {"path": where, **({"run": own} if takes(factory, "run") else {})}
    backend: Backend = make(what, factory, options)
    if (at := copies_at(level, run)) is not None:
        backend = _with_copies(level, backend, at, RunId(computing(run, identity)))
    if codec is None:
        return backend
    from ckio.backends.compressed import Compressed

    return Compressed(backend, codec, ratio=level.ratio)


def _with_copies(level: Level, backend: Backend, at: Path, run: RunId) -> Backend:
    """Return a level whose checkpoints are copied to another directory."""
    from ckio.backends.copied import Copied
    from ckio.backends.directory import Directory

    what = f"level {level.name!r}"
    try:
        copies = make(f"{what}: copies", Directory, {"path": at, "run": run})
        return Copied(backend, copies, every=float(level.options["copies_every"]), name=what)
    except BaseException:
        backend.close()
        raise


def copies_at(level: Level, run: str, /) -> Path | None:
    """Return the directory with the copies of the files of a run on a level, or None."""
    from ckio.backends.directory import Directory

    path = level.options.get("copies")
    return Directory.for_run(path_of(str(path)), run) if path is not None and run else None


def takes(factory: Callable[..., Any], option: str, /) -> bool:
    """Return whether a factory has an option of this name."""
    return any(parameter.name == option for parameter in _parameters(factory) or ())


def codec_of(level: Level, /) -> "Codec | None":
    """Return the codec of a level, or None; raises BadInput if the codec is not available."""
    what, name = f"level {level.name!r}", level.options.get("codec")
    options = {
        match[1]: value
        for option, value in level.options.items()
        if (match := _OF_CODEC.match(option)) and match[1]
    }
    if name is None:
        if options:
            raise BadInput(f"{what}: {level.backend} has no codec for 'codec_{min(options)}'")
        return None
    if name == AUTO:
        raise BadInput(
            f"{what}: codec = 'auto' is for `ckio calibrate --model`, which measures the codecs and"
            f" chooses one; calibrate, or name one of: {', '.join(names('codecs'))}"
        )
    if name not in names("codecs"):
        near = did_you_mean(str(name), names("codecs"), cutoff=0.75)
        raise BadInput(f"{what}: no codec is named {name!r}; {near}")
    codec: Codec = make(f"{what}: {name}", find("codecs", str(name)), options)
    return codec


def lossless_codecs() -> "dict[str, Codec]":
    """Return every lossless codec that is available without options, by name."""
    codecs: dict[str, Codec] = {}
    for name in names("codecs"):
        with suppress(BadInput):  # it needs a package that is not installed, or an option
            codecs[name] = make(name, find("codecs", name), {})
    return {name: codec for name, codec in codecs.items() if codec.lossless}


def plain(level: Level, /) -> Level:
    """Return the level without its codec and its copies."""
    own = without_copies(level).options
    own = {name: value for name, value in own.items() if not _OF_CODEC.match(name)}
    return replace(level, options=own)


def without_copies(level: Level, /) -> Level:
    """Return the level without its copies."""
    own = {name: value for name, value in level.options.items() if name not in _OF_COPIES}
    return replace(level, options=own)


def lossy(platform: Platform, /) -> dict[str, str]:
    """Return the names of the levels whose codec may be lossy, each with the codec's name.

    A codec that is not available in this process counts as lossy.
    """
    codecs = {}
    for level in platform.levels:
        try:
            codec = codec_of(level)
        except BadInput:
            codecs[level.name] = f"{level.options.get('codec')}, which is not available here"
            continue
        if codec is not None and not codec.lossless:
            codecs[level.name] = codec.name
    return codecs


def _text_of(error: BaseException) -> str:
    """Return the text of another package's error, with its class."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")
