"""The base class of the forms of a report."""

from abc import abstractmethod

from kvsim.plumbing.options import Options
from kvsim.results.result import Result


class Form(Options):
    """A form of a report: its name is the end of the files' names."""

    @abstractmethod
    def make(self, result: Result) -> bytes:
        """The whole file; InputError where this machine cannot make it."""
        raise NotImplementedError(type(self).__name__)  # every subclass overrides this
