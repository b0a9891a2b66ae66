"""`kvsim validate cache`: does a cache change the answer, what does it save, when is it exact?"""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.commands.arguments import AsJson

if TYPE_CHECKING:
    from rich.table import Table

    from evidence.cache.checks import CacheReport


def validate_cache(
    device: Annotated[str, typer.Option(help="cpu, or cuda for the GPU's own kernels.")] = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="Seed of schedules and tokens.")] = 0,
    schedules: Annotated[
        int, typer.Option(min=1, help="Random schedules for each store and dtype.")
    ] = 3,
    as_json: AsJson = False,
) -> None:
    """Compare decoding with a KV cache to recomputation, on a small transformer in torch."""
    from evidence.cache.checks import validate_cache as run

    report = run(seed, schedules, device)
    if as_json:
        typer.echo(json.dumps(as_object(report), indent=2))
    else:
        from rich.console import Console

        console = Console()
        for table in tables(report):
            console.print(table)
        words = "every check holds" if report.ok else "some checks FAILED"
        console.print(f"{words} (device {report.device}, seed {seed})")
    raise typer.Exit(0 if report.ok else 1)


def as_object(report: "CacheReport") -> dict[str, object]:
    """The report as JSON data; a NaN error becomes null."""

    def plain(check: tuple[object, ...], names: tuple[str, ...]) -> dict[str, object]:
        return {
            name: None if value != value else value
            for name, value in zip(names, check, strict=True)
        }

    parts = {
        name: [plain(check, check._fields) for check in getattr(report, name)]
        for name in ("equality", "replayed", "simulated", "work", "exactness")
    }
    return {"ok": report.ok, "device": report.device, **parts}


def tables(report: "CacheReport") -> "list[Table]":
    """One table for each question of `evidence.cache.checks`."""
    from kvsim.commands.terminal_tables import numbers_table

    def table(title: str, columns: str, rows: list[tuple[str, ...]]) -> "Table":
        made = numbers_table(*columns.split("|"), title=title)
        for row in rows:
            made.add_row(*row)
        return made

    def verdict(ok: bool) -> str:
        return "ok" if ok else "[bold red]FAILED[/]"

    return [
        table(
            "Same logits as recomputing without a cache, over random schedules?",
            "store|dtype|allocator|rows|largest error|tolerance|",
            [
                (
                    check.store,
                    check.dtype,
                    check.allocator,
                    f"{check.rows:,}",
                    f"{check.error:.1e}",
                    f"{check.tolerance:.0e}" if check.allocator == "sound" else "must differ",
                    verdict(check.ok),
                )
                for check in report.equality
            ],
        ),
        *(
            table(
                title,
                f"{of}|dtype|rows|largest error|tolerance|",
                [
                    (
                        check.store,
                        check.dtype,
                        f"{check.rows:,}",
                        f"{check.error:.1e}",
                        f"{check.tolerance:.0e}",
                        verdict(check.ok),
                    )
                    for check in checks
                ],
            )
            for title, of, checks in (
                (
                    "Captured steps, replayed: as when launched one by one?",
                    "store",
                    report.replayed,
                ),
                (
                    "The same of kvsim's own allocators, driven by its engine?",
                    "allocator",
                    report.simulated,
                ),
            )
        ),
        table(
            f"One decode step at {report.work[0].context} tokens: counted, and by formula",
            "what is kept|FLOP|formula|kept bytes|formula|largest error|",
            [
                (
                    check.scheme,
                    f"{check.flop:,}",
                    f"{check.flop_formula:,}",
                    f"{check.kept_bytes:,}",
                    f"{check.kept_bytes_formula:,}",
                    f"{check.error:.1e}",
                    verdict(check.ok),
                )
                for check in report.work
            ],
        ),
        table(
            "When is caching exact?",
            "rule|memory, of K and V|expected|largest error|",
            [
                (
                    check.rule,
                    f"{check.kept_of_kv:g}x",
                    check.expected,
                    f"{check.error:.1e}",
                    verdict(check.ok),
                )
                for check in report.exactness
            ],
        ),
    ]
