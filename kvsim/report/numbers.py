"""Numbers formatted for people: three significant figures, and a suitable unit."""

from collections.abc import Sequence

NOTHING = "–"

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TIMES = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def figures(value: float, digits: int = 3) -> str:
    """`value` to `digits` significant figures, without rounding the whole part: 0.0123, 4.57,
    118,784.
    """
    if value == 0:
        return "0"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    if whole >= digits:
        return f"{value:,.0f}"
    if whole:
        return f"{value:,.{digits - whole}f}"
    return f"{value:.{digits}g}"


def count(value: float | None) -> str:
    """A whole number with thousands separators: 19,366."""
    return NOTHING if value is None else f"{value:,.0f}"


def number(value: float | None) -> str:
    """A number to three significant figures."""
    return NOTHING if value is None else figures(value)


def percent(fraction: float | None) -> str:
    """A fraction in percent: `57 %`, `5.7 %` below ten, `< 0.1 %` if it would round to zero."""
    if fraction is None:
        return NOTHING
    share = 100 * fraction
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.0f} %" if share == 0 or round(share, 1) >= 10 else f"{share:.1f} %"


def seconds(value: float | None) -> str:
    """A time in a unit that makes it at least one: `340 ms`, `4.57 s`, `12.3 min`."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0 s"
    # Two units' worth of seconds reads better than one and a bit of minutes: 95 s, then 2.0 min.
    size, unit = next(
        ((size, unit) for size, unit in _TIMES if abs(value) >= (2 * size if size > 1 else size)),
        _TIMES[-1],
    )
    return f"{figures(value / size)} {unit}"


def size(num_bytes: float | None) -> str:
    """Bytes in binary units: `36.2 GiB`."""
    if num_bytes is None:
        return NOTHING
    power = 0
    value = float(num_bytes)
    while abs(value) >= 1024 and power < len(_BINARY) - 1:
        value /= 1024
        power += 1
    return f"{figures(value)} {_BINARY[power]}"


def times(ratio: float) -> str:
    """A ratio as text: `4.4 times`, `twice`."""
    return "twice" if 1.95 <= ratio < 2.05 else f"{figures(ratio, 2)} times"


def plural(value: float, noun: str) -> str:
    """A count with its noun: `1 request`, `19,366 requests`."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Names as a list in a sentence: `a`, `a and b`, `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
