"""How is a question in SQL answered, without trusting it?

`python -m crescendo.web.sql_process` reads one question from standard input and prints the answer as JSON. It is a
process of its own with limits of time, memory and rows; DuckDB may open the files of one recording and nothing else,
and only one statement that reads is accepted. Dies with the server.
"""

import asyncio
import contextlib
import resource
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from crescendo.model.errors import ConfigError
from crescendo.processes.child import end_child, launch_child
from crescendo.processes.die_with_parent import die_with_parent

TIMEOUT_S = 20.0
MAX_ROWS = 1000
_MEMORY_BYTES = 512 * 2**20
_ADDRESS_BYTES = 4 * 2**30
_CPU_S = 30
_POLL_S = 0.05
_GRACE_S = 1.0
_FOLDERS = ("tables", "")  # tables of the analysis first, then what was recorded


class SqlQuestion(Struct, frozen=True):
    """One statement about one recording."""

    directory: str
    sql: str


class SqlAnswer(Struct, frozen=True):
    """Rows, or why there are none."""

    columns: list[str] = []
    rows: list[list[Any]] = []
    more: bool = False
    problem: str = ""


async def ask(run_dir: Path, sql: str, scratch: Path) -> SqlAnswer:
    """The answer. ConfigError with DuckDB's own words if the statement is wrong."""
    asked, answered = scratch / "question.json", scratch / "answer.json"
    asked.write_bytes(msgspec.json.encode(SqlQuestion(str(run_dir), sql)))
    with asked.open("rb") as given:
        child = launch_child(
            [sys.executable, "-m", "crescendo.web.sql_process"],
            on_fork=die_with_parent(),
            stdin=given.fileno(),
            log=answered,
        )
    try:
        for _ in range(int(TIMEOUT_S / _POLL_S)):
            if child.poll() is not None:
                break
            await asyncio.sleep(_POLL_S)
        else:
            raise ConfigError(f"the statement took longer than {TIMEOUT_S:.0f} s; ask for less")
    finally:
        if child.poll() is None:
            await asyncio.get_running_loop().run_in_executor(None, end_child, child, _GRACE_S)
    try:
        answer = msgspec.json.decode(answered.read_bytes().splitlines()[-1], type=SqlAnswer)
    except (ValueError, IndexError):
        raise ConfigError("the statement needs more memory than it may have; ask for less") from None
    if answer.problem:
        raise ConfigError(answer.problem)
    return answer


def answer_to(question: SqlQuestion) -> SqlAnswer:
    """Run the statement in this process."""
    try:
        import duckdb
    except ModuleNotFoundError:
        return SqlAnswer(problem="SQL needs DuckDB; install it beside Crescendo: pip install 'crescendo-lab[sql]'")
    try:
        statements = duckdb.extract_statements(question.sql)
        if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
            return SqlAnswer(problem="write one statement that reads: SELECT …, or FROM …")
        with contextlib.closing(duckdb.connect(":memory:")) as database:
            directory = Path(question.directory)
            for name, pattern in _views(directory).items():
                database.read_parquet(str(pattern)).create_view(name)
            place = str(directory).replace("'", "''")
            database.execute(f"SET allowed_directories = ['{place}']")
            for setting in (
                f"memory_limit = '{_MEMORY_BYTES}B'", "threads = 1", "max_temp_directory_size = '0B'",
                "enable_external_access = false", "lock_configuration = true",
            ):  # fmt: skip
                database.execute(f"SET {setting}")
            found = database.execute(statements[0])
            rows = found.fetchmany(MAX_ROWS + 1)
            columns = [column[0] for column in found.description or ()]
    except duckdb.Error as err:
        return SqlAnswer(problem=str(err).partition("\n\n")[0])
    return SqlAnswer(columns, [list(row) for row in rows[:MAX_ROWS]], len(rows) > MAX_ROWS)


def _views(directory: Path) -> dict[str, Path]:
    """Name of a table -> its files."""
    found: dict[str, Path] = {}
    for folder in _FOLDERS:
        for path in sorted((directory / folder).glob("*/")):
            if not path.is_symlink() and any(path.glob("*.parquet")):
                found.setdefault(path.name, path / "*.parquet")
    return found


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_BYTES, _ADDRESS_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=SqlQuestion)
    sys.stdout.buffer.write(msgspec.json.encode(answer_to(question), enc_hook=str) + b"\n")


if __name__ == "__main__":
    main()
