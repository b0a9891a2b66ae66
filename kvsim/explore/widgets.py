"""Widgets for the keys of a scenario. A widget's id contains the dotted key; its value is parsed as
TOML.
"""

from collections.abc import Iterable, Mapping
from inspect import cleandoc
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from dash import dcc, html
from dash.development.base_component import Component

from kvsim.explore.knob_words import hint_of, words_of
from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.toml_text import value_of
from kvsim.plumbing.toml import value_text
from kvsim.report.names import named

KEY = "key"  # the `part` of every widget's id
SAID = "said"  # the `part` of the place beside a widget where a refusal is said
_HIDDEN = ("label",)


def identity(key: str, form: str) -> dict[str, str]:
    """The id of a widget. form: how its value is parsed."""
    return {"part": KEY, "key": key, "form": form}


def read_value(form: str, value: Any) -> Any:
    """Parse a widget's value; None: the key is not set."""
    if value is None or value == "":
        return None
    if form == "text" or not isinstance(value, str):
        return value
    return value_of(value)


def labelled(name: str, widget: Component, hint: str = "") -> Component:
    """A widget below its key's name, with room for an error message. hint: tooltip."""
    place = getattr(widget, "id", None) or {"key": name}
    said = html.Small(id={"part": SAID, "key": place["key"]}, className="said-wrong", role="alert")
    words = html.Span(words_of(name), title=hint or name)
    return html.Label([words, widget, said], className="field", **{"data-key": name})


def choice(key: str, names: Iterable[str], value: str | None, *, clear: bool = False) -> Component:
    """A dropdown of names."""
    known = list(dict.fromkeys([*names, *([value] if value else [])]))
    return dcc.Dropdown(
        id=identity(key, "text"),
        options=[{"label": named(name), "value": name} for name in known],
        value=value,
        clearable=clear,
        searchable=len(known) > 8,
        placeholder="",
    )


def typed(key: str, value: Any, default: Any = None, *, text: bool = False) -> Component:
    """A text field for a number or word."""
    return dcc.Input(
        id=identity(key, "text" if text else "toml"),
        value=_written(value, text=text),
        placeholder="" if default is None else _written(default, text=text),
        debounce=True,
        autoComplete="off",
        spellCheck=False,
        inputMode="text" if text else "decimal",
    )


def options_fields(options: type[Options], table: Mapping[str, Any], path: str) -> list[Component]:
    """Widgets for those keys of an option class that fit in one line."""
    found = []
    for name, field in options.model_fields.items():
        if name in _HIDDEN:
            continue
        default = field.get_default(call_default_factory=True) if not field.is_required() else None
        kinds = next((each for each in field.metadata if isinstance(each, OneOf)), None)
        annotation = field.annotation if kinds is None else Annotated[field.annotation, kinds]
        widget = _widget(f"{path}.{name}", annotation, table.get(name), default)
        if widget is not None:
            found.append(labelled(name, widget, hint_of(name, options.__doc__)))
    return found


def explained(options: type[Options]) -> Component:
    """The descriptions of an option class's keys, in a collapsed section."""
    text = cleandoc(options.__doc__ or "")
    return html.Details([html.Summary("what these mean"), html.Pre(text, className="meaning")])


def _widget(key: str, annotation: Any, value: Any, default: Any) -> Component | None:
    """The widget of a field; None for a field that is a table of its own."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        kinds = next((each for each in arguments[1:] if isinstance(each, OneOf)), None)
        if kinds is None:
            return _widget(key, arguments[0], value, default)
        held = value if value is not None else default
        return choice(key, kinds.registry, _kind_of(kinds, held))
    if origin in (Union, UnionType):
        some = [each for each in arguments if each is not type(None)]
        if len(some) == 1:
            return _widget(key, some[0], value, default)
        return typed(key, value, default)
    if origin is Literal:
        return _among(key, {str(each): each for each in arguments}, value, default)
    if annotation is bool:
        return _among(key, {"yes": True, "no": False}, value, default)
    if annotation in (int, float):
        return typed(key, value, default)
    return typed(key, value, default, text=True) if annotation is str else None


def _among(key: str, values: Mapping[str, Any], value: Any, default: Any) -> Component:
    """A dropdown of the values that a field may have."""
    shown = value if value is not None else default
    return dcc.Dropdown(
        id=identity(key, "toml"),
        options=[{"label": name, "value": value_text(each)} for name, each in values.items()],
        value=None if shown is None else value_text(shown),
        clearable=default is None,
        searchable=False,
        placeholder="",
    )


def _kind_of(kinds: OneOf, held: Any) -> str | None:
    if isinstance(held, Mapping):
        return str(held.get("kind", kinds.default))
    if isinstance(held, Options):
        return kinds.registry.name_of(held)
    return held if isinstance(held, str) else kinds.default


def _written(value: Any, *, text: bool) -> str:
    if value is None:
        return ""
    return str(value) if text or isinstance(value, str) else value_text(value)
