"""HTTP API for programs, browser uploads and `jarvis push`."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute

from jarvis.core.product import API, product_version
from jarvis.server.http.api import (
    analysis_routes,
    distributed_routes,
    job_routes,
    report_routes,
    timeline_routes,
    upload_routes,
)
from jarvis.server.http.api.description import SUMMARY, api_html
from jarvis.server.http.api.errors import ErrorBody, add_error_handlers


def api() -> FastAPI:
    """Return the application to mount at ``/api``; its schema is at /api/openapi.json."""
    app = FastAPI(
        title="Jarvis",
        version=product_version(),
        description=SUMMARY,
        servers=[{"url": API}],
        root_path_in_servers=False,
        docs_url=None,
        redoc_url=None,
        responses={"default": {"model": ErrorBody, "description": "The error"}},
        generate_unique_id_function=_operation_id,
    )
    add_error_handlers(app)
    routers = (
        upload_routes,
        analysis_routes,
        distributed_routes,
        report_routes,
        job_routes,
        timeline_routes,
    )
    for routes in routers:
        app.include_router(routes.router)
    app.add_api_route("/docs", _docs_page(app), include_in_schema=False, methods=["GET"])
    return app


def _operation_id(route: APIRoute) -> str:
    return f"{route.tags[0]}-{route.name}" if route.tags else route.name


def _docs_page(app: FastAPI) -> Callable[[], Any]:
    def docs() -> HTMLResponse:
        return HTMLResponse(api_html(app.openapi(), API))

    return docs
