"""The figures of the page in order, one module per figure."""

from kvsim.plumbing.registry import Registry
from kvsim.report.figure import Figure

FIGURES: Registry[Figure] = Registry(
    "figure",
    {
        "shares": "kvsim.report.figures.shares:Shares",
        "lost": "kvsim.report.figures.lost:Lost",
        "lanes": "kvsim.report.figures.lanes:Lanes",
        "ledger": "kvsim.report.figures.ledger:Ledger",
        "concurrency": "kvsim.report.figures.concurrency:Concurrency",
        "events": "kvsim.report.figures.events:Events",
        "hits": "kvsim.report.figures.hits:CacheHits",
        "tiers": "kvsim.report.figures.tier_hits:HitsByTier",
        "links": "kvsim.report.figures.links:Links",
        "tree": "kvsim.report.figures.tree:Tree",
        "lifetimes": "kvsim.report.figures.lifetimes:Lifetimes",
        "queue": "kvsim.report.figures.waits:Queue",
        "ttft": "kvsim.report.figures.waits:TimeToFirstToken",
        "tpot": "kvsim.report.figures.waits:TimePerOutputToken",
        "e2e": "kvsim.report.figures.waits:EndToEnd",
    },
)
