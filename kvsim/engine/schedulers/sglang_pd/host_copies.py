"""Times of copies of retracted KV to host memory and back; SGLang's scheduler waits for them."""

from typing import Protocol

from kvsim.engine.link import Link


class HostCopies(Protocol):
    """Durations of copies of retracted KV."""

    def out_ps(self, at_ps: int, tokens: int) -> int:
        """Duration in ps of a copy of `tokens` tokens to host memory, requested at at_ps."""
        ...

    def back_ps(self, at_ps: int, tokens: int) -> int:
        """Duration in ps of a copy of `tokens` tokens back to the device, requested at at_ps."""
        ...


class LinkCopies:
    """Durations of copies of retracted KV over the link to host memory."""

    def __init__(self, link: Link, token_bytes: int) -> None:
        self._link = link
        self._token_bytes = token_bytes

    def out_ps(self, at_ps: int, tokens: int) -> int:
        return self._link.copy_ps(at_ps, tokens * self._token_bytes)

    back_ps = out_ps
