"""Common parts of benchmark reports: latency statistics, and loads given by means."""

from collections.abc import Callable, Mapping
from typing import Any

from kvsim.readers.description import ClientLoad
from kvsim.readers.parsing.fields import Fields


def statistics(
    table: Fields,
    figure: str,
    stats: Mapping[str, str],
    in_s: Callable[[float], float] = float,
) -> dict[str, float]:
    """Statistics of one latency under names such as `ttft_mean_s`; those that the report lacks are
    left out.

    stats maps the report's keys to statistics; if two keys mean the same one, the last is used.
    in_s converts a value to seconds.
    """
    found = ((name, table.number(key)) for key, name in stats.items())
    return {f"{figure}_{name}_s": in_s(value) for name, value in found if value is not None}


def seconds_of_ms(milliseconds: float) -> float:
    """Convert milliseconds to seconds."""
    return milliseconds / 1000


def mean_load(
    num_requests: int | None, prompt: float | None, output: float | None, where: str, **client: Any
) -> ClientLoad | None:
    """A client's mean load; None if the number of requests or a length is unknown.

    prompt and output are mean lengths in tokens. client has the rate and limits, under the names of
    `ClientLoad`.
    """
    if not num_requests or not prompt or not output:
        return None
    sizes = {"num_requests": num_requests, "prompt_tokens": prompt, "output_tokens": output}
    return ClientLoad.parse(sizes | client, where)


def left_out(number: int, why: str) -> list[str]:
    """A note on the number of requests left out; empty for 0."""
    return [f"{number:,} requests {why} left out"] if number else []
