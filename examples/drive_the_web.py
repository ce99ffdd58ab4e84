"""Drive the lab of `crescendo web` from a program: define, run, follow, read the verdict, download.

    crescendo web                    # prints a link; make another under Access if a browser has used it
    python examples/drive_the_web.py LINK

Every page has the same content as JSON below /api; /api/openapi.json describes all of it.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

EXPERIMENT = """
name: driven
system: {kind: loopback}
workload: {senders: 2, receivers: 2, rate: 250, size: 256}
phases: {warmup: 1s, measure: 15s, drain: 5s}
checks: {rate: ">= 0.9 of offered", lost: 0}
"""


@contextmanager
def signed_in(link: str) -> Iterator[httpx.Client]:
    """The link works once; from then on a cookie and a token in a header identify this program."""
    parts = urlsplit(link)
    with httpx.Client(base_url=f"{parts.scheme}://{parts.netloc}", timeout=60) as client:
        if client.get(link).is_error:
            raise SystemExit("this link was used or is too old; make another on the page Access")
        client.headers["X-CSRF-Token"] = str(answer(client.get("/api/session"))["csrf"])
        yield client


def answer(response: httpx.Response) -> dict[str, object]:
    """What the server says; its own sentence if it refuses."""
    content: dict[str, object] = response.json()
    if response.is_error:
        raise SystemExit(f"{response.request.url.path}: {content['error']}")
    return content


def follow(client: httpx.Client, job: str) -> dict[str, object]:
    """Print the rate of every second until the job has ended; returns how."""
    with client.stream("GET", f"/api/jobs/{job}/live", timeout=None) as events:
        name = ""
        for line in events.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                entry: dict[str, object] = json.loads(line.removeprefix("data: "))
                if name == "end":
                    return entry
                if entry["kind"] == "sample":
                    received = entry["receiver"]
                    print(f"{entry['phase']}: {received['rate']:.0f} msg/s", flush=True)  # type: ignore[index]
    raise SystemExit("the server ended; the run goes on")


def main(link: str, out: str = ".") -> str:
    with signed_in(link) as client:
        name = answer(client.post("/api/experiments", json={"text": EXPERIMENT}))["name"]
        job = answer(client.post("/api/jobs", json={"experiment": name}))["id"]
        ended = follow(client, str(job))
        if ended["state"] != "done":
            raise SystemExit(f"{ended['state']}: {ended['problem']}")
        run = ended["run"]
        archive = Path(out) / f"{run}.zip"
        with client.stream("GET", f"/runs/{run}/download/tables.zip") as content, archive.open("wb") as file:
            for piece in content.iter_bytes():
                file.write(piece)
        print(f"{run}: {ended['outcome']}; its tables are in {archive}")
        return str(ended["outcome"])


if __name__ == "__main__":
    main(*sys.argv[1:])
