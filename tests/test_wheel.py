"""The built wheel works outside the checkout: it analyzes a trace and serves the dashboard."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from tests.services.ports import free_port

ROOT = Path(__file__).parent.parent
START_SECONDS = 180


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True, text=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment with the wheel and the installed dependencies."""
    root = tmp_path_factory.mktemp("installed")
    venv.create(root / "venv", with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(root / "venv" / "bin" / "python")]
    command = [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    site = next((root / "venv").rglob("site-packages"))
    borrowed = [path for path in sys.path if Path(path).name == "site-packages"]
    # Appended after the wheel's own files, so that the wheel's jarvis wins over an editable one.
    (site / "borrowed.pth").write_text("\n".join(borrowed))
    return root


def run_jarvis(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [installed / "venv" / "bin" / "jarvis", *arguments],
        cwd=installed,
        env=environment(installed),
        capture_output=True,
        text=True,
        check=False,
    )


def environment(installed: Path) -> dict[str, str]:
    return {**os.environ, "JARVIS_HOME": str(installed / "home"), "PYTHONPATH": ""}


def test_the_wheel_carries_the_app(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("app.py", "hardware.toml", "pages/ingest.py", ".streamlit/config.toml"):
        assert f"jarvis/_app/{name}" in names
    assert any(name.endswith(".md.j2") for name in names)


def test_the_wheel_analyses_a_trace(installed: Path) -> None:
    where = "import jarvis; print(jarvis.__file__)"
    python = installed / "venv" / "bin" / "python"
    location = subprocess.run(
        [python, "-c", where],
        cwd=installed,
        env=environment(installed),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert location.startswith(str(installed)), location
    trace = installed / "sample.json.gz"
    assert run_jarvis(installed, "sample", "--output", str(trace)).returncode == 0
    done = run_jarvis(installed, "analyze", str(trace), "--output-dir", str(installed / "run"))
    assert done.returncode == 0, done.stderr
    assert (installed / "run" / "standalone_analysis_fair.md").stat().st_size > 1000


def test_the_wheel_serves(installed: Path) -> None:
    port = free_port()
    command = [installed / "venv" / "bin" / "jarvis", "serve", "--port", str(port)]
    server = subprocess.Popen(
        command,
        cwd=installed,
        env=environment(installed),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert wait_for(f"http://127.0.0.1:{port}/_stcore/health") == "ok"
    finally:
        server.terminate()
        server.wait(timeout=20)


def wait_for(url: str) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    return "no answer"
