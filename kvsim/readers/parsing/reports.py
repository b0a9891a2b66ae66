"""Common parts of benchmark reports: statistics of latencies, and loads known by means."""

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
    """Figures of one latency, named as `ttft_mean_s`; what the report leaves out is left out.

    stats: the statistic that is meant by each key of the report; of two keys for the same one the
    last counts. in_s: the report's figures in seconds.
    """
    found = ((name, table.number(key)) for key, name in stats.items())
    return {f"{figure}_{name}_s": in_s(value) for name, value in found if value is not None}


def seconds_of_ms(milliseconds: float) -> float:
    """Convert milliseconds to seconds."""
    return milliseconds / 1000


def mean_load(
    num_requests: int | None, prompt: float | None, output: float | None, where: str, **client: Any
) -> ClientLoad | None:
    """The load of a client; None where a size of it is not known. prompt, output: means in tokens.
    client: its rate and its limits, by the names of `ClientLoad`.
    """
    if not num_requests or not prompt or not output:
        return None
    sizes = {"num_requests": num_requests, "prompt_tokens": prompt, "output_tokens": output}
    return ClientLoad.parse(sizes | client, where)


def left_out(number: int, why: str) -> list[str]:
    """A note of requests that are left out, where there are some."""
    return [f"{number:,} requests {why} left out"] if number else []
