"""Format times as decimal text exactly: no digit is rounded away, none is added."""


def decimal_text(ps: int, unit_ps: int, least_digits: int = 0) -> str:
    """`ps` in units of unit_ps (a power of ten) as a decimal number."""
    digits = len(str(unit_ps)) - 1
    whole, rest = divmod(ps, unit_ps)
    fraction = f"{rest:0{digits}d}".rstrip("0") if rest else ""
    fraction = fraction.ljust(least_digits, "0")
    return f"{whole}.{fraction}" if fraction else str(whole)
