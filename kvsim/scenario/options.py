"""A scenario: one stream of requests, one model on one device, and the allocators to compare.

Every table of the TOML file is an Options class; `kind` chooses it where there are several.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, PrivateAttr, field_validator

from kvsim.capacity.options import MemoryOptions
from kvsim.device import DeviceOptions
from kvsim.engine.connectors import TIERS
from kvsim.engine.schedulers import SCHEDULERS
from kvsim.engine.schedulers.options import SchedulerOptions
from kvsim.memory import ALLOCATORS
from kvsim.memory.options import AllocatorOptions
from kvsim.model import ModelOptions
from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.keys import assignment
from kvsim.plumbing.late_table import late
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.toml_lines import placed
from kvsim.results.measurement import WindowOptions
from kvsim.scenario.allocator_table import DEFAULT_SCHEDULER, AllocatorChoice, own_scheduler
from kvsim.scenario.files import find_scenario, load_tables
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.options import StepTimeOptions
from kvsim.workload import WORKLOADS
from kvsim.workload.options import WorkloadOptions

if TYPE_CHECKING:
    from kvsim.engine.connectors.tiers import TierOptions
    from kvsim.engine.speculation.options import SpeculativeConfig
    from kvsim.fleet.disaggregation import DisaggregationOptions
    from kvsim.fleet.options import FleetOptions
    from kvsim.results.question import QuestionOptions
    from kvsim.step_time.front_end import FrontEndOptions
else:  # few scenarios have these tables, and a short run is mostly imports
    TierOptions = Options
    SpeculativeConfig = late(
        "kvsim.engine.speculation.options:SpeculativeConfig", "speculative_config"
    )
    DisaggregationOptions = late(
        "kvsim.fleet.disaggregation:DisaggregationOptions", "disaggregation"
    )
    FleetOptions = late("kvsim.fleet.options:FleetOptions", "fleet")
    FrontEndOptions = late("kvsim.step_time.front_end:FrontEndOptions", "front_end")
    QuestionOptions = late("kvsim.results.question:QuestionOptions", "question")

AnyAllocator = Annotated[AllocatorOptions, AllocatorChoice()]
AnyScheduler = Annotated[SchedulerOptions, OneOf(SCHEDULERS, "scheduler", DEFAULT_SCHEDULER)]
AnyStepTime = Annotated[StepTimeOptions, OneOf(STEP_TIMES, "step_time", "auto")]
AnyTier = Annotated[TierOptions, OneOf(TIERS, "tier")]
AnyWorkload = Annotated[WorkloadOptions, OneOf(WORKLOADS, "workload")]


class Scenario(Options):
    """The tables of a scenario file.

    seed: of everything random. max_steps: most steps the engine takes at once (1: one by one; the
    results are the same to the last bit). workload: may be left out where requests are given.
    speculative_config: tokens drafted ahead; without the table none are. tier: memory after the
    device, nearest first; without such tables there is none. With disaggregation each prefill
    replica has them. disaggregation: prompts are computed on other replicas than outputs; without
    the table one replica does both. window: the part of the run that is measured in addition to the
    whole. question: what the scenario was written to find out; the report opens with its answer.
    fleet: several replicas with one router; without the table there is one and no router.
    front_end: the time between a client and the engine; without the table requests come to the
    engine at once. An allocator's table may hold `scheduler`, a table of its own that takes the
    place of the scenario's.
    """

    seed: int = Field(0, ge=0)
    max_steps: int | None = Field(None, ge=1)
    model: ModelOptions
    device: DeviceOptions
    memory: MemoryOptions = MemoryOptions()
    allocator: tuple[AnyAllocator, ...] = Field(min_length=1)
    scheduler: AnyScheduler = Field({"kind": "continuous"}, validate_default=True)
    step_time: AnyStepTime = Field({"kind": "auto"}, validate_default=True)
    workload: AnyWorkload | None = None
    tier: tuple[AnyTier, ...] = ()
    speculative_config: SpeculativeConfig | None = None
    disaggregation: DisaggregationOptions | None = None
    window: WindowOptions = WindowOptions()
    question: QuestionOptions | None = None
    fleet: FleetOptions | None = None
    front_end: FrontEndOptions | None = None
    _folder: Path = PrivateAttr(default_factory=Path)
    _source: Path | None = PrivateAttr(None)
    _overridden: tuple[str, ...] = PrivateAttr(())
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)

    @field_validator("allocator", mode="before")
    @classmethod
    def _by_index(cls, value: object) -> object:
        """Parse each allocator by itself, so that an error says which one it is in."""
        if not isinstance(value, list | tuple) or len(value) < 2:
            return value
        return [AllocatorChoice(f"allocator.{at}").read(each) for at, each in enumerate(value)]

    @property
    def folder(self) -> Path:
        """The folder at which relative paths of the scenario start."""
        return self._folder

    @property
    def given(self) -> dict[str, Any]:
        """The tables from which the scenario was read, without defaults."""
        return self._given

    @classmethod
    def from_table(cls, table: Mapping[str, Any], folder: Path | None = None) -> Self:
        """A scenario from nested dictionaries, as a TOML file has them."""
        plain = dict(table)
        plain.pop("provenance", None)  # written beside results; says how, changes nothing
        if isinstance(plain.get("allocator"), Mapping | str):
            plain["allocator"] = [plain["allocator"]]
        if isinstance(plain.get("tier"), Mapping | str):
            plain["tier"] = [plain["tier"]]
        scenario = cls.parse(plain, "")._of_its_engine()
        scenario._folder = folder or Path()
        scenario._given = plain
        return scenario

    def _of_its_engine(self) -> Self:
        """A copy with the pool sized by the scheduler's version of vLLM, unless a version is given.

        If allocators have schedulers of their own, the first allocator's is used.
        """
        memory = self.memory
        if "engine_version" in memory.model_fields_set or not memory.of_vllm:
            return self
        version = self.scheduler_of(self.allocator[0]).engine_version
        if version is None or version == memory.engine_version:
            return self
        sized = memory.model_copy(update={"engine_version": version})
        return self.model_copy(update={"memory": sized})

    def scheduler_of(self, allocator: AllocatorOptions) -> SchedulerOptions:
        """The scheduler for this allocator: its own, else the scenario's."""
        own = allocator.scheduler
        return own if isinstance(own, SchedulerOptions) else self.scheduler

    @classmethod
    def load(cls, source: str | Path, overrides: Iterable[str] = ()) -> Self:
        """The scenario in a TOML file or shipped recipe.

        overrides: `a.b=value` each, with the value in TOML syntax (else a string).
        """
        overrides = tuple(overrides)
        table, folder = load_tables(source, overrides)
        keys = tuple(assignment(override, "--set")[0] for override in overrides)
        try:
            scenario = cls.from_table(table, folder)
        except InputError as error:
            raise placed(error, find_scenario(source), keys) from None
        scenario._source, scenario._overridden = find_scenario(source), keys
        return scenario

    def located(self, error: InputError) -> InputError:
        """A copy of an error about a key of this scenario, with the file and line of the key."""
        if self._source is None or (error.where or "").startswith(str(self._source)):
            return error
        return placed(error, self._source, self._overridden)

    def labels(self) -> list[str]:
        """One name for each allocator: its label, or its kind with the options in which it differs
        from other allocators of that kind.
        """
        kinds = [ALLOCATORS.name_of(each) for each in self.allocator]
        labels = []
        for kind, options in zip(kinds, self.allocator, strict=True):
            same_kind = [
                other
                for other_kind, other in zip(kinds, self.allocator, strict=True)
                if other_kind == kind and other.label is None
            ]
            labels.append(options.label or _label(kind, options, same_kind))
        for index, label in enumerate(labels):
            if label in labels[:index]:
                raise InputError(
                    "two allocators with the same label and options",
                    where=f"allocator[{index}]",
                    value=label,
                    remedy="give one of them another label",
                )
        return labels


