"""llama-server's slot similarity threshold is higher than prompts reach, so that cached slots are
not chosen.
"""

from typing import ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL

LOWER = (0.1, 0.01)  # the default, and where prompts are long and share little


class SlotSimilarity(Cause):
    """Suspected if a twentieth of the prompt tokens was cached in another idle slot, or in host
    memory, but not in the chosen slot.
    """

    title: ClassVar[str] = "a similarity of slots that is not reached"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        slots, least = case.slots, case.option(case.scheduler, "slot_prompt_similarity")
        if slots is None or not slots.prompt_tokens or case.option(case.scheduler, "num_slots") < 2:
            return None
        share = slots.elsewhere_tokens / slots.prompt_tokens
        if share < SUBSTANTIAL:
            return None
        asked = f"more than {100 * least:g} % of a prompt is asked of it" if least else "never"
        evidence = (
            f"{100 * case.hit_share:.1f} % of the prompts were found in the slots chosen, and "
            f"{100 * share:.1f} % more was held by another idle slot or in host memory",
            f"a slot is chosen by what it holds: {asked} (-sps {least:g})",
        )
        cures = tuple(
            Cure({"scheduler.slot_prompt_similarity": lower}, f"-sps {lower:g} of llama-server")
            for lower in LOWER
            if not least or lower < least
        )
        return Suspicion(evidence, cures)
