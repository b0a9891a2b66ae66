"""The control of the allocators: all their options, and buttons to add and remove one."""

from typing import Any, ClassVar

from dash import html
from dash.development.base_component import Component

from kvsim.explore.controls.control import Control
from kvsim.explore.widgets import choice, explained, labelled, options_fields, typed
from kvsim.memory import ALLOCATORS

MOST = 6
ADD, REMOVE = "add", "remove"


class Allocators(Control):
    """One card for each allocator."""

    title: ClassVar[str] = "Allocators"
    is_open: ClassVar[bool] = True

    def widgets(self, table: dict[str, Any]) -> list[Component]:
        tables = table["allocator"]
        cards = [_card(index, each, len(tables)) for index, each in enumerate(tables)]
        more = html.Button("One more", id={"part": ADD, "index": 0}, disabled=len(tables) >= MOST)
        return [*cards, more]

    def chosen(self, table: dict[str, Any], key: str, value: Any) -> bool:
        _, _, rest = key.partition("allocator.")
        index, _, name = rest.partition(".")
        if name != "kind":
            return False
        tables = table["allocator"]
        kept = {k: v for k, v in tables[int(index)].items() if k in ("label", "scheduler")}
        if tables[int(index)]["kind"] != value:
            tables[int(index)] = {"kind": value, **kept}
        return True


def added(table: dict[str, Any]) -> None:
    """Add an allocator to the tables: the first kind that is not there yet."""
    tables = table["allocator"]
    kinds = {each["kind"] for each in tables}
    free = [kind for kind in ALLOCATORS if kind not in kinds]
    tables.append({"kind": free[0]} if free else {"kind": "paged", "label": _free(tables)})


def removed(table: dict[str, Any], index: int) -> None:
    """Remove the allocator with this index from the tables."""
    tables = table["allocator"]
    if 0 <= index < len(tables) and len(tables) > 1:
        del tables[index]


def _free(tables: list[dict[str, Any]]) -> str:
    labels = {each.get("label") for each in tables}
    return next(name for n in range(2, 99) if (name := f"paged {n}") not in labels)


def _card(index: int, table: dict[str, Any], count: int) -> Component:
    path, kind = f"allocator.{index}", table["kind"]
    options = ALLOCATORS.get(kind)
    fields = options_fields(options, table, path)
    drop = html.Button(
        "Remove", id={"part": REMOVE, "index": index}, disabled=count < 2, className="plain"
    )
    return html.Div(
        [
            labelled("kind", choice(f"{path}.kind", ALLOCATORS, kind)),
            *fields[:2],
            html.Details(
                [
                    html.Summary("more"),
                    *fields[2:],
                    labelled("label", typed(f"{path}.label", table.get("label"), text=True)),
                    explained(options),
                    drop,
                ]
            ),
        ],
        className="allocator",
    )
