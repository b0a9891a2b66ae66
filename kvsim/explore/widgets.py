"""Widgets for the keys of a scenario. A widget's id holds its key's dotted name; whatever is typed
or chosen means what it would mean in TOML.
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
    """A widget's id; form: how its value is read."""
    return {"part": KEY, "key": key, "form": form}


def read_value(form: str, value: Any) -> Any:
    """The meaning of a widget's value; None: the key is not given."""
    if value is None or value == "":
        return None
    if form == "text" or not isinstance(value, str):
        return value
    return value_of(value)


def labelled(name: str, widget: Component, hint: str = "") -> Component:
    """A widget under its key's words, with a place for what is wrong with it. hint: appears under
    the pointer.
    """
    place = getattr(widget, "id", None) or {"key": name}
    said = html.Small(id={"part": SAID, "key": place["key"]}, className="said-wrong", role="alert")
    words = html.Span(words_of(name), title=hint or name)
    return html.Label([words, widget, said], className="field", **{"data-key": name})


def choice(key: str, names: Iterable[str], value: str | None, *, clear: bool = False) -> Component:
    """A dropdown for one of some names."""
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
    """Something that is written: a number, a word."""
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
    """Widgets for the keys of a class of options, as far as one line can hold their values."""
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
    """The descriptions of a class's keys, folded."""
    text = cleandoc(options.__doc__ or "")
    return html.Details([html.Summary("what these mean"), html.Pre(text, className="meaning")])


def _widget(key: str, annotation: Any, value: Any, default: Any) -> Component | None:
    """The widget of a field; None for fields with a table of their own."""
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
    """One of some values, by their names."""
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
