"""The code of one program: its blocks as functions, plain and taped."""

import ast
from collections.abc import Callable
from functools import cached_property
from typing import Any

from ckio.programs.compiled.code import BlockFunction, Compiled, binder, compiled
from ckio.programs.compiled.lowering import lowered
from ckio.programs.compiled.refusals import check_comprehensions
from ckio.programs.compiled.source import Source


class Code:
    """What a program is compiled to.

    Attributes
    ----------
    name : str
        Of the function, within its module.
    calls : frozenset of str
        The names under which it calls programs.
    graph : Graph
        Its blocks and the variables that they need.
    bind : callable
        Takes the function's arguments; gives the variables of block 0.
    blocks : tuple of callable
        The functions of the blocks.
    """

    def __init__(
        self,
        source: Source,
        is_program: Callable[[ast.expr], bool],
        is_module: Callable[[ast.expr], bool],
        is_builtin: Callable[[str], bool],
        /,
    ) -> None:
        def calls(call: ast.Call) -> bool:
            return is_program(call.func)

        check_comprehensions(source.tree, calls, source.place)
        self.name = source.function.__qualname__
        self.calls = program_calls(source, is_program)
        self.graph = lowered(source.tree, calls, is_module, is_builtin)
        self.bind: Callable[..., tuple[Any, ...]] = binder(source, self.graph)
        self.blocks: tuple[BlockFunction, ...] = compiled(source, self.graph, False).functions()
        self._source = source

    @cached_property
    def _lifting(self) -> Compiled:
        return compiled(self._source, self.graph, True)

    def lifting(self, lift: Callable[[Any], Any], /) -> tuple[BlockFunction, ...]:
        """The functions of the blocks, with all that calls return going through `lift`."""
        return self._lifting.functions(lift)


def program_calls(source: Source, is_program: Callable[[ast.expr], bool], /) -> frozenset[str]:
    """The names under which a function calls programs."""
    calls = (node.func for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    return frozenset(ast.unparse(called) for called in calls if is_program(called))
