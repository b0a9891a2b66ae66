"""The decode half of NixlConnector: it reads prompts out of the blocks of prefill engines
(base_scheduler.py, pull_scheduler.py, pull_worker.py, vLLM 0.33.0).
"""

from collections import deque
from collections.abc import Container
from typing import NamedTuple, Protocol

from kvsim.engine.connectors.connector import NO_MATCH, Connector, Decided, RemoteMatch, Report
from kvsim.engine.connectors.nixl.remote import (
    KeeperInbox,
    RemotePrompt,
    RemotePrompts,
    prefilled_tokens,
)
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


class ReadGroup(NamedTuple):
    """A group of layers. window_blocks: most blocks of one prompt that are read; 0: all blocks.
    recurrent: one block is read, the state after the last token of the read.
    """

    block_tokens: int
    block_bytes: int
    window_blocks: int = 0
    recurrent: bool = False


class ReadLink(Protocol):
    """The link over which a decode engine reads prompts.

    handshake_ps: duration of the first contact with a prefill engine.
    """

    handshake_ps: int

    def read(self, keeper: KeeperInbox, num_bytes: int, at_ps: int) -> tuple[int, int]:
        """Queue a read of num_bytes requested at at_ps; returns its start and end in ps."""
        ...


class PromptRead(NamedTuple):
    """A read for a loading sequence. start_tokens: tokens hit in the decode engine's prefix cache
    before the read; end_tokens: tokens up to the end of the read. If both are equal, only the
    notice that the prompt may be freed is sent to the prefill engine.
    """

    seq: Sequence
    start_tokens: int
    end_tokens: int
    prompt: RemotePrompt


