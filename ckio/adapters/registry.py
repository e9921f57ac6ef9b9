"""Backends, planners, codecs and models by name, also those of other packages.

All of them are entry points, in the groups `ckio.backends`, `ckio.planners`, `ckio.codecs` and
`ckio.models`. An entry is imported when it is needed.
"""

import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import pkgutil
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
from ckio.platform import Level, Option, Platform
from ckio.platform.readable import meant

if TYPE_CHECKING:  # which brings zstandard in
    from ckio.compression import Codec

GROUPS: Final = ("backends", "planners", "codecs", "models")

AUTO: Final = "auto"
"""The codec that calibration chooses."""

METHODS: Final = ("layout", "advance", "record", "reverse", "dump", "load")
"""The methods of every model."""

_PRIVATE: Final = "_ckio_file_"
"""The beginning of the names of modules that are files."""

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_WORDS: Final = frozenset({"str", "int", "float", "bool", "None"})
"""The types of options that can be written as text."""


@cache
def _entries(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of each name: one, unless packages disagree."""
    entries: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=f"ckio.{group}"):
        entries[entry.name] = *entries.get(entry.name, ()), entry
    return entries


def names(group: str, /) -> list[str]:
    """Return the names known in a group, sorted."""
    return sorted(_entries(group))


def find(group: str, name: str, /) -> Any:
    """Return the object called `name` in a group.

    Raises BadInput if there is none, with the nearest known names, and if there are two.
    """
    entries, what = _entries(group), group.removesuffix("s")
    if name not in entries:
        raise BadInput(
            f"no {what} is named {name!r}; {meant(name, entries)}"
            " (what another package brings is found where that is installed)"
        )
    entry, *others = entries[name]
    if others:
        raise BadInput(
            f"{what} {name!r} is registered by {' and by '.join(map(_package, entries[name]))};"
            " which is meant cannot be told: uninstall all but one"
        )
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        whose = "" if is_ours(group, name) else f" of {_package(entry)}"
        raise BadInput(f"{what} {name!r}{whose} cannot be imported: {_told(error)}") from error


def is_ours(group: str, name: str, /) -> bool:
    """Return whether ckio itself registers a name, and no other package."""
    entries = _entries(group).get(name, ())
    return bool(entries) and all(entry.module.partition(".")[0] == "ckio" for entry in entries)


def _package(entry: EntryPoint) -> str:
    """Return the package that brings an entry, with its version."""
    package = entry.dist
    return entry.module if package is None else f"{package.name} {package.version}"


def find_model(name: str, /) -> Callable[..., Any]:
    """Return the factory of a model.

    A name is a registered name, MODULE:ATTRIBUTE, FILE.py:ATTRIBUTE or FILE.py. A module may be in
    the current directory. A file without an attribute must contain exactly one model, which is a
    class or a function that returns one. Raises BadInput.
    """
    model = find_object(name)
    if not callable(model):
        raise BadInput(f"model {name!r} cannot be called; it must make a fresh model")
    return model  # type: ignore[no-any-return]


def find_object(name: str, /) -> Any:
    """Return the object of a name, as `find_model` does, even if it is no model."""
    file, attributes = _file_and_attributes(name)
    module, colon, rest = name.partition(":")
    if file is not None and attributes is None:
        return _only_model(_import_file(name, file), name)
    if file is not None:
        return _attribute(_import_file(name, file), attributes or "", name)
    if not colon:
        return find("models", name)
    if module.startswith(".") or not module or not rest:
        raise BadInput(
            f"model {name!r}: write a registered name, MODULE:ATTRIBUTE, FILE.py:ATTRIBUTE, or"
            " FILE.py with one model in it"
        )
    return _attribute(_import_module(name, module), rest, name)


def _file_and_attributes(name: str) -> tuple[Path | None, str | None]:
    """Return the Python file of a model, and the attributes after a colon; None where absent.

    >>> _file_and_attributes("runs/wave.py:Wave"), _file_and_attributes("wave:Wave")
    ((PosixPath('runs/wave.py'), 'Wave'), (None, None))
    """
    match = re.fullmatch(r"(.*\.py)(?::(.*))?", name, re.DOTALL)
    if match is None or match[2] == "":
        return None, None
    return Path(match[1]), match[2]


def _import_module(name: str, module: str) -> ModuleType:
    """Import a module, which may be in the current directory; raises BadInput."""
    _import_from(Path.cwd())
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        hint = _near_module(module, error.name or "")
        raise BadInput(f"model {name!r} cannot be imported: {_told(error)}{hint}") from error
    except (Exception, SystemExit) as error:
        raise BadInput(f"model {name!r} cannot be imported: {_told(error)}") from error


def _near_module(module: str, missing: str) -> str:
    """Return a question after a similar module beside a missing one."""
    parent, _, last = missing.rpartition(".")
    if not f"{module}.".startswith(f"{missing}.") or not last:
        return ""  # what is missing is imported by the module, and was not typed
    places = getattr(sys.modules.get(parent), "__path__", None) if parent else [str(Path.cwd())]
    return _near(last, [it.name for it in pkgutil.iter_modules(places)] if places else [])


def _import_file(name: str, file: Path) -> ModuleType:
    """Import a file as a module under a name of its own, once in a process; raises BadInput.

    The name is made from the whole path, so that two files called alike are two modules. It is
    among the known modules, so that pickled instances are read back in this process and its forks.
    """
    path = Path(os.path.realpath(file))
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    private = f"{_PRIVATE}{re.sub('[^A-Za-z0-9_]', '_', path.stem)}_{digest}"
    if private in sys.modules:
        return sys.modules[private]
    if not path.is_file():
        beside = [str(file.with_name(it.name)) for it in path.parent.glob("*.py")]
        raise BadInput(f"model {name!r}: there is no file {str(file)!r}{_near(str(file), beside)}")
    loader = importlib.machinery.SourceFileLoader(private, str(path))
    spec = importlib.util.spec_from_file_location(private, path, loader=loader)
    if spec is None:
        raise BadInput(f"model {name!r}: {str(file)!r} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[private] = module
    _import_from(path.parent)
    try:
        loader.exec_module(module)
    except BaseException as error:
        del sys.modules[private]
        if not isinstance(error, Exception | SystemExit):
            raise
        in_package = isinstance(error, ImportError) and "relative import" in str(error)
        hint = "; it is part of a package: write MODULE:ATTRIBUTE" * in_package
        raise BadInput(f"model {name!r} cannot be imported: {_told(error)}{hint}") from error
    return module


def _import_from(folder: Path) -> None:
    """Let modules be found in this directory first, as `python FILE` does.

    Not before a model asks for it: a file that is called like one of Python's own modules hides it.
    """
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _attribute(module: ModuleType, attributes: str, name: str) -> Any:
    """Return an attribute, maybe one of another; raises BadInput with the nearest name."""
    where: Any = module
    for attribute in attributes.split("."):
        try:
            where = getattr(where, attribute)
        except Exception as error:
            known = [it for it in dir(where) if not it.startswith("_")]
            hint = _near(attribute, known) if isinstance(error, AttributeError) else ""
            text = _told(error)
            if module.__name__.startswith(_PRIVATE):
                text = text.replace(module.__name__, Path(module.__file__ or "").name)
            raise BadInput(f"model {name!r} cannot be imported: {text}{hint}") from error
    return where


def _only_model(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return the one model that a file defines; raises BadInput where it has none, or several."""
    models = _models_of(module)
    if len(models) == 1:
        return next(iter(models.values()))
    if models:
        raise BadInput(
            f"model {name!r}: the file has several models: {', '.join(models)}; say which one,"
            f" as in {name}:{next(iter(models))}"
        )
    others = [
        word
        for word, thing in vars(module).items()
        if _is_defined_in(module, word, thing) and not inspect.isclass(thing)
    ]
    hint = f", as in {name}:{others[0]}" if others else ""
    raise BadInput(
        f"model {name!r}: the file has no model: no class in it has the methods"
        f" {', '.join(METHODS)} and can be made from options, and no function says that it returns"
        f" one; where there is one, name it after a colon{hint}"
    )


def _models_of(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the models that a module defines itself, by name.

    They are its classes with the methods of a model, and the functions that are annotated to return
    such a class, as far as all that they need can be written in a word. Without any, they are the
    functions without that annotation in whose code a class of the module that is a model is named.
    """
    own = {
        word: thing
        for word, thing in vars(module).items()
        if _is_defined_in(module, word, thing) and _is_made_of_words(thing)
    }
    returned = {word: _returned(thing) for word, thing in own.items()}
    words = [word for word, thing in own.items() if _is_model_class(thing)]
    words += [word for word, kind in returned.items() if _has_methods(kind)]
    if not words:
        classes = {word for word, thing in vars(module).items() if _is_model_class(thing)}
        for word, thing in own.items():
            named = getattr(getattr(thing, "__code__", None), "co_names", ())
            if returned[word] is inspect.Signature.empty and classes.intersection(named):
                words.append(word)
    return {word: own[word] for word in words}


def _is_defined_in(module: ModuleType, word: str, thing: object) -> bool:
    """Return whether a module defines a name as a public class or function."""
    is_code = inspect.isclass(thing) or inspect.isfunction(thing)
    named = getattr(thing, "__module__", None), getattr(thing, "__name__", None)
    return is_code and named == (module.__name__, word) and not word.startswith("_")


def _is_model_class(thing: object) -> bool:
    return inspect.isclass(thing) and not inspect.isabstract(thing) and _has_methods(thing)


def _has_methods(thing: object) -> bool:
    return inspect.isclass(thing) and all(hasattr(thing, method) for method in METHODS)


def _returned(thing: Callable[..., Any]) -> Any:
    """Return the annotation of a function's result; `Signature.empty` where there is none."""
    if inspect.isclass(thing):
        return None
    try:
        return inspect.signature(thing, eval_str=True).return_annotation
    except Exception:  # an annotation may name what is imported for type checkers alone
        return inspect.Signature.empty


def _is_made_of_words(thing: Callable[..., Any]) -> bool:
    """Return whether all that a call needs can be given as --set NAME=VALUE."""
    parameters = _parameters(thing)
    return parameters is not None and all(
        parameter.kind in _NAMED
        and (parameter.annotation is parameter.empty or _WORDS.issuperset(_types(parameter)))
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    )


def _parameters(factory: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return the parameters of a factory; None for something in C that does not say."""
    try:
        return list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        return None


def _near(name: str, known: Iterable[str]) -> str:
    """Return a question after the most similar known name; "" where none is similar."""
    question = meant(name, known, rule=" ")
    return f"; {question}" if question.strip() else ""


def check_options(what: str, factory: Callable[..., Any], options: Iterable[str], /) -> None:
    """Raise BadInput if `factory` has no such option, or needs one that is not given."""
    if (parameters := _parameters(factory)) is None:
        return
    known = [parameter.name for parameter in parameters if parameter.kind in _NAMED]
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    for name in options:
        if name not in known and not anything:
            raise BadInput(f"{what} has no option {name!r}; {meant(name, known)}")
    for parameter in parameters:
        needed = parameter.default is parameter.empty and parameter.kind in _NAMED
        if needed and parameter.name not in options:
            raise BadInput(f"{what} needs the option {parameter.name!r}")


def options_of(factory: Callable[..., Any], /) -> dict[str, Any]:
    """Return the options of `factory` that can be given as text, with their defaults."""
    return {
        parameter.name: parameter.default
        for parameter in _parameters(factory) or ()
        if parameter.kind in _NAMED and _WORDS.issuperset(_types(parameter))
    }


def _types(parameter: inspect.Parameter) -> list[str]:
    """Return the names of the types of an option, however its annotation is written."""
    return inspect.formatannotation(parameter.annotation).strip("'").split(" | ")


def make(what: str, factory: Callable[..., Any], options: Mapping[str, Any], /) -> Any:
    """Call `factory(**options)`; wrong options and exceptions of the factory become BadInput."""
    check_options(what, factory, options)
    try:
        return factory(**options)
    except CkioError as error:
        name = what.rpartition(": ")[2]  # which our own say themselves
        error.args = (f"{what}: {str(error).removeprefix(f'{name}: ')}",)
        raise
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        raise BadInput(f"{what} cannot be made: {_told(error)}") from error


def place(level: Level, run: str, /) -> Path | None:
    """Return the path of the files of the run called `run`, or None if a level has no files."""
    path, factory = level.options.get("path"), find("backends", level.backend)
    for_run = getattr(factory, "for_run", None)
    if path is None or for_run is None:
        return None
    own = rank_of(run)[0] if takes(factory, "ranks") else run
    return Path(for_run(Path(str(path)), own)) if run else Path(str(path))


def is_shared(level: Level, /) -> bool:
    """Return whether all ranks of a job share one storage, because its factory takes `ranks`."""
    return takes(find("backends", level.backend), "ranks")


def open_level(
    level: Level, /, *, run: str = "", ranks: RankGroup = ALONE, identity: str = ""
) -> Backend:
    """Open the storage of a level for the run called `run`, or for one rank's part of it.

    `identity` is the digest of the run's computation, which is stored together with its name. The
    option `codec` of the level names its codec, and `codec_X` is the codec's option X. `path` is
    the path of its files, and each run has its own files there. Raises ForeignLevel if these files
    belong to another run. If all ranks share a level, all of the `ranks` open it together.
    """
    codec = codec_of(level)  # first: what cannot be wrapped must not be left open
    what = f"level {level.name!r}: {level.backend}"
    factory = find("backends", level.backend)
    options: dict[str, Any] = {**plain(level).options, "capacity": level.capacity}
    if shared := takes(factory, "ranks"):
        if codec is not None:
            raise BadInput(f"{what} takes no codec: its slots have one size; use hdf5")
        options["ranks"] = ranks
    if (where := place(level, run)) is not None:
        own = RunId(computing(rank_of(run)[0] if shared else run, identity))
        options |= {"path": where, **({"run": own} if takes(factory, "run") else {})}
    backend: Backend = make(what, factory, options)
    if codec is None:
        return backend
    from ckio.backends.compressed import Compressed

    return Compressed(backend, codec, ratio=level.ratio)


def takes(factory: Callable[..., Any], option: str, /) -> bool:
    """Return whether a factory has such an option."""
    return any(parameter.name == option for parameter in _parameters(factory) or ())


def codec_of(level: Level, /) -> "Codec | None":
    """Return the codec of a level, or None; raises BadInput if the codec is not available."""
    name, options = level.options.get("codec"), _codec_options(level)
    what = f"level {level.name!r}"
    if name is None:
        if options:
            raise BadInput(f"{what}: {level.backend} has no codec for 'codec_{min(options)}'")
        return None
    if name == AUTO:
        raise BadInput(
            f"{what}: codec = 'auto' is for `ckio calibrate --model`, which measures and chooses;"
            f" calibrate, or name one of: {', '.join(names('codecs'))}"
        )
    if name not in names("codecs"):
        near = meant(str(name), names("codecs"), rule=" ", cutoff=0.75).strip()
        hint = f"{near} " * bool(near) + f"installed: {', '.join(installed_codecs())}"
        raise BadInput(f"{what}: no codec is named {name!r}; {hint}")
    codec: Codec = make(f"{what}: {name}", find("codecs", str(name)), options)
    return codec


def lossless_codecs() -> "dict[str, Codec]":
    """Return every available lossless codec, by name."""
    return {name: codec for name, codec in installed_codecs().items() if codec.lossless}


def installed_codecs() -> "dict[str, Codec]":
    """Return every codec that is available without options, by name."""
    codecs = {}
    for name in names("codecs"):
        with suppress(BadInput):  # it needs what is not installed, or an option
            codecs[name] = make(name, find("codecs", name), {})
    return codecs


def plain(level: Level, /) -> Level:
    """Return the level without its codec."""
    options = {name: value for name, value in level.options.items() if not _of_codec(name)}
    return replace(level, options=options)


def _codec_options(level: Level) -> dict[str, Option]:
    prefix = "codec_"
    return {
        name.removeprefix(prefix): value
        for name, value in level.options.items()
        if name.startswith(prefix)
    }


def _of_codec(option: str) -> bool:
    return option == "codec" or option.startswith("codec_")


def lossy(platform: Platform, /) -> dict[str, str]:
    """Return the levels whose codec may be lossy, with the codec's name.

    A codec that is not available here counts as lossy.
    """
    codecs = {}
    for level in platform.levels:
        try:
            codec = codec_of(level)
        except BadInput:
            codecs[level.name] = f"{level.options.get('codec')}, which cannot be asked here"
            continue
        if codec is not None and not codec.lossless:
            codecs[level.name] = codec.name
    return codecs


def close(backend: Backend, /, *, remove: bool) -> None:
    """Close a level; with `remove`, also delete its files if it has such a method."""
    getattr(backend, "remove" if remove and hasattr(backend, "remove") else "close")()


def _told(error: BaseException) -> str:
    """Return the text of a foreign error, with its class."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")
