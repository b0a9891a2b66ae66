"""The question that a scenario asks, so that its report can open with the answer."""

from typing import Literal

from pydantic import Field, model_validator

from kvsim.plumbing.options import Options

LATENCIES = ("ttft", "tpot", "e2e", "queue")


class QuestionOptions(Options):
    """The question that a scenario answers.

    text: the question, at the top of the report. measure: the number that answers it. A latency
    (ttft, tpot, e2e, queue) is a median over finished requests. The share of prompt tokens found in
    the prefix cache is hits. The mean number of sequences at a time is running. The mean share of
    the pool that holds tokens is used. Rates over the makespan are tokens_per_s and requests_per_s.
    within_s: a limit in seconds for a latency. The answer is then the share of the requests that
    keep it.
    """

    text: str = Field(min_length=1, max_length=200)
    measure: Literal[
        "ttft", "tpot", "e2e", "queue", "hits", "running", "tokens_per_s", "requests_per_s", "used"
    ]
    within_s: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _within_a_latency(self) -> "QuestionOptions":
        if self.within_s is not None and self.measure not in LATENCIES:
            names = ", ".join(LATENCIES)
            raise ValueError(f"within_s limits a latency ({names}), and measure = {self.measure}")
        return self