class NixlConsumer(Connector):
    """NixlConnector with kv_role = kv_consumer.

    heartbeat_ps: time between two heartbeats. recomputes_failed: recompute a request after a failed
    read, instead of ending it with an error. fails: ids of sequences with a failing read. backoff:
    last prompt tokens that are computed here, not read (`prefilled_tokens`).
    """

    hits_may_diverge = True

    def __init__(
        self,
        prompts: RemotePrompts,
        groups: tuple[ReadGroup, ...],
        link: ReadLink,
        heartbeat_ps: int,
        *,
        recomputes_failed: bool,
        fails: Container[str] = (),
        backoff: int = 0,
    ) -> None:
        self._backoff = backoff
        self._prompts, self._groups, self._link = prompts, groups, link
        self._heartbeat_ps, self._fails = heartbeat_ps, fails
        self.recomputes_failed = recomputes_failed
        self._now_ps = 0
        # Of steps decided and not launched: whether they have tokens, and their reads.
        self._decided: deque[tuple[bool, list[PromptRead]]] = deque()
        self._last_beat_ps = 0
        self._waiting: dict[str, RemotePrompt] = {}  # from its arrival until its read is reported
        self._unread: dict[str, RemotePrompt] = {}
        self._asked: list[PromptRead] = []
        self._known: dict[KeeperInbox, int] = {}  # when the handshake with its engine has ended
        self._delayed: list[PromptRead] = []
        self._moving: dict[Sequence, tuple[int, RemotePrompt]] = {}  # with the end of the read
        self.num_bytes = 0

    # --- the scheduler half ---------------------------------------------------------------------

    def read_groups(self, groups: tuple[ReadGroup, ...]) -> None:
        """Set the engine's layer groups, which may be known only after this is built."""
        self._groups = groups

    def arrived(self, name: str) -> None:
        """A request has arrived; if a prefill engine holds its prompt, plan to read it."""
        prompt = self._prompts.take(name)
        if prompt is not None:
            self._waiting[name] = self._unread[name] = prompt
            self.woken()

    def begin(self, now_ps: int) -> None:
        self._now_ps = now_ps

    def matched(self, seq: Sequence, device_tokens: int) -> RemoteMatch | None:
        match = NO_MATCH
        if seq.id in self._unread:
            tokens = prefilled_tokens(seq.prompt_tokens, self._backoff) - device_tokens
            match = RemoteMatch(tokens, waits=True) if tokens > 0 else NO_MATCH
        if self.journal is not None:
            how = "async" if match.waits else ""
            self.journal.add("lookup", [seq.id, device_tokens, match.tokens, how])
        return match

    def allocated(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> None:
        if seq.id not in self._unread:
            return
        prompt = self._unread.pop(seq.id)
        self._asked.append(PromptRead(seq, device_tokens, device_tokens + match.tokens, prompt))
        if not match.waits:
            del self._waiting[seq.id]

    def scheduled(self, step: Decided) -> None:
        self._decided.append((bool(step.stepping), self._asked))
        self._asked, now_ps = [], self._now_ps
        if not self._waiting or now_ps - self._last_beat_ps < self._heartbeat_ps:
            return
        self._last_beat_ps = now_ps
        names: dict[KeeperInbox, list[str]] = {}
        for name, prompt in self._waiting.items():
            names.setdefault(prompt.keeper, []).append(name)
        for keeper, waiting in names.items():
            keeper.put_heartbeat(now_ps, tuple(waiting))
        if self.journal is not None:
            for name in sorted(self._waiting):
                self.journal.add("heartbeat", name)

    def returned(self, report: Report, now_ps: int) -> None:
        for seq in (*report.loaded, *report.failed):
            del self._waiting[seq.id]

    # --- the worker half ------------------------------------------------------------------------

    def launch(self, now_ps: int, compute_ps: int) -> int:
        return now_ps

    def launched(self, now_ps: int, end_ps: int) -> None:
        launches, asked = self._decided.popleft()
        at_ps = now_ps + (self.poll_ps if launches else self.empty_poll_ps)
        for read in asked:
            self._known.setdefault(read.prompt.keeper, at_ps + self._link.handshake_ps)
        for read in (*asked, *self._delayed):  # vLLM posts those that waited after the step's own
            if self._known[read.prompt.keeper] <= at_ps:
                self._post(read, at_ps)
        in_order = (*self._delayed, *asked)
        self._delayed = [read for read in in_order if self._known[read.prompt.keeper] > at_ps]

    def _post(self, read: PromptRead, at_ps: int) -> None:
        """Start the read of the tokens of a prompt that the device lacks."""
        if read.end_tokens == read.start_tokens:
            read.prompt.keeper.put_read(read.prompt.seq.id, at_ps)
            return
        blocks = self._blocks(read)
        num_bytes = sum(
            count * group.block_bytes for count, group in zip(blocks, self._groups, strict=True)
        )
        start_ps, end_ps = self._link.read(read.prompt.keeper, num_bytes, at_ps)
        self.num_bytes += num_bytes
        self._moving[read.seq] = end_ps, read.prompt
        if read.seq.id not in self._fails:
            read.prompt.keeper.put_read(read.prompt.seq.id, end_ps)
        if self.journal is not None:
            self.journal.add("reads", [read.seq.id, blocks, num_bytes, start_ps, end_ps])

    def _blocks(self, read: PromptRead) -> list[int]:
        """Number of blocks to read in each layer group: only those in its window, the last block
        whole.
        """
        held, skipped = self.device.held_blocks(read.seq), self.device.skipped_blocks(read.seq)
        found = []
        for group, num_held, missing in zip(self._groups, held, skipped, strict=True):
            if group.recurrent:
                found.append(1)
                continue
            whole = ceil_div(read.end_tokens, group.block_tokens)
            count = min(whole, missing + num_held) - max(
                missing, read.start_tokens // group.block_tokens
            )
            found.append(min(count, group.window_blocks) if group.window_blocks else count)
        return found

    def poll(self, now_ps: int) -> Report:
        ended = [seq for seq, (end_ps, _) in self._moving.items() if end_ps <= now_ps]
        if not ended:
            return Report()
        loaded: list[Sequence] = []
        failed: list[Sequence] = []
        for seq in ended:
            del self._moving[seq]
            (failed if seq.id in self._fails else loaded).append(seq)
            if self.journal is not None:
                self.journal.add("received", seq.id)
                if seq.id in self._fails:
                    self.journal.add("failed_reads", seq.id)
        return Report(loaded=tuple(loaded), failed=tuple(failed))

    def quiet_steps(self, step: Decided, limit: int) -> int:
        return limit  # heartbeats are of requests that wait, and there are none

    def quiet_until(self, now_ps: int) -> int:
        times = [end_ps for end_ps, _ in self._moving.values()]
        times += [self._known[read.prompt.keeper] for read in self._delayed]
        if self._waiting:
            times.append(self._last_beat_ps + self._heartbeat_ps)
        return now_ps if self._is_asked else min(times, default=now_ps)

    @property
    def _is_asked(self) -> bool:
        return bool(self._asked or any(asked for _, asked in self._decided))

    @property
    def busy(self) -> bool:
        return bool(self._is_asked or self._delayed or self._moving)
