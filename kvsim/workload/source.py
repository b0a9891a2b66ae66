"""A file of requests: a path, or a name in the catalogue of traces."""

from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import PositiveInt, model_validator

from kvsim.plumbing.options import Options

if TYPE_CHECKING:
    from kvsim.workload.traces.record import Trace


class TraceSource(Options):
    """The trace's file, and how to read it.

    path: of the file, relative to the scenario; name: of a catalogued trace (downloaded on demand).
    format: detected from the content if not given. hash_block_tokens: the trace's own block size,
    if not its format's usual one. drop_failed: leave out rows without prompt or output. sort: put
    rows in order of time. prompts_alone: keep rows without output, as prompts that are computed
    alone.
    """

    path: Path | None = None
    name: str | None = None
    format: str | None = None
    hash_block_tokens: PositiveInt | None = None
    drop_failed: bool = False
    sort: bool = False
    prompts_alone: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.path is None) == (self.name is None):
            raise ValueError("a trace takes either a path or a name out of the catalogue")
        return self

    def file(self, base: Path) -> Path:
        """The path of the file, downloaded if needed."""
        if self.path is not None:
            return base / self.path
        assert self.name is not None
        from kvsim.workload.catalogue import locate  # most workloads replay nothing

        return locate(self.name)

    def read(self, file: Path) -> "Trace":
        """The checked rows of that file, as a trace."""
        from kvsim.workload.traces.reader import read_trace  # as above

        return read_trace(
            file,
            format=self.format,
            hash_block_tokens=self.hash_block_tokens,
            drop_failed=self.drop_failed,
            sort=self.sort,
            prompts_alone=self.prompts_alone,
        )
