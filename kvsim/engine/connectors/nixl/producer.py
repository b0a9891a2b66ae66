"""The prefill half of NixlConnector: it holds the blocks of finished prompts until they are read
(base_scheduler.py, pull_scheduler.py, pull_worker.py, vLLM 0.33.0).
"""

from kvsim.engine.connectors.connector import NO_MATCH, Connector, Decided, RemoteMatch, Report
from kvsim.engine.connectors.nixl.remote import Clock, KeeperInbox, RemotePrompt, RemotePrompts
from kvsim.sequence import Sequence


class NixlProducer(Connector):
    """NixlConnector with kv_role = kv_producer.

    lease_ps: how long blocks are held without a heartbeat. extension_ps: how long they are held
    after a heartbeat.
    """

    loads = False
    hears = True
    hits_may_diverge = True  # it loads nothing: only the hits of recorded lookups change

    def __init__(
        self, prompts: RemotePrompts, clock: Clock, lease_ps: int, extension_ps: int
    ) -> None:
        self._prompts, self._clock = prompts, clock
        self._lease_ps, self._extension_ps = lease_ps, extension_ps
        self._kept: dict[str, RemotePrompt] = {}
        self.inbox = KeeperInbox()
        self.num_expired = 0

    def matched(self, seq: Sequence, device_tokens: int) -> RemoteMatch | None:
        if self.journal is not None:
            self.journal.add("lookup", [seq.id, device_tokens, 0, ""])
        return NO_MATCH

    def allocated(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> None:
        return

    def scheduled(self, step: Decided) -> None:
        return

    def returned(self, report: Report, now_ps: int) -> None:
        return

    def finished(self, seq: Sequence) -> bool:
        prompt = RemotePrompt(seq, self._clock() + self._lease_ps, self.inbox)
        self._kept[seq.id] = prompt
        self._prompts.add(seq.id, prompt)
        return True

    def launch(self, now_ps: int, compute_ps: int) -> int:
        return now_ps

    def launched(self, now_ps: int, end_ps: int) -> None:
        return

    def poll(self, now_ps: int) -> Report:
        if not self._kept:
            return Report()
        inbox, sent = self.inbox, []
        read = [name for name, end_ps in inbox.read.items() if end_ps <= now_ps]
        for name in sorted(read, key=inbox.read.__getitem__):  # equal ends: as they were posted
            del inbox.read[name]
            if name in self._kept:  # else its lease has ended
                sent.append(self._free(name, "sent"))
        beats = inbox.heartbeats
        while beats and beats[0][0] < now_ps:
            for name in beats.pop(0)[1]:
                if name in self._kept:
                    prompt = self._kept[name]
                    prompt.deadline_ps = max(prompt.deadline_ps, now_ps + self._extension_ps)
        for name in [name for name, kept in self._kept.items() if kept.deadline_ps <= now_ps]:
            sent.append(self._free(name, "expired"))
            self.num_expired += 1
        return Report(sent=tuple(sent))

    def _free(self, name: str, why: str) -> Sequence:
        if self.journal is not None:
            self.journal.add(why, name)
        return self._kept.pop(name).seq

    def quiet_steps(self, step: Decided, limit: int) -> int:
        return limit  # nothing of it changes but by a notice, which it is not busy with

    def quiet_until(self, now_ps: int) -> int:
        self.inbox.came = self.woken
        times = [kept.deadline_ps for kept in self._kept.values()]
        times += [end_ps for name, end_ps in self.inbox.read.items() if name in self._kept]
        return now_ps if self.inbox.heartbeats else min(times, default=now_ps)

    @property
    def busy(self) -> bool:
        return bool(self._kept)
