"""How are files reached that lie on a Hadoop file system?

Through the file systems that Spark's JVM knows: file:, hdfs:, and s3a: or others where their libraries are on Spark's
class path; credentials come from Spark's own configuration and are never seen here. What the driver wants to look at is
copied into a directory of this machine first. Renaming is one step on file: and hdfs:; an object store copies file by
file, so that a directory of several may be seen in part. Who needs all of it asks for what is written last.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError, LostError

_NO_CLASS = ("ClassNotFoundException", "NoClassDefFoundError", "UnsupportedFileSystemException")


class HadoopLocation:
    """A place at a URL. `desk` is a directory of this machine that belongs to it alone."""

    def __init__(self, url: str, spark: SparkSession, desk: Path) -> None:
        self._url = url.rstrip("/")
        self._desk = desk
        self._jvm: Any = spark._jvm
        context: Any = spark.sparkContext._jsc
        self._conf = context.hadoopConfiguration()
        try:
            self._files = self._path("").getFileSystem(self._conf)
            # No checksum files beside what is written: parts have hashes of their own.
            self._files.setWriteChecksum(False)
        except Py4JJavaError as err:
            raise ConfigError(f"{url}: this file system cannot be used: {reason(err)}{self._cure(err)}") from err

    def __str__(self) -> str:
        return self._url

    def at(self, path: str) -> str:
        return f"{self._url}/{path}" if path else self._url

    def local_files(self, path: str) -> list[Path]:
        names = [name for name in self.names(path) if name.endswith(".parquet") and not name.startswith(".")]
        return [self.fetched(f"{path}/{name}") for name in names]

    def fetched(self, path: str) -> Path:
        local = self._desk / path
        local.parent.mkdir(parents=True, exist_ok=True)
        with _told(self.at(path)):
            self._files.copyToLocalFile(False, self._path(path), self._local(local), True)
        return local

    def read(self, path: str) -> bytes | None:
        with _told(self.at(path)):
            if not self._files.isFile(self._path(path)):
                return None
        return self.fetched(path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        local = self._desk / f"{path}.out"
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(content)
        self.put(local, f"{path}.tmp")
        self.remove(path)
        self.rename(f"{path}.tmp", path)

    def put(self, local: Path, path: str) -> None:
        with _told(self.at(path)):
            # As a stream, as Spark's tasks write: copyFromLocalFile has a second way into S3, with a client that takes
            # a repeated "100 Continue" for the answer.
            hadoop = self._jvm.org.apache.hadoop.fs
            here = hadoop.FileSystem.getLocal(self._conf).getRaw()
            hadoop.FileUtil.copy(here, self._local(local), self._files, self._path(path), False, True, self._conf)

    def names(self, path: str) -> list[str]:
        with _told(self.at(path)):
            if not self._files.isDirectory(self._path(path)):
                return []
            return sorted(str(entry.getPath().getName()) for entry in self._files.listStatus(self._path(path)))

    def rename(self, source: str, target: str) -> None:
        with _told(self.at(target)):
            if not self._files.rename(self._path(source), self._path(target)):
                raise LostError(f"{self.at(source)} could not be renamed to {self.at(target)}")

    def remove(self, path: str) -> None:
        shutil.rmtree(self._desk / path, ignore_errors=True)  # or else a copy would outlive what it is of
        with _told(self.at(path)):
            self._files.delete(self._path(path), True)

    def make(self, path: str) -> None:
        with _told(self.at(path)):
            self._files.mkdirs(self._path(path))

    def octets(self, path: str) -> int | None:
        """The size of a file; None when there is none."""
        with _told(self.at(path)):
            found = self._path(path)
            return int(self._files.getFileStatus(found).getLen()) if self._files.isFile(found) else None

    def tail(self, path: str, octets: int) -> bytes:
        """The last bytes of a file."""
        with _told(self.at(path)):
            stream = self._files.open(self._path(path))
            try:
                stream.seek(max((self.octets(path) or 0) - octets, 0))
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def _cure(self, err: Py4JJavaError) -> str:
        """What to do where Java has no class for this file system."""
        if not any(name in reason(err) for name in _NO_CLASS):
            return ""
        version = self._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        if self._url.startswith("s3a:"):
            library = f"org.apache.hadoop:hadoop-aws:{version}"
            return f"; write spark.jars.packages {library} into the spark-defaults.conf that SPARK_CONF_DIR leads to"
        return f"; its library, for Hadoop {version}, must be on Spark's class path"

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.at(path))

    def _local(self, path: Path) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("file", None, str(path.absolute()))


@contextmanager
def _told(url: str) -> Iterator[None]:
    """What the JVM complains of becomes a sentence with the URL in it."""
    try:
        yield
    except Py4JJavaError as err:
        raise LostError(f"{url}: {reason(err)}") from err


def reason(err: Py4JJavaError) -> str:
    """The first line of what Java said: the lines after it are where, not what."""
    return str(err.java_exception.toString()).splitlines()[0]


def first_words(err: Exception) -> str:
    """What went wrong, in one line. Py4J's own first line says only which of its objects was called."""
    return reason(err) if isinstance(err, Py4JJavaError) else str(err).splitlines()[0]
