"""Prompts that a prefill engine has computed and a decode engine may read.

A prefill engine holds the blocks of such a prompt until the decode engine has read them, or until a
lease ends. The decode engine extends the lease by heartbeats while the request waits there.
"""

from collections.abc import Callable

from kvsim.sequence import Sequence


class RemotePrompt:
    """One prompt in the blocks of a prefill engine.

    seq: its sequence there. deadline_ps: end of the lease. keeper: the inbox of that engine.
    """

    __slots__ = ("deadline_ps", "keeper", "seq")

    def __init__(self, seq: Sequence, deadline_ps: int, keeper: "KeeperInbox") -> None:
        self.seq = seq
        self.deadline_ps = deadline_ps
        self.keeper = keeper


class KeeperInbox:
    """Messages to a prefill engine, each with the time in ps at which it arrives.

    read: end of the read of each prompt. heartbeats: (time, names of prompts that wait to be read).
    came: called with every message.
    """

    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        self.heartbeats: list[tuple[int, tuple[str, ...]]] = []
        self.came: Callable[[], None] = lambda: None

    def put_read(self, name: str, end_ps: int) -> None:
        """Send the message that the read of a prompt ends at end_ps."""
        self.read[name] = end_ps
        self.came()

    def put_heartbeat(self, now_ps: int, names: tuple[str, ...]) -> None:
        """Send a heartbeat at now_ps for prompts that wait to be read."""
        self.heartbeats.append((now_ps, names))
        self.came()


class RemotePrompts:
    """Computed prompts of one deployment by sequence id, until a decode engine takes them."""

    def __init__(self) -> None:
        self._prompts: dict[str, RemotePrompt] = {}

    def add(self, name: str, prompt: RemotePrompt) -> None:
        """Add a prompt; a prefill engine holds its blocks."""
        self._prompts[name] = prompt

    def take(self, name: str) -> RemotePrompt | None:
        """Remove and return the prompt of a request that reached its decode engine; None: the
        decode engine computes it.
        """
        return self._prompts.pop(name, None)


def prefilled_tokens(prompt_tokens: int, backoff: int) -> int:
    """Tokens of a prompt that the prefill engine computes: all but the last `backoff` ones, if the
    prompt is longer (vLLM 0.33, nixl/base_scheduler.py, `_prefill_backoff`).
    """
    return prompt_tokens - backoff if prompt_tokens > backoff else prompt_tokens


Clock = Callable[[], int]
