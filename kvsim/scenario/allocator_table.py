"""The type of an `[[allocator]]` table of a scenario, which may contain a scheduler of its own."""

from collections.abc import Mapping
from typing import Any

from kvsim.engine.schedulers import SCHEDULERS
from kvsim.memory import ALLOCATORS
from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options

DEFAULT_SCHEDULER = "continuous"


class AllocatorChoice(OneOf):
    """A scenario field for an allocator, which may contain a `scheduler` table of its own."""

    def __init__(self, where: str = "allocator") -> None:
        super().__init__(ALLOCATORS, where)

    def read(self, value: object) -> object:
        """Parse a table to the allocator's options, including its own scheduler's if it has one."""
        if not isinstance(value, Mapping) or "scheduler" not in value:
            return self._read_own(value)
        plain = dict(value)
        table = plain.pop("scheduler")
        if isinstance(table, str):
            table = {"kind": table}
        if not isinstance(table, Mapping):
            raise InputError("not a table", where=f"{self.where}.scheduler", value=table)
        scheduler = SCHEDULERS.parse(table, f"{self.where}.scheduler", DEFAULT_SCHEDULER)
        allocator = self._read_own(plain)
        assert isinstance(allocator, AllocatorOptions)
        return allocator.under(scheduler)

    def _read_own(self, value: object) -> object:
        """Parse the options; errors inside name their key below this allocator."""
        try:
            return super().read(value)
        except InputError as error:
            where = error.where or ""
            if not where.startswith("allocator.") or where.startswith(f"{self.where}."):
                raise
            raise error.at(f"{self.where}.{where.removeprefix('allocator.')}") from None

    def keys_beside(self) -> dict[str, OneOf]:
        """The keys other than the allocator's own options: `scheduler`."""
        return {"scheduler": OneOf(SCHEDULERS, f"{self.where}.scheduler", DEFAULT_SCHEDULER)}

    def _write(self, value: Options) -> dict[str, Any]:
        assert isinstance(value, AllocatorOptions)
        return super()._write(value) | own_scheduler(value)


def own_scheduler(options: AllocatorOptions) -> dict[str, Any]:
    """The `scheduler` table of an allocator as {"scheduler": table}; empty without one."""
    scheduler = options.scheduler
    if scheduler is None:
        return {}
    kind = SCHEDULERS.name_of(scheduler)
    return {"scheduler": {"kind": kind, **scheduler.model_dump(exclude_none=True)}}
