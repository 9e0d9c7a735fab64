"""The soak test's server, a process of its own: `FaultServer` that fails at random and counts every run of its tool.

Each line on its standard input is answered with a report in JSON; the end of the input ends it.
"""

import asyncio
import json
import random
import sys
from collections import Counter
from typing import Any

from ors_gym.testing import Fault, FaultServer, Request

runs: Counter[str] = Counter()
faults: Counter[str] = Counter()
requests = 0
chance = random.Random(1)


async def count(input: dict[str, Any]) -> dict[str, Any]:
    """Notes that it ran, takes a moment, and gives the id back, padded to a size that is sent in one to many chunks."""
    runs[input["id"]] += 1
    await asyncio.sleep(chance.random() * 0.05)
    text = input["id"] + " " * chance.choice([10, 100, 5_000, 30_000])
    return {"blocks": [{"type": "text", "text": text}], "reward": 1.0, "finished": False}


def decide(request: Request) -> Fault | None:
    global requests
    requests += 1
    if len(server.requests) > 1000:
        del server.requests[:-10]
        del server.calls[:]
    draw = chance.random()
    if draw < 0.85:
        return None
    kind = chance.choice(["drop", "delay", "slow", "429", "503", "502", "starting", "forget"])
    if kind == "forget" and chance.random() < 0.9:
        return None
    faults[kind] += 1
    match kind:
        case "drop":
            marks: list[int | bytes] = [0, 20, 150, 200, 1000, 6000, b"event: task_id", b"event: chunk", b"event: end"]
            return Fault(cut=chance.choice(marks))
        case "delay":
            return Fault(delay=chance.random() * 0.3)
        case "slow":
            return Fault(packet=500)
        case "429":
            return Fault(status=429, headers={"Retry-After": "0"})
        case "503":
            return Fault(status=503, body=b"overloaded")
        case "502":
            return Fault(status=502)
        case "starting":
            return Fault(status=503, headers={"X-Backend-State": "starting", "Retry-After": "0"})
    server.sessions.discard(request.session_id)
    return None


server = FaultServer(decide, tools={"count": count})


def main() -> None:
    with server:
        print(server.base_url, flush=True)  # noqa: T201 - the test reads it
        for _ in sys.stdin:
            server._results.clear()
            report = {"runs": runs, "sessions": len(server.sessions), "faults": faults, "requests": requests}
            print(json.dumps(report), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
