"""Runs that survive their process. A run is begun, stopped and resumed; its result is the gradient.

job         `Job`, the object for a Python caller
request     `Request`, the options of a run, and the manifest, the part that is stored
begin       begins a run (`unknown`: one whose model decides when it is finished)
resume      resumes a run from the checkpoints that an earlier process stored
process     performs a schedule and computes the result
stopping    stops a run before the walltime ends, and stores its state
directory   the files of a run
"""

from ckio.jobs.display import Display
from ckio.jobs.job import Job
from ckio.jobs.request import Request
from ckio.jobs.result import Result
from ckio.jobs.stopping import Halted

__all__ = ["Display", "Halted", "Job", "Request", "Result"]
