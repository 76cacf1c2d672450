"""Graceful shutdown within the time limit."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import streamlit

from jarvis.server.http.web.lifespan import AFTER_REQUESTS_S
from tests.services.serving import Serving, serving

STATIC = Path(streamlit.__file__).parent / "static"

NEVER_ENDS = """
import signal, time
from jarvis.server.http.web.lifespan import bounded_stop
signal.signal(signal.SIGTERM, lambda *_: print("signaled", flush=True))
with bounded_stop({most_s}):
    print("ready", flush=True)
    while True:
        time.sleep(1)
"""


def _reader_who_pauses(server: Serving) -> socket.socket:
    """A client that does not read its large response, which therefore stays open."""
    largest = max(STATIC.glob("static/js/*.js"), key=lambda path: path.stat().st_size)
    request = f"GET /static/js/{largest.name} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(request.encode() * 40)
    time.sleep(0.5)  # until the buffers between us are full
    return connection


def test_an_open_request_gets_its_time_and_no_more(tmp_path: Path, usual_processes: None) -> None:
    with (
        serving(tmp_path, {"JARVIS_STOP_SECONDS": "1"}) as server,
        _reader_who_pauses(server),
    ):
        assert 1 <= server.told_to_stop(1 + AFTER_REQUESTS_S + 1) < 1 + AFTER_REQUESTS_S
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port))


def test_a_second_signal_stops_it_at_once(tmp_path: Path) -> None:
    settings = {"JARVIS_STOP_SECONDS": "60", "JARVIS_JOB_SLOTS": "0"}
    with serving(tmp_path, settings) as server, _reader_who_pauses(server):
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert server.process.poll() is None, "the open request has its time"
        assert server.told_to_stop(50) < 30


def test_what_never_ends_is_ended() -> None:
    program = NEVER_ENDS.format(most_s=0.3)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.readline() == "signaled\n"
        assert process.wait(120) == 128 + signal.SIGTERM
