"""The drafter of a scenario: which model it is, and how long its passes take."""

from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.capacity.drafter import Drafter
from kvsim.model import Model
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_US
from kvsim.speculation import TABLE
from kvsim.step_time.form import StepTime
from kvsim.step_time.options import Hardware, StepTimeOptions

if TYPE_CHECKING:
    from kvsim.engine.speculation.options import SpeculativeConfig
    from kvsim.model.target_reader import TargetReader


def drafter_of(config: "SpeculativeConfig | None", folder: Path) -> Drafter | None:
    """The drafter of a speculative config; relative paths start in `folder`. InputError for an
    unknown drafter.
    """
    if config is None:
        return None
    from kvsim.model.find import find_model  # few scenarios have a drafter

    model = None
    if config.model is not None:
        model = find_model(config.model, f"{TABLE}.model")
    elif config.hf_config is not None:
        model = Model.from_hf(folder / config.hf_config)
    if model is not None:
        _check_method(config, model.target_reader)
    return Drafter(model, config.speculation)


def _check_method(config: "SpeculativeConfig", reader: "TargetReader | None") -> None:
    """Raise InputError unless the drafter's config allows this method, as in vLLM."""
    if reader is None and config.speculation.rules.block_queries:
        raise InputError(
            f"the drafter is no model of {config.method}",
            where=f"{TABLE}.hf_config" if config.hf_config else f"{TABLE}.model",
            value=repr(str(config.hf_config or config.model)),
            remedy=f"the config.json of a drafter that was trained for {config.method}",
        )
    if reader is not None and reader.method != config.method:
        raise InputError(
            "the drafter reads hidden states of its target",
            where=f"{TABLE}.method",
            value=repr(config.method),
            limit=repr(reader.method),
        )


def drafted_time(
    target: StepTime,
    config: "SpeculativeConfig",
    drafter: Drafter,
    options: StepTimeOptions,
    hardware: Hardware,
) -> StepTime:
    """Step times of `target` (made from `options`) with the drafting passes after each step. The
    drafter is timed by the roofline, with the target's efficiencies if the target uses the roofline
    too.
    """
    from kvsim.step_time.drafted import BlockPass, DraftingPasses, MeasuredDrafting, drafted
    from kvsim.step_time.linear import Linear
    from kvsim.step_time.roofline import Roofline

    if config.draft_us is not None:
        return drafted(target, MeasuredDrafting(round(config.draft_us * PS_PER_US)))
    if drafter.looks_up or isinstance(options, Linear):
        return drafted(target, MeasuredDrafting(0))
    roofline = options if isinstance(options, Roofline) else Roofline()
    passes = roofline.model_copy(update={"overhead_us": 0.0})  # the target's step has it
    model = drafter.as_model(hardware.model)
    form = passes.build(hardware._replace(model=model, layout=None))
    queries = drafter.speculation.queries_per_seq
    return drafted(
        target, BlockPass(form, queries) if queries else DraftingPasses(form, drafter.tokens)
    )
