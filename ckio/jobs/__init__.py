"""Runs that survive their process. A run is begun, stopped and resumed; its result is the gradient.

job         `Job`, the object for a Python caller
request     `Request`, the options of a run, and `Manifest`, the part that is stored
directory   the files of a run
run         one process of a run: it plans, performs its plan, and writes the result
open_ended  a run whose model decides when it is finished
resume      whether a request is for the run in a directory; the process that resumes it
stopping    stops a run before the walltime ends, and stores its state
result      the result of a run
"""

from ckio.jobs.display import Display
from ckio.jobs.job import Job
from ckio.jobs.request import Request
from ckio.jobs.result import Result
from ckio.jobs.stopping import Halted

__all__ = ["Display", "Halted", "Job", "Request", "Result"]
