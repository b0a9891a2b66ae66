"""The checks as Markdown tables."""

from evidence.paper.check import Check
from evidence.paper.findings import PaperFindings
from evidence.paper.one_draw import LEVEL


def markdown(found: PaperFindings) -> str:
    """Two tables: checks with a tolerance, and figures that are only reported."""
    missed = sum(not check.ok for check in found.held)
    verdict = "all within tolerance" if not missed else f"{missed} outside tolerance"
    lines = [
        f"## Held: {len(found.held)} figures, {verdict}",
        "",
        f"{found.setting.streams} streams of requests, seeds {found.setting.seed} to "
        f"{found.setting.seed + found.setting.streams - 1}, none of them selected; ShareGPT's "
        f"lengths from {found.lengths}. Numbers are in the unit named. Simulated is the mean over "
        "so many streams as are named; the spread is the standard deviation from one to another.",
        "",
        *_table(found.held, last="ok"),
        "",
        "## The paper's trace as one stream more",
        "",
        *_draws(found),
        "",
        "## Reported, not held",
        "",
        *_table(found.reported, last="why"),
    ]
    return "\n".join(lines) + "\n"


def streams_csv(found: PaperFindings) -> str:
    """CSV with the cells of every stream of figures 2 and 13, from which means follow."""
    lines = ["figure,system,seed,token_states,reservation,internal,external_and_others,running"]
    for figure, runs in (("2", found.figure_2), ("13", found.figure_13)):
        for name, means in runs.items():
            for seed, each in enumerate(means, found.setting.seed):
                cells = ",".join(f"{value:.4f}" for value in (*each.paper_view, each.running))
                lines.append(f"{figure},{name},{seed},{cells}")
    return "\n".join(lines) + "\n"


def _draws(found: PaperFindings) -> list[str]:
    rows = [
        f"ok: p is at least {LEVEL:g}. p is the chance that one stream more is as far from the "
        "others in all free cells at once (Hotelling). By rank it does not assume normal cells. "
        "The last columns count single streams.",
        "",
        "| source | free cells | streams | p | p by rank | every cell within 1 of the paper's "
        "| within 2 | ok |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for draw in found.draws:
        cells = [draw.source, str(len(draw.cells)), str(draw.streams)]
        cells += [f"{draw.p:.2f}", f"{draw.rank_p:.2f}", *map(str, draw.within)]
        rows.append(f"| {' | '.join(cells)} | {'yes' if draw.ok else '**NO**'} |")
    return rows


def _table(checks: list[Check], last: str) -> list[str]:
    numbers = "published | simulated | difference | spread | streams"
    numbers += " | tolerance" if last == "ok" else ""
    head = f"| source | quantity | unit | {numbers} | {last} |"
    rows = [head, "|" + "---|" * (head.count("|") - 1)]
    for check in checks:
        cells = [check.source, check.quantity, check.unit]
        cells += [_number(check.published), _number(check.simulated), f"{check.difference:+.2f}"]
        cells += ["" if check.spread is None else _number(check.spread)]
        cells += ["" if check.spread is None else str(check.streams)]
        if check.tolerance is not None:
            cells += [_number(check.tolerance), "yes" if check.ok else "**NO**"]
        else:
            cells.append(check.why)
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 1 else f"{value:,.2f}"
