"""Requests that are refused because their prompts are longer than max_model_len."""

from typing import ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL

ROUND = 256  # lengths are given in whole multiples of this


class TooLongRequests(Cause):
    """Suspected where a twentieth of the requests is refused for its length. The cure serves the
    longest of them whole; none where the model itself knows no such positions.
    """

    title: ClassVar[str] = "requests longer than max_model_len"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        too_long, now = case.too_long, case.simulation.max_model_len
        if len(too_long) < SUBSTANTIAL * case.num_requests:
            return None
        longest = max(each.prompt_tokens for each in too_long)
        share = 100 * len(too_long) / case.num_requests
        evidence = (
            f"{len(too_long):,} of {case.num_requests:,} requests ({share:.0f} %) were refused: "
            f"max_model_len = {now:,}, and the longest prompt has {longest:,} tokens",
        )
        outputs = max(each.output_tokens for each in case.simulation.stream.requests)
        needed = -(-(longest + max(1, outputs)) // ROUND) * ROUND
        most = case.simulation.model.max_position_embeddings
        if needed > most:
            beyond = f"the model's own positions end at {most:,}"
            return Suspicion((*evidence, beyond), ())
        flags = f"--max-model-len {needed}"
        return Suspicion(evidence, (Cure({"model.max_model_len": needed}, flags),))
