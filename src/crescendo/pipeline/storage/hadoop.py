"""How does the driver access files on a Hadoop file system?

Through the file systems that Spark's JVM supports: file:, hdfs:, and s3a: or others whose libraries are on Spark's
class path. Credentials come from Spark's own configuration and never pass through here. A file that the driver reads
is first copied to a directory on this machine. A rename is atomic on file: and hdfs:; an object store copies file by
file, so a reader may see part of a directory. A reader that needs all of it checks for the file that is written last.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError, LostError
from crescendo.pipeline.spark.errors import java_reason

_NO_CLASS = ("ClassNotFoundException", "NoClassDefFoundError", "UnsupportedFileSystemException")


class HadoopLocation:
    """A directory at a URL. `scratch_dir` is a directory on this machine that no other location uses."""

    def __init__(self, url: str, spark: SparkSession, scratch_dir: Path) -> None:
        self._url = url.rstrip("/")
        self._scratch_dir = scratch_dir
        self._jvm: Any = spark._jvm
        context: Any = spark.sparkContext._jsc
        self._conf = context.hadoopConfiguration()
        try:
            self._files = self._path("").getFileSystem(self._conf)
            # No Hadoop checksum files: parts have their own hashes.
            self._files.setWriteChecksum(False)
        except Py4JJavaError as err:
            raise ConfigError(f"{url}: this file system cannot be used: {java_reason(err)}{self._cure(err)}") from err

    def __str__(self) -> str:
        return self._url

    def spark_path(self, path: str) -> str:
        return f"{self._url}/{path}" if path else self._url

    def local_files(self, path: str) -> list[Path]:
        names = [name for name in self.names(path) if name.endswith(".parquet") and not name.startswith(".")]
        return [self.local_file(f"{path}/{name}") for name in names]

    def local_file(self, path: str) -> Path:
        local = self._scratch_dir / path
        local.parent.mkdir(parents=True, exist_ok=True)
        with _lost_on_java_error(self.spark_path(path)):
            self._files.copyToLocalFile(False, self._path(path), self._local(local), True)
        return local

    def read(self, path: str) -> bytes | None:
        with _lost_on_java_error(self.spark_path(path)):
            if not self._files.isFile(self._path(path)):
                return None
        return self.local_file(path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        local = self._scratch_dir / f"{path}.out"
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(content)
        self.put(local, f"{path}.tmp")
        self.remove(path)
        self.rename(f"{path}.tmp", path)

    def put(self, local: Path, path: str) -> None:
        with _lost_on_java_error(self.spark_path(path)):
            # As a stream, as Spark's tasks write: copyFromLocalFile uses a different S3 client, which mistakes a
            # repeated "100 Continue" for the response.
            hadoop = self._jvm.org.apache.hadoop.fs
            here = hadoop.FileSystem.getLocal(self._conf).getRaw()
            hadoop.FileUtil.copy(here, self._local(local), self._files, self._path(path), False, True, self._conf)

    def names(self, path: str) -> list[str]:
        with _lost_on_java_error(self.spark_path(path)):
            if not self._files.isDirectory(self._path(path)):
                return []
            return sorted(str(entry.getPath().getName()) for entry in self._files.listStatus(self._path(path)))

    def rename(self, source: str, target: str) -> None:
        with _lost_on_java_error(self.spark_path(target)):
            if not self._files.rename(self._path(source), self._path(target)):
                raise LostError(f"{self.spark_path(source)} could not be renamed to {self.spark_path(target)}")

    def remove(self, path: str) -> None:
        shutil.rmtree(self._scratch_dir / path, ignore_errors=True)  # the local copy must not outlive the original
        with _lost_on_java_error(self.spark_path(path)):
            self._files.delete(self._path(path), True)

    def make_dir(self, path: str) -> None:
        with _lost_on_java_error(self.spark_path(path)):
            self._files.mkdirs(self._path(path))

    def size_bytes(self, path: str) -> int | None:
        """The size of a file; None when it does not exist."""
        with _lost_on_java_error(self.spark_path(path)):
            found = self._path(path)
            return int(self._files.getFileStatus(found).getLen()) if self._files.isFile(found) else None

    def tail(self, path: str, length_bytes: int) -> bytes:
        """The last bytes of a file."""
        with _lost_on_java_error(self.spark_path(path)):
            stream = self._files.open(self._path(path))
            try:
                stream.seek(max((self.size_bytes(path) or 0) - length_bytes, 0))
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def _cure(self, err: Py4JJavaError) -> str:
        """What to do when Java has no class for this file system."""
        if not any(name in java_reason(err) for name in _NO_CLASS):
            return ""
        version = self._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        if self._url.startswith("s3a:"):
            library = f"org.apache.hadoop:hadoop-aws:{version}"
            return f"; write spark.jars.packages {library} into the spark-defaults.conf in SPARK_CONF_DIR"
        return f"; its library, for Hadoop {version}, must be on Spark's class path"

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.spark_path(path))

    def _local(self, path: Path) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("file", None, str(path.absolute()))


@contextmanager
def _lost_on_java_error(url: str) -> Iterator[None]:
    """Turn errors of the JVM into a LostError that names the URL."""
    try:
        yield
    except Py4JJavaError as err:
        raise LostError(f"{url}: {java_reason(err)}") from err
