"""A server on loopback that speaks S3, and buckets in it."""

import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pytest

from tests.optional import tied
from tests.services.ports import free_port, wait_until_open

if TYPE_CHECKING:
    from s3fs import S3FileSystem

KEY, SECRET = "test-key", "test-secret-4711"


@dataclass(frozen=True, slots=True)
class S3:
    """Where the server answers; ``environment`` is what clients need to know."""

    endpoint: str

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that every S3 client reads."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @property
    def files(self) -> "S3FileSystem":
        """The files of all buckets."""
        return _files(self.endpoint)

    def bucket(self) -> str:
        """The URL of a new bucket."""
        name = f"test-{secrets.token_hex(6)}"
        self.files.mkdir(name)
        return f"s3://{name}"


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """One server for all tests of a session; it dies with them."""
    port, log = free_port(), tmp_path_factory.mktemp("s3") / "log"
    command = [*tied(), sys.executable, "-m", "moto.server"]
    with log.open("wb") as written:
        process = subprocess.Popen(
            [*command, "-H", "127.0.0.1", "-p", str(port)], stdout=written, stderr=written
        )
    try:
        wait_until_open(port)
        yield S3(f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def s3_root(s3: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of a fresh bucket, with the environment that reaches it."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return f"{s3.bucket()}/jarvis"


@lru_cache(maxsize=1)
def _files(endpoint: str) -> "S3FileSystem":
    from s3fs import S3FileSystem  # slow to import, and few tests need it

    options = {"endpoint_url": endpoint, "key": KEY, "secret": SECRET}
    return S3FileSystem(**options, use_listings_cache=False, skip_instance_cache=True)
