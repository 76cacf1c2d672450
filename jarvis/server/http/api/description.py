"""Human-readable API reference, generated from the OpenAPI schema."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from markdown_it import MarkdownIt

from jarvis.text.markdown import Markdown, anchor, code, table

SUMMARY = """\
Upload a trace, analyze it, poll the job, and download the results. Responses are JSON.

- If the server requires login, create a token on the Access page and send it in the header
  `Authorization: Bearer jrv_...`. A token has the permissions of its role: viewers read, editors
  also upload and analyze, admins change everything. Resources that you cannot see are reported as
  not found (404). An upload is visible only to the person who created it.
- Errors have a status and `{"error": "reason, and what to do"}`: 400 and 422 for invalid requests,
  401 without a valid token, 403 if the role lacks a permission, 404 if not found, 409 for
  conflicts, 413 and 507 if a file is too large for the server or its disk, 429 with `Retry-After`
  if the rate limit is exceeded, 503 while the database is unavailable.
- A `page` in a response is the path of a page on the server.
"""

EXAMPLE = """\
```sh
server=https://jarvis.example.org; auth="Authorization: Bearer $JARVIS_TOKEN"

# a trace on the server's disk: returns a job, which has the id of the analysis when it is done
curl -sH "$auth" "$server/api/analyses" --json '{"path": "step.json.gz", "platform": "MI300X"}'
curl -sH "$auth" "$server/api/jobs/JOB"
curl -sH "$auth" "$server/api/analyses/ANALYSIS/artifacts/standalone_analysis_fair.md"

# a local trace: create an upload, send it in one or more chunks, then analyze it
upload=$(curl -si -X POST "$server/api/uploads" -H "$auth" -H "Tus-Resumable: 1.0.0" \\
  -H "Upload-Length: $(stat -c %s trace.json.gz)" \\
  -H "Upload-Metadata: filename $(printf trace.json.gz | base64)" |
  sed -n 's/^location: \\(.*\\)\\r/\\1/ip')
curl -s -X PATCH "$server$upload" -H "$auth" -H "Tus-Resumable: 1.0.0" -H "Upload-Offset: 0" \\
  -H "Content-Type: application/offset+octet-stream" --data-binary @trace.json.gz
curl -sH "$auth" "$server/api/analyses" --json "{\\"upload\\": \\"${upload##*/}\\"}"
```