def _label(kind: str, options: AllocatorOptions, same_kind: list[AllocatorOptions]) -> str:
    if len(same_kind) <= 1:
        return kind
    dumps = [each.model_dump(exclude_none=True) | own_scheduler(each) for each in same_kind]
    mine = options.model_dump(exclude_none=True) | own_scheduler(options)
    differing = [key for key in mine if any(dump.get(key) != mine[key] for dump in dumps)]
    parts = [f"{key}={_short(mine[key])}" for key in differing if key != "label"]
    return " ".join([kind, *parts])


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return str(value.get("kind", dict(value)))
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def checked_tables(
    source: str | Path, overrides: Iterable[str] = ()
) -> Iterator[tuple[dict[str, Any], Path]]:
    """`load_tables` of a valid scenario, for use in a with block.

    An InputError about one of its keys, inside the block too, names the file and the line.
    """
    overrides = tuple(overrides)
    scenario = Scenario.load(source, overrides)
    try:
        yield load_tables(source, overrides)
    except InputError as error:
        raise scenario.located(error) from None


def no_workload() -> InputError:
    """The error for a scenario without requests, as `kvsim import` may write one."""
    return InputError(
        "the scenario has no requests",
        where="workload",
        remedy="add a [workload] table (kvsim options workload lists its kinds), or give "
        "kvsim import a benchmark's file or a trace too",
    )
