"""The platforms on the ingest page and their peaks."""

import pytest

from jarvis.server.database import database
from tests.dashboard.conftest import Draw
from tests.dashboard.inline_jobs import do_jobs_at_once, work_off


@pytest.mark.parametrize(
    ("platform", "figures"),
    [
        ("MI300X", ("5.30 TB/s", "708 TFLOP/s", "192 GB")),
        ("MI325X", ("6.00 TB/s", "708 TFLOP/s", "256 GB")),
        ("MI355X", ("6.50 TB/s", "850 TFLOP/s", "288 GB")),
        ("MI400", ("7.00 TB/s", "1,000 TFLOP/s", "320 GB")),
    ],
)
def test_a_platform_is_offered_with_bandwidth_peak_and_memory(
    filed: Draw, platform: str, figures: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    do_jobs_at_once(monkeypatch)
    work_off(database())  # an earlier test may have asked to read the sample
    page = filed("ingest", ingest_source="sample")
    assert platform in page.selectbox(key="ingest_platform").options
    page.selectbox(key="ingest_platform").set_value(platform).run()
    assert tuple(metric.value for metric in page.metric)[:3] == figures
