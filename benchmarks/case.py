"""The cases of cases.toml."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One entry of cases.toml: a scenario with some keys set. beside: further keys of a second
    scenario, which it is compared with.
    """

    name: str
    scenario: str
    set: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    large: bool = False

    def with_keys(self, keys: Iterable[str]) -> "Case":
        """The same with further keys."""
        return replace(self, set=(*self.set, *keys))

    @property
    def path(self) -> Path:
        return HERE / "scenarios" / f"{self.scenario}.toml"


def cases(only: list[str]) -> list[Case]:
    """Those whose names contain one of these texts, or are one; without any, all but the large
    ones.
    """
    tables = tomllib.loads((HERE / "cases.toml").read_text())["case"]
    lists = ("set", "beside")
    all_ = [Case(**each | {key: tuple(each.get(key, ())) for key in lists}) for each in tables]
    if not only:
        return [case for case in all_ if not case.large]
    whole = {case.name for case in all_}.intersection(only)
    parts = [text for text in only if text not in whole]
    return [case for case in all_ if case.name in whole or any(text in case.name for text in parts)]
