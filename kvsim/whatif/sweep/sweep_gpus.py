"""The number of GPUs of each setting of a sweep, if settings differ in it."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.whatif.sweep.ranking import SweepSetting
from kvsim.whatif.sweep.sweep import Sweep

# Tables of which a key may change the number of GPUs.
_SIZES = ("fleet", "disaggregation", "model", "device")


def with_gpus(settings: Sequence[SweepSetting], sweep: Sweep) -> list[SweepSetting]:
    """The settings with their number of GPUs filled in, if a swept key may change it."""
    if not any(key.partition(".")[0] in _SIZES for key in sweep.keys):
        return list(settings)
    return [replace(each, gpus=_gpus(each, sweep)) for each in settings]


def _gpus(setting: SweepSetting, sweep: Sweep) -> float | None:
    """GPUs of a setting; for a fleet the mean over its makespan, as replicas start and stop."""
    found = [_of_fleet(row) for row in setting.rows]
    known = [each for each in found if each is not None]
    if len(known) == len(found):
        return round(fmean(known), 6)
    try:
        return float(sweep.simulation(sweep.settings[setting.point]).num_gpus)
    except InputError:
        return None


def _of_fleet(row: dict[str, Any]) -> float | None:
    hours, seconds = row.get("gpu_hours"), row.get("makespan_s")
    return 3600 * float(hours) / float(seconds) if hours and seconds else None
