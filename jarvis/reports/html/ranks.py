"""The report on several ranks as one HTML file."""

from jarvis.charts import DARK, LIGHT
from jarvis.charts.svg import variables
from jarvis.core.workspace import RunPaths
from jarvis.ranks.run import DistributedRun
from jarvis.reports.html.document import environment
from jarvis.text.markdown import Markdown


def ranks_html(run: DistributedRun) -> str:
    """Return the report of a distributed run as an HTML document."""
    report = RunPaths(run.root).ranks_report.read_text(encoding="utf-8")
    return (
        environment()
        .get_template("ranks.html.j2")
        .render(
            title=" · ".join(filter(None, (run.manifest.name, run.manifest.title))),
            report=Markdown(report),
            version=run.manifest.jarvis_version,
            created=run.manifest.created,
            light=variables(LIGHT),
            dark=variables(DARK),
        )
    )
