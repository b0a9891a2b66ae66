"""The report's sentences and tables as Markdown, for an issue, a wiki or a pull request."""

import re
from collections.abc import Sequence

from kvsim.plumbing.toml import to_toml
from kvsim.report.classes import LOOKS
from kvsim.report.form import Form
from kvsim.report.measures import MEASURES, best, shown
from kvsim.report.names import named
from kvsim.report.numbers import percent
from kvsim.report.parts import part_rows
from kvsim.report.remarks import remarks
from kvsim.report.words import paragraphs
from kvsim.results.result import Result


class Markdown(Form):
    """Sentences, key numbers, mean use of the pool, and the scenario."""

    def make(self, result: Result) -> bytes:
        """The report as GitHub's Markdown, in UTF-8."""
        runs = [run.summary for run in result.runs]
        heads = ["", *(escaped(named(run.label)) for run in result.runs)]
        measures = shown(list(MEASURES), runs)
        numbers = [
            [measure.title, *(_number(measure.text(run), at in best(measure, runs))
                              for at, run in enumerate(runs))]
            for measure in measures
        ]  # fmt: skip
        shares = []
        for look in LOOKS:
            means = [run.memory.time_mean.of(look.name) for run in runs]
            if any(means):
                shares.append([look.name, *map(percent, means)])
            shares += [
                [f"{look.name}: {part.words}", *texts] for part, texts in part_rows(runs, look.name)
            ]
        parts = [
            "# Where the KV memory went",
            *(escaped(paragraph) for paragraph in paragraphs(result)),
            "\n".join(f"- {escaped(remark)}" for remark in remarks(result)),
            "## Key numbers",
            pipe_table(heads, *numbers),
            "## The pool, on average",
            pipe_table(heads, *shares),
            "## The scenario",
            fenced(to_toml(result.scenario), "toml"),
        ]
        return "\n\n".join(part for part in parts if part).encode() + b"\n"


def _number(text: str, good: bool) -> str:
    return f"**{text}**" if good else text


def escaped(text: str) -> str:
    """A user's text with all Markdown and HTML escaped."""
    return re.sub(r"([\\`*_{}\[\]<>|#&~])", r"\\\1", text)


def pipe_table(heads: Sequence[str], *rows: Sequence[str]) -> str:
    """A Markdown table with its first column aligned to the left, the others to the right."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fenced(text: str, language: str) -> str:
    """A fenced code block; the fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.strip()}\n{fence}"
