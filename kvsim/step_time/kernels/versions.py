"""Engine versions as keys to sort by."""


def version_key(version: str) -> tuple[int, ...]:
    """A version as numbers that order; one that is not a release comes before all."""
    numbers = []
    for part in version.split("."):
        if not part[:1].isdigit():
            break
        numbers.append(int("".join(char for char in part if char.isdigit())))
    return tuple(numbers)
