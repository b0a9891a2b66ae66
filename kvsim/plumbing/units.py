"""The clock and the units: simulated time is an integer count of picoseconds.

Integers make `k` steps taken at once equal to `k` single steps to the last bit. Seconds appear
only where people read or write: scenarios, traces and results.
"""

from decimal import Decimal
from operator import truediv

PS_PER_S = 10**12
PS_PER_MS = 10**9
PS_PER_US = 10**6
FS_PER_PS = 1000
PS_PER_NS = 10**3

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def ps_from_seconds(seconds: float | Decimal | str) -> int:
    """Picoseconds (int) of a time in seconds, rounded to nearest. Decimals and strings are
    converted exactly before rounding.
    """
    if isinstance(seconds, float):
        return round(seconds * PS_PER_S)
    return int((Decimal(seconds) * PS_PER_S).to_integral_value())


def ratio(numerator: int, denominator: int) -> float:
    """Divide two integers of any size; the quotient is the nearest float.

    In compiled code `/` rounds both to floats first, which changes the last bit beyond 2**53.
    """
    quotient: float = truediv(numerator, denominator)
    return quotient


def seconds_from_ps(ps: int) -> float:
    """Seconds of an integer count of picoseconds, as the nearest float."""
    return ratio(ps, PS_PER_S)


def ceil_div(numerator: int, denominator: int) -> int:
    """Round numerator / denominator up to an integer; the denominator must be positive."""
    return -(-numerator // denominator)
