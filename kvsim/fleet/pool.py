"""The members on one clock and the router that chooses among them; no other module connects the
two.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kvsim.engine.clock import EngineClock
from kvsim.engine.observer import Observer
from kvsim.fleet.members import AnyPart, FleetMember, MemberHooks
from kvsim.fleet.reports import Reports
from kvsim.fleet.routers.options import FleetView
from kvsim.fleet.routers.router import RoutedRequest, Router
from kvsim.request import Request, TokenRuns
from kvsim.results.routing import RoutedTo
from kvsim.sequence import Sequence as KVSequence

PRIVATE = 1 << 58  # ids from here on are those of content that nobody else has
BLOCK_SIZE = 16  # where an allocator has no blocks: vLLM's default


def view_of(part: AnyPart, count: int, seed: int = 0, characters: float = 4.0) -> FleetView:
    """The `FleetView` with which a router is built, for `count` replicas built from `part`. seed:
    of the router's draws. characters: text characters for each content unit.
    """
    spec = part.spec
    block_size = getattr(spec.allocator, "block_size", None) or BLOCK_SIZE
    block_bytes = block_size * spec.layout.bytes_per_token
    num_blocks = spec.capacity_bytes // block_bytes if block_bytes else None
    return FleetView(count, seed, block_size, num_blocks, characters)


class RoutedPool:
    """Members with a router. routed: the router's decisions, request by request.

    reports: the load reports of members, and when they reach the router. regret: ask every member
    what it has cached of each prompt. texts: prompts by request id for a router that compares text,
    one id for each character. A prompt without a text is compared by token ids, which `regret`
    needs. hooks: callbacks of each member. observer_of: the observer of a member, by number.
    """

    def __init__(
        self,
        env: EngineClock,
        parts: Sequence[AnyPart],
        router: Router,
        hooks: MemberHooks,
        *,
        reports: Reports | None = None,
        regret: bool = False,
        observer_of: Callable[[int], Observer] | None = None,
        texts: Mapping[str, TokenRuns] | None = None,
    ) -> None:
        self.env, self.router = env, router
        self._texts = texts or {}
        self.routed: list[RoutedTo] = []
        self._reports = reports
        self._regret = regret
        self._private = PRIVATE
        self._probed: Request | None = None
        self._on_left = hooks.left
        self._hooks, self._observer_of = hooks, observer_of
        self.members: list[FleetMember] = []
        for part in parts:
            self._build(part)
        if router.needs_cache_events:
            router.cached_tokens = self.cached_tokens

    def add(self, part: AnyPart) -> None:
        """Build a member from `part` and let the router choose it from now on; returns its
        number.
        """
        if self._reports is not None:
            self._reports.joined()
        self.router.joined(self._build(part))

    def _build(self, part: AnyPart) -> int:
        hooks, reports, number = self._hooks, self._reports, len(self.members)
        own = hooks._replace(
            left=self._left,
            prefilled=self._prefilled(hooks.prefilled),
            heard=None if reports is None else partial(reports.heard, number),
            needs_tokens=reports is not None and reports.needs_tokens,
            observer=None if self._observer_of is None else self._observer_of(number),
        )
        self.members.append(part.build(self.env, own))
        return number

    def _prefilled(
        self, also: Callable[[str, int], None] | None
    ) -> Callable[[str, int], None] | None:
        """The callback for first tokens: the router's, the given one, both, or None."""
        if not self.router.needs_first_tokens:
            return also
        if also is None:
            return self.router.prefilled

        def both(id: str, now_ps: int) -> None:
            self.router.prefilled(id, now_ps)
            also(id, now_ps)

        return both

    def choose(self, request: Request) -> int:
        """Choose the member for `request`, which arrives now, and update the router's counters;
        returns its number.
        """
        now_ps, router = int(self.env.now), self.router
        if self._reports is not None:
            loads = self._reports.due(now_ps)
            if loads is not None:
                router.report(loads, now_ps)
        asked = self._asked(request)
        decision = router.decide(asked, now_ps)
        member = decision.replica
        chosen = best = None
        if self._regret:
            held = [self.cached_tokens(each, asked) for each in router.alive]
            chosen, best = held[router.alive.index(member)], max(held)
        self.routed.append(RoutedTo(now_ps, request.id, member, decision.why, chosen, best))
        router.sent(asked, member, now_ps)
        return member

    def _asked(self, request: Request) -> RoutedRequest:
        """The request as the router sees it: a private prompt gets token ids that no other request
        has.
        """
        text = self._texts.get(request.id)
        if text is not None:
            length = sum(count for _, count in text)
            return RoutedRequest(request.id, length, text, request.session)
        runs: TokenRuns | None = request.prompt_runs
        if runs is None:
            runs = ((self._private, request.prompt_tokens),)
            self._private += request.prompt_tokens
        return RoutedRequest(request.id, request.prompt_tokens, runs, request.session)

    def cached_tokens(self, member: int, asked: RoutedRequest) -> int:
        """Leading tokens of a prompt that a member has cached, including the prompt's last
        token.
        """
        if asked.content[0][0] >= PRIVATE:
            return 0
        if self._probed is None or self._probed.id != asked.id:
            runs = (*asked.content, (self._private, 1))  # a hit ends before the last token
            self._probed = Request(asked.id, 0, asked.length + 1, 1, prompt_runs=runs)
        return self.members[member].cached_tokens(KVSequence(self._probed, 0))

    def _left(self, request: Request) -> None:
        self.router.left(request.id, int(self.env.now))
        self._on_left(request)
