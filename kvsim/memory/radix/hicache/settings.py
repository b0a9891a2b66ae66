"""How large SGLang's host pool is, and what goes there (HiCache, 0.5.23)."""

from typing import Literal, NamedTuple, Self

WritePolicy = Literal["write_through", "write_through_selective", "write_back"]
THRESHOLDS: dict[WritePolicy, int | None] = {
    "write_through": 1,
    "write_through_selective": 2,
    "write_back": None,
}


class Hicache(NamedTuple):
    """host_tokens: of the host pool, whole pages. write_policy: when content is copied to it."""

    host_tokens: int
    write_policy: WritePolicy = "write_through"

    @classmethod
    def of_ratio(
        cls, pool_tokens: int, ratio: float, page_size: int, write_policy: WritePolicy
    ) -> Self:
        """A host pool of `ratio` times the device's tokens (mem_cache/pool_host/base.py)."""
        return cls((int(pool_tokens * ratio) // page_size + 1) * page_size, write_policy)

    @property
    def threshold(self) -> int | None:
        """Requests whose insertions a node waits for before it is written; None: it is written
        when it is evicted.
        """
        return THRESHOLDS[self.write_policy]
