"""Base class of the output formats of a report."""

from abc import abstractmethod

from kvsim.plumbing.options import Options
from kvsim.results.result import Result


class Form(Options):
    """An output format of a report, such as PDF; its name is the file's extension."""

    @abstractmethod
    def make(self, result: Result) -> bytes:
        """The contents of the file; InputError if this machine cannot make it."""
        raise NotImplementedError(type(self).__name__)  # every subclass overrides this
