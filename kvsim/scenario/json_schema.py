"""The JSON Schema of a scenario file, derived from the option classes.

Editors that know JSON Schema for TOML (Taplo, Even Better TOML) then complete keys and mark unknown
ones. A table that names its own kind is a choice among the kinds that its registry has, those of
installed packages included.
"""

from collections.abc import Mapping
from typing import Any

from kvsim.plumbing.choice import CHOICE, OneOf
from kvsim.plumbing.late_table import LATE, LateTable
from kvsim.plumbing.options import Options
from kvsim.scenario import Scenario

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def scenario_schema() -> dict[str, Any]:
    """The schema as nested dictionaries, ready for `json.dump`."""
    definitions: dict[str, Any] = {}
    scenario = _table(Scenario, definitions)
    one = scenario["properties"]["allocator"]["items"]
    scenario["properties"]["allocator"] = {"anyOf": [scenario["properties"]["allocator"], one]}
    scenario["properties"]["provenance"] = {
        "type": "object",
        "description": "Where the values of a stored scenario came from; changes nothing.",
    }
    return {"$schema": DIALECT, "title": "A kvsim scenario", **scenario, "$defs": definitions}


def _table(options: type[Options], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of one table. definitions: schemas by name; those of nested tables are added."""
    schema = options.model_json_schema()
    for name, inner in schema.pop("$defs", {}).items():
        if name not in definitions:
            definitions[name] = inner
            definitions[name] = _chosen(inner, definitions)
    found: dict[str, Any] = _chosen(schema, definitions)
    return found


def _chosen(node: Any, definitions: dict[str, Any]) -> Any:
    """`node` with every table that has a `kind` replaced by a reference to its choice of kinds."""
    if isinstance(node, list):
        return [_chosen(each, definitions) for each in node]
    if not isinstance(node, Mapping):
        return node
    if CHOICE in node:
        rest = {key: value for key, value in node.items() if key not in (CHOICE, "default")}
        return {**rest, **_choice(node[CHOICE], definitions)}
    if LATE in node:
        return _late(node[LATE], definitions)
    return {key: _chosen(value, definitions) for key, value in node.items()}


def _late(late: LateTable, definitions: dict[str, Any]) -> dict[str, Any]:
    """A reference to the schema of a class that is imported late."""
    name = late.options.__name__
    if name not in definitions:
        definitions[name] = {}
        definitions[name] = _table(late.options, definitions)
    return _reference(name)


def _choice(choice: OneOf, definitions: dict[str, Any]) -> dict[str, Any]:
    """A reference to the kinds of a registry: a kind's name, or a table with that `kind`."""
    registry = choice.registry
    name = registry.what if choice.default is None else f"{registry.what} or {choice.default}"
    if name not in definitions:
        definitions[name] = {}  # a kind may hold a table of the same registry
        kinds = [_kind(choice, kind, definitions) for kind in registry]
        definitions[name] = {"anyOf": [{"enum": list(registry)}, *kinds]}
    return _reference(name)


def _kind(choice: OneOf, kind: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of one kind's table, under a name of its own among the definitions."""
    name = f"{choice.registry.what} {kind}"
    if name not in definitions:
        definitions[name] = {}
        table = _table(choice.registry.get(kind), definitions)
        beside = choice.keys_beside().items()
        table["properties"] = {
            "kind": {"const": kind},
            **table.get("properties", {}),
            **{key: _choice(other, definitions) for key, other in beside},
        }
        definitions[name] = {**table, "title": kind}
    reference = _reference(name)
    return reference if kind == choice.default else {**reference, "required": ["kind"]}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name.replace(' ', '%20')}"}
