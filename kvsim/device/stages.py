"""The GPUs of a pipeline's stages, which need not be of one kind."""

from collections.abc import Mapping, Sequence

from kvsim.device.device import Device
from kvsim.plumbing.errors import InputError


def stage_devices(
    device: Device, own: Mapping[int, Device], count: int, where: str
) -> tuple[Device, ...]:
    """The device of each of `count` stages: its own, by its number from 1, or else `device`.
    InputError, found at `where`, for a number beyond the stages.
    """
    for number in own:
        if not 1 <= number <= count:
            raise InputError(
                "there is no such pipeline stage",
                where=where,
                value=number,
                limit=count,
                remedy="pipeline_parallel_size says how many stages there are",
            )
    return tuple(own.get(number, device) for number in range(1, count + 1))


def are_alike(devices: Sequence[Device]) -> bool:
    """Whether all devices are of one kind."""
    return all(each == devices[0] for each in devices)


def kinds_in_words(names: Sequence[str]) -> str:
    """The names of the stages' devices, each kind with its stages where there are several."""
    kinds = dict.fromkeys(names)
    if len(kinds) == 1:
        return names[0]
    places = {
        kind: ", ".join(str(at) for at, name in enumerate(names, 1) if name == kind)
        for kind in kinds
    }
    return "; ".join(f"{kind} in stage {where}" for kind, where in places.items())
