"""generate_types.py OPENAPI.JSON >partune/types.py: the API's schemas as TypedDicts."""

import json
import keyword
import sys

HEAD = '''"""The resources of the HTTP API as types. Made from /openapi.json by python/generate_types.py."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, TypedDict, Union
'''
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def union(parts):
    parts = list(dict.fromkeys(parts))
    rest = [part for part in parts if part != "None"]
    text = rest[0] if len(rest) == 1 else f"Union[{', '.join(rest)}]"
    return text if len(rest) == len(parts) else f"Optional[{text}]"


def spell(schema):
    """The type of SCHEMA as Python writes it."""
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[1]
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return union(spell(part) for part in schema[word])
    if "enum" in schema:
        return f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"
    kinds = schema.get("type", [])
    if isinstance(kinds, list):
        return union(spell({**schema, "type": kind}) for kind in kinds) if kinds else "Any"
    if kinds == "array":
        return f"List[{spell(schema.get('items', {}))}]"
    if kinds == "object":
        more = schema.get("additionalProperties")
        return f"Dict[str, {spell(more) if isinstance(more, dict) else 'Any'}]"
    return SIMPLE[kinds]


def declare(name, fields, base, total):
    """A TypedDict; keys that Python reserves need the form of a call, which has no base."""
    tail = "" if total else ", total=False"
    if any(keyword.iskeyword(key) for key in fields):
        rows = "".join(f'        "{key}": {kind!r},\n' for key, kind in fields.items())
        head = f'{name} = TypedDict(\n    "{name}",\n'
        return f"{head}    {{\n{rows}    }},\n    total={total},\n)\n"
    rows = "".join(f"    {key}: {kind}\n" for key, kind in fields.items()) or "    pass\n"
    return f"class {name}({base}{tail}):\n{rows}"


def module(document):
    parts, aliases = [HEAD], []
    for name, schema in sorted(document["components"]["schemas"].items()):
        fields = {key: spell(value) for key, value in schema.get("properties", {}).items()}
        need = schema.get("required", [])
        always = {key: kind for key, kind in fields.items() if key in need}
        maybe = {key: kind for key, kind in fields.items() if key not in need}
        reserved = any(keyword.iskeyword(key) for key in fields)
        if not fields:
            aliases.append(f"{name} = {spell(schema)}\n")
        elif reserved or not always or not maybe:
            parts.append(declare(name, fields, "TypedDict", not maybe))
        else:
            parts.append(declare(f"_{name}", always, "TypedDict", True))
            parts.append(declare(name, maybe, f"_{name}", False))
    return "\n\n".join(parts) + ("\n\n" + "".join(aliases) if aliases else "")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        sys.stdout.write(module(json.load(file)))
