"""Plain Python functions as programs: `@program`.

source       the source of a function, its names, and the statements that are refused
graph        blocks of straight-line code, with the variables that each needs
statements   translates statements and expressions into blocks
functions    compiles blocks to Python functions with the line numbers of the source
frames       states, and functions that run and store them
dependencies the code and constants on which a program depends, and its fingerprint
decorator    the decorator, and ticks on a tape
"""

from ckio.programs.compiled.decorator import CompiledProgram, program
from ckio.programs.compiled.frames import Frame, Frames
from ckio.programs.compiled.source import NotResumable

__all__ = ["CompiledProgram", "Frame", "Frames", "NotResumable", "program"]