`jarvis push trace.json.gz --server $server` does the last three and resumes interrupted uploads.
Uploads use [tus 1.0](https://tus.io/protocols/resumable-upload), so any tus client works too.
"""

_METHODS = ("get", "post", "patch", "delete", "head", "options")

Schema = Mapping[str, Any]


def api_markdown(openapi: Schema, prefix: str) -> str:
    """Return ``docs/api.md``: the operations with their parameters and responses."""
    lines = ["# HTTP API", "", "Generated from the code by `make docs`. A running server shows the"]
    lines += [f"same at `{prefix}/docs`, and the schema at `{prefix}/openapi.json`.", ""]
    lines += [SUMMARY, EXAMPLE]
    schemas = openapi["components"]["schemas"]
    operations = list(_operations(openapi))
    for tag in dict.fromkeys(operation["tags"][0] for _, _, operation in operations):
        lines += [f"## {tag.capitalize()}", ""]
        for method, path, operation in operations:
            if operation["tags"][0] == tag:
                lines += _operation_lines(f"{method.upper()} {prefix}{path}", operation, schemas)
    lines += ["## Response objects", ""]
    answers = dict.fromkeys(name for _, _, operation in operations for name in _answers(operation))
    for name in _with_parts(answers, schemas):
        lines += _object_lines(schemas[name], schemas)
    return "\n".join(lines).rstrip() + "\n"


def api_html(openapi: Schema, prefix: str) -> str:
    """Return ``api_markdown`` as an HTML page without external resources."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    body = parser.render(api_markdown(openapi, prefix))
    return _PAGE.format(body=body)


def _operations(openapi: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in openapi["paths"].items():
        for method in _METHODS:
            if method in methods:
                yield method, path, methods[method]


def _operation_lines(title: str, operation: Schema, schemas: Schema) -> list[str]:
    lines = [f"### {operation['summary']}", "", code(title), ""]
    if operation.get("description"):
        lines += [operation["description"], ""]
    rows = [
        (code(param["name"]), param["in"], _type(param["schema"], schemas), _meaning(param))
        for param in operation.get("parameters", ())
    ]
    if (body := _body(operation, schemas)) is not None:
        rows += [(name, "body", kind, meaning) for name, kind, meaning in _fields(body, schemas)]
    if rows:
        lines += [table(("name", "in", "type", "meaning"), rows), ""]
    status, answer = next(iter(operation["responses"].items()))
    schema = _content(answer)
    body_type = f" with {_type(schema, schemas)}" if schema else ""
    return [*lines, f"Returns {status}{body_type}.", ""]


def _object_lines(named: Schema, schemas: Schema) -> list[str]:
    lines = [f"### {named['title']}", "", named["description"], ""]
    return [*lines, table(("name", "type", "meaning"), _fields(named, schemas)), ""]


def _answers(operation: Schema) -> Iterator[str]:
    """Yield the names of an operation's response objects."""
    for answer in operation["responses"].values():
        schema = _content(answer)
        if schema and "$ref" in schema:
            yield _name(schema)


def _with_parts(names: Iterable[str], schemas: Schema) -> list[str]:
    """Return the names of objects, each followed by the item types of its lists."""
    ordered: dict[str, None] = {}
    for name in names:
        parts = (field.get("items", {}) for field in schemas[name]["properties"].values())
        ordered |= dict.fromkeys((name, *(_name(part) for part in parts if "$ref" in part)))
    return list(ordered)


def _body(operation: Schema, schemas: Schema) -> Schema | None:
    return _content(operation["requestBody"]) if "requestBody" in operation else None


def _content(part: Schema) -> Schema | None:
    schema: Schema | None = part.get("content", {}).get("application/json", {}).get("schema")
    return schema


def _fields(schema: Schema, schemas: Schema) -> Iterator[tuple[Markdown, str, str]]:
    named = _resolved(schema, schemas)
    for name, field in named.get("properties", {}).items():
        yield code(name), _type(field, schemas), _meaning(field, name in named.get("required", ()))


def _meaning(field: Schema, is_required: bool | None = None) -> str:
    """Return the description of a parameter or field, with its default if it is optional."""
    text: str = field.get("description", "")
    default = field.get("schema", field).get("default")
    if default is not None and is_required is not True:
        text += f" (default: {default})"
    return Markdown(text)


def _type(schema: Schema, schemas: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(option, schemas) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return Markdown(f"list of {_type(schema['items'], schemas)}")
    named = _resolved(schema, schemas)
    if "enum" in named:
        return ", ".join(map(str, named["enum"]))
    if "properties" in named:
        return Markdown(f"[{named['title']}](#{anchor(named['title'])})")
    return str(named.get("type", "any"))


def _resolved(schema: Schema, schemas: Schema) -> Schema:
    named: Schema = schemas[_name(schema)] if "$ref" in schema else schema
    return named


def _name(schema: Schema) -> str:
    name: str = schema["$ref"].rpartition("/")[2]
    return name


_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Jarvis: HTTP API</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ border: 1px solid color-mix(in srgb, currentColor 25%, transparent); padding: .3rem .6rem;
  text-align: left; vertical-align: top; }}
pre {{ overflow-x: auto; padding: .8rem;
  background: color-mix(in srgb, currentColor 7%, transparent); }}
h2 {{ margin-top: 2.5rem; }}
</style>
<main>{body}</main>
</html>
"""
