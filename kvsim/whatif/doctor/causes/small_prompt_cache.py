"""Prompts that llama-server drops from host memory, or never stores there, and that are sent
again.
"""

from typing import ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL

ROOMY_MIB = (8192, 32768)  # the default, and four times that


class SmallPromptCache(Cause):
    """Suspected if a twentieth of the prompts had been computed before and was neither in a slot
    nor in host memory any more.

    Host memory must be unused, or have dropped prompts. Under `--cache-ram -1` it drops prompts
    too: it then holds as many tokens as the context.
    """

    title: ClassVar[str] = "a prompt cache in host memory that is too small"
    resource: ClassVar[bool] = True

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        slots, limit = case.slots, case.option(case.scheduler, "cache_ram")
        if slots is None or not slots.prompt_tokens:
            return None
        share = slots.lost_tokens / slots.prompt_tokens
        if share < SUBSTANTIAL or (limit and not slots.num_dropped):
            return None
        holds = f"{limit:,} MiB" if limit > 0 else "as many tokens as the context has"
        dropped = (
            f"{slots.num_dropped:,} prompts were dropped from host memory, which holds {holds}"
        )
        evidence = (
            f"{100 * case.hit_share:.1f} % of the prompts were found; {100 * share:.1f} % more had "
            "been computed before and was kept in no slot and not in host memory",
            dropped if limit else "no prompt is kept in host memory (--cache-ram 0)",
        )
        larger = (4 * limit, 16 * limit) if limit > 0 else ROOMY_MIB
        return Suspicion(
            evidence,
            tuple(
                Cure(
                    {"scheduler.cache_ram": size},
                    f"--cache-ram {size} of llama-server",
                    "it takes memory of the host",
                )
                for size in larger
            ),
        )
