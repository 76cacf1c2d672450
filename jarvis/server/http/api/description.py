"""The API for people: one page, made from what `openapi.json` says."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from markdown_it import MarkdownIt

from jarvis.text.markdown import Markdown, anchor, code, table

SUMMARY = """\
Upload a trace, have it analyzed, follow the job, and take home what was found. Answers are JSON.

- Where the server asks who people are, send a token of the page Access as the header
  `Authorization: Bearer jrv_...`. A token does what its role may: viewers look, editors also upload
  and analyze, admins change everything. What one may not see is answered like what there is not.
  An upload is visible to the person who began it.
- What is not done is answered with a status and `{"error": "why, and what to do"}`: 400 and 422 for
  what cannot be meant, 401 without a token that the server knows, 403 where the role is too small,
  404, 409 where something is in the way, 413 and 507 where it is too large for the server or its
  disk, 429 with `Retry-After` after too many requests in a minute, 503 while the database is away.
- A `page` in an answer is where people see it, behind the address of the server.
"""

EXAMPLE = """\
```sh
server=https://jarvis.example.org; auth="Authorization: Bearer $JARVIS_TOKEN"

# a trace on the server's own disk: a job, which says the id of the analysis when it is done
curl -sH "$auth" "$server/api/analyses" --json '{"path": "step.json.gz", "platform": "MI300X"}'
curl -sH "$auth" "$server/api/jobs/JOB"
curl -sH "$auth" "$server/api/analyses/ANALYSIS/artifacts/standalone_analysis_fair.md"

# a trace of this machine: begin an upload, send it in one piece or several, then analyze it
upload=$(curl -si -X POST "$server/api/uploads" -H "$auth" -H "Tus-Resumable: 1.0.0" \\
  -H "Upload-Length: $(stat -c %s trace.json.gz)" \\
  -H "Upload-Metadata: filename $(printf trace.json.gz | base64)" |
  sed -n 's/^location: \\(.*\\)\\r/\\1/ip')
curl -s -X PATCH "$server$upload" -H "$auth" -H "Tus-Resumable: 1.0.0" -H "Upload-Offset: 0" \\
  -H "Content-Type: application/offset+octet-stream" --data-binary @trace.json.gz
curl -sH "$auth" "$server/api/analyses" --json "{\\"upload\\": \\"${upload##*/}\\"}"
```

`jarvis push trace.json.gz --server $server` does the last three and goes on where a connection
breaks. Uploads speak [tus 1.0](https://tus.io/protocols/resumable-upload), so its clients work too.
"""

_METHODS = ("get", "post", "patch", "delete", "head", "options")

Schema = Mapping[str, Any]


def api_markdown(openapi: Schema, prefix: str) -> str:
    """``docs/api.md``: what can be asked, with what, and what is answered."""
    lines = ["# The HTTP API", "", "Made from the code by `make docs`. A running server has the"]
    lines += [f"same at `{prefix}/docs`, and for programs at `{prefix}/openapi.json`.", ""]
    lines += [SUMMARY, EXAMPLE]
    schemas = openapi["components"]["schemas"]
    operations = list(_operations(openapi))
    for tag in dict.fromkeys(operation["tags"][0] for _, _, operation in operations):
        lines += [f"## {tag.capitalize()}", ""]
        for method, path, operation in operations:
            if operation["tags"][0] == tag:
                lines += _operation_lines(f"{method.upper()} {prefix}{path}", operation, schemas)
    lines += ["## What is answered", ""]
    answers = dict.fromkeys(name for _, _, operation in operations for name in _answers(operation))
    for name in _with_parts(answers, schemas):
        lines += _object_lines(schemas[name], schemas)
    return "\n".join(lines).rstrip() + "\n"


def api_html(openapi: Schema, prefix: str) -> str:
    """The same as a page that asks nothing of any other server."""
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
        (code(given["name"]), given["in"], _type(given["schema"], schemas), _meaning(given))
        for given in operation.get("parameters", ())
    ]
    if (body := _body(operation, schemas)) is not None:
        rows += [(name, "body", kind, meaning) for name, kind, meaning in _fields(body, schemas)]
    if rows:
        lines += [table(("name", "in", "type", "meaning"), rows), ""]
    status, answer = next(iter(operation["responses"].items()))
    schema = _content(answer)
    what = f" with {_type(schema, schemas)}" if schema else ""
    return [*lines, f"Answers {status}{what}.", ""]


def _object_lines(named: Schema, schemas: Schema) -> list[str]:
    lines = [f"### {named['title']}", "", named["description"], ""]
    return [*lines, table(("name", "type", "meaning"), _fields(named, schemas)), ""]


def _answers(operation: Schema) -> Iterator[str]:
    """The objects that an operation answers with."""
    for answer in operation["responses"].values():
        schema = _content(answer)
        if schema and "$ref" in schema:
            yield _name(schema)


def _with_parts(names: Iterable[str], schemas: Schema) -> list[str]:
    """Objects, each followed by those that lists of it hold."""
    found: dict[str, None] = {}
    for name in names:
        parts = (field.get("items", {}) for field in schemas[name]["properties"].values())
        found |= dict.fromkeys((name, *(_name(part) for part in parts if "$ref" in part)))
    return list(found)


def _body(operation: Schema, schemas: Schema) -> Schema | None:
    return _content(operation["requestBody"]) if "requestBody" in operation else None


def _content(part: Schema) -> Schema | None:
    schema: Schema | None = part.get("content", {}).get("application/json", {}).get("schema")
    return schema


def _fields(schema: Schema, schemas: Schema) -> Iterator[tuple[Markdown, str, str]]:
    named = _resolved(schema, schemas)
    for name, field in named.get("properties", {}).items():
        yield code(name), _type(field, schemas), _meaning(field, name in named.get("required", ()))


def _meaning(given: Schema, is_required: bool | None = None) -> str:
    """What it is; where a request may leave it out, that it may."""
    text: str = given.get("description", "")
    default = given.get("schema", given).get("default")
    if default is not None and is_required is not True:
        text += f" (default: {default})"
    return Markdown(text)


def _type(schema: Schema, schemas: Schema) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(one, schemas) for one in schema["anyOf"])
    if schema.get("type") == "array":
        return Markdown(f"list of {_type(schema['items'], schemas)}")
    named = _resolved(schema, schemas)
    if "enum" in named:
        return ", ".join(map(str, named["enum"]))
    if "properties" in named:
        return Markdown(f"[{named['title']}](#{anchor(named['title'])})")
    return {"null": "nothing"}.get(named.get("type", ""), str(named.get("type", "any")))


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
<title>Jarvis: the HTTP API</title>
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
