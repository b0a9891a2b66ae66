"""`kvsim devices`: list the built-in GPUs with memory, bandwidth and FLOP/s."""

import json
from typing import Annotated

import typer

from kvsim.commands.arguments import AsJson


def devices(
    like: Annotated[
        str | None, typer.Argument(metavar="[PART]", help="List only names that contain this text.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the built-in GPUs: memory, bandwidth, dense FLOP/s, links, sources."""
    from dataclasses import asdict

    from kvsim.commands.terminal_tables import out, print_table
    from kvsim.device import device_names, named_device
    from kvsim.device.slices import profile_of
    from kvsim.plumbing.errors import InputError
    from kvsim.plumbing.units import GIB

    names = [name for name in device_names() if like is None or like.lower() in name]
    if like is not None and profile_of(like.lower()) is not None:
        names = [like]
    if not names:
        raise InputError(
            "no built-in GPU is called so",
            value=repr(like),
            remedy="kvsim devices lists them all; a MIG slice is named as h100-3g.40gb",
        )
    found = [named_device(name) for name in names]
    if as_json:
        typer.echo(json.dumps({"devices": [asdict(device) for device in found]}, indent=2))
        return
    print_table(
        ("device", ">GiB", ">GB/s", ">fp16 TFLOP/s", ">fp8 TFLOP/s", ">host GB/s", ">peer GB/s"),
        (
            [
                device.name,
                f"{device.memory_bytes / GIB:,.1f}",
                f"{device.bandwidth_bytes_per_s / 1e9:,.0f}",
                f"{device.fp16_flops / 1e12:,.0f}",
                f"{device.fp8_flops / 1e12:,.0f}",
                f"{device.host_bytes_per_s / 1e9:,.0f}",
                f"{device.peer_bytes_per_s / 1e9:,.0f}",
            ]
            for device in found
        ),
    )
    out().print(
        "--json tells each figure's source; [device] in a scenario describes your own. "
        "A MIG slice is named as h100-3g.40gb.",
        markup=False,
    )
