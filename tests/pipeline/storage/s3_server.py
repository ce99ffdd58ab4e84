"""An S3 server on the loopback address, and the client that Spark needs for it. Maven fetches both."""

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pyspark

from crescendo.pipeline.spark.java import find_java
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.install.maven_command import find_maven

SERVER = "org.gaul:s3proxy:2.6.0"
SDK = "2.35.4"  # required by hadoop-aws 3.5.0: 15 MB as modules, 686 MB as the bundle that it names
IN_SPARK = "io.netty,org.slf4j,commons-codec,commons-logging"
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version><exclusions><exclusion>"
    "<groupId>software.amazon.awssdk</groupId><artifactId>bundle</artifactId></exclusion></exclusions></dependency>"
)
BUCKET = "bucket"
FETCH_TIMEOUT_S, START_TIMEOUT_S = 900.0, 120.0


class Bucket:
    """A bucket, accessed by plain HTTP requests: not by the code under test."""

    def __init__(self, endpoint: str) -> None:
        self._url = f"{endpoint}/{BUCKET}"
        httpx.put(self._url).raise_for_status()

    def upload(self, folder: Path, prefix: str) -> None:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            url = f"{self._url}/{prefix}/{file.relative_to(folder)}"
            httpx.put(url, content=file.read_bytes()).raise_for_status()

    def names(self) -> list[str]:
        found = httpx.get(self._url, params={"list-type": "2"}).raise_for_status().text
        assert "<IsTruncated>false<" in found
        return re.findall(r"<Key>([^<]*)</Key>", found)

    def download(self, folder: Path) -> Path:
        for key in self.names():
            if not key.endswith("/"):
                (folder / key).parent.mkdir(parents=True, exist_ok=True)
                (folder / key).write_bytes(httpx.get(f"{self._url}/{key}").raise_for_status().content)
        return folder


def client_settings(folder: Path, endpoint: str) -> Path:
    """A SPARK_CONF_DIR that points s3a: to this endpoint."""
    client = next(Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar"))
    hadoop = client.stem.removeprefix("hadoop-client-api-")
    modules = [f"software.amazon.awssdk:{name}:{SDK}" for name in ("s3-transfer-manager", "sts")]
    wanted = [f"org.apache.hadoop:hadoop-aws:{hadoop}", *modules]
    jars = fetched(wanted, folder / "client", f"-DexcludeGroupIds={IN_SPARK}")
    settings = {
        "spark.driver.extraClassPath": ":".join(str(jar) for jar in sorted(jars.iterdir())),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": "anyone",
        "spark.hadoop.fs.s3a.secret.key": "secret",
    }
    conf = folder / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return conf


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Start the server and give its endpoint. It keeps objects in memory."""
    jars = fetched([SERVER], folder / "server")
    (folder / "logback.xml").write_text('<configuration><root level="off"/></configuration>')
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    (folder / "server.conf").write_text(
        f"s3proxy.authorization=none\ns3proxy.endpoint={endpoint}\ns3proxy.ignore-unknown-headers=true\n"
        "jclouds.provider=transient\njclouds.identity=x\njclouds.credential=x\n"
    )
    java = [str(find_java()), "-Xmx512m", "-XX:-UsePerfData", f"-Dlogback.configurationFile={folder / 'logback.xml'}"]
    command = [*java, "-cp", f"{jars}/*", "org.gaul.s3proxy.Main", "--properties", str(folder / "server.conf")]
    process = subprocess.Popen(die_with_parent().wrap(command))
    try:
        _await(endpoint, process)
        yield endpoint
    finally:
        process.terminate()
        process.wait(60)


def fetched(artifacts: list[str], folder: Path, *options: str) -> Path:
    """The directory of these artifacts and their dependencies, as Maven resolves them."""
    folder.mkdir()
    needed = "".join(DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
    (folder / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>none</groupId><artifactId>none</artifactId>"
        f"<version>1</version><dependencies>{needed}</dependencies></project>"
    )
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=lib", *options]
    command = [find_maven(print), "--batch-mode", "--quiet", *goal]
    subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL, timeout=FETCH_TIMEOUT_S)
    return folder / "lib"


def _await(endpoint: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            httpx.get(endpoint)
            return
        except httpx.TransportError:
            time.sleep(0.2)
    raise AssertionError(f"the server at {endpoint} does not answer")
