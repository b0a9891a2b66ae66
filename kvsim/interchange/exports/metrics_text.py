"""Metric families as text: one Prometheus scrape, or a time series in OpenMetrics' format."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kvsim.interchange.exports.families import Family
from kvsim.readers.vllm.metric_names import INFO, PREFIX

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def text(
    replicas: Sequence[tuple[Mapping[str, str], Iterable[Family]]], times: Sequence[float] | None
) -> Iterator[str]:
    """The lines of all families, for each replica with its labels.

    times are Unix times (s), one for each value. None: write a scrape, from families with one
    value.
    """
    before = ""
    for same in zip(*(families for _, families in replicas), strict=True):
        for (labels, _), family in zip(replicas, same, strict=True):
            more = {} if family.label is None else dict([family.label])
            yield from _family({**labels, **more}, family, times, headed=family.name != before)
            before = family.name


def _family(
    labels: Mapping[str, str], family: Family, times: Sequence[float] | None, *, headed: bool
) -> Iterator[str]:
    series = times is not None
    plain = PREFIX + family.name
    # Prometheus' text names a counter with its suffix, OpenMetrics' without.
    named = f"{plain}_total" if family.kind == "counter" and not series else plain
    if headed:
        yield f"# HELP {named} {family.help}\n"
        yield f"# TYPE {named} {family.kind}\n"
    if family.kind != "histogram":
        suffix = "_total" if family.kind == "counter" else ""
        yield from _samples(plain + suffix, labels, family.values, times)
        return
    bounds = [*(repr(bound) for bound in family.bounds), "+Inf"]
    assert family.total is not None
    for at in range(len(family.total)):  # all of one moment stand together
        now = None if times is None else times[at : at + 1]
        for bound, row in zip(bounds, family.values, strict=True):
            yield from _samples(f"{plain}_bucket", {**labels, "le": bound}, row[at : at + 1], now)
        yield from _samples(f"{plain}_count", labels, family.values[-1][at : at + 1], now)
        yield from _samples(f"{plain}_sum", labels, family.total[at : at + 1], now)


def info(replicas: Iterable[Mapping[str, str]], times: Sequence[float] | None) -> Iterator[str]:
    """The lines of `cache_config_info`, a gauge with the constant value 1."""
    name = f"{PREFIX}{INFO}"
    yield f"# HELP {name} Information of the LLMEngine CacheConfig\n"
    yield f"# TYPE {name} gauge\n"
    for labels in replicas:
        yield from _samples(name, labels, [1.0] * (1 if times is None else len(times)), times)


def _samples(
    name: str, labels: Mapping[str, str], values: Iterable[float], times: Sequence[float] | None
) -> Iterator[str]:
    pairs = ",".join(
        f'{key}="{value.translate(_ESCAPES)}"' for key, value in sorted(labels.items())
    )
    if times is None:
        for value in values:
            yield f"{name}{{{pairs}}} {float(value)!r}\n"
        return
    for value, time in zip(values, times, strict=True):
        yield f"{name}{{{pairs}}} {float(value)!r} {time:.3f}\n"
