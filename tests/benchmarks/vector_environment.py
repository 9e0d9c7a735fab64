"""A step of many sessions, and the memory that they take, beside Gymnasium's vector environments and raw aiohttp; and the pool."""

from tests.benchmarks import _vector_worker as worker
from tests.benchmarks._tool_stub import ToolStub
from tests.benchmarks._vector_worker import ASYNC, OURS, RAW, SYNC
from tests.benchmarks.table import Cell, Table

NAME = "vector_environment"

_SYNC_UP_TO, _ASYNC_UP_TO = 64, 256


def run(quick: bool) -> list[Table]:
    """Wall time of a step, memory, and the pool's throughput."""
    with ToolStub() as stub:
        sizes = (2, 4) if quick else (16, 64, 256, 1024)
        return [
            _steps(stub.base_url, sizes, quick),
            _slow_steps(stub.base_url, 4 if quick else 256, quick),
            _memory(stub.base_url, sizes),
            _pool(stub.base_url, (4,) if quick else (16, 64), quick),
        ]


def _steps(base_url: str, sizes: tuple[int, ...], quick: bool) -> Table:
    rows: list[list[Cell]] = []
    targets: dict[str, bool] = {}
    for size in sizes:
        kinds = [OURS, RAW, *([SYNC] if size <= _SYNC_UP_TO else [])]
        times = worker.run(worker.step_times, kinds, size, base_url, "wait20", 2 if quick else 9)
        if size <= _ASYNC_UP_TO:
            times |= worker.run(worker.step_times, [ASYNC], size, base_url, "wait20", 2 if quick else 9)
        ratio = times[OURS] / times[RAW]
        rows.append([size, *(times[kind] * 1000 if kind in times else None for kind in (OURS, RAW, SYNC, ASYNC)), ratio])
        if size in (64, 256, 1024):
            targets[f"at {size}: at most 2.5 times raw aiohttp's batch"] = ratio <= 2.5
        if size == 64:
            targets["at 64: at least 20 times as fast as SyncVectorEnv"] = times[SYNC] >= 20 * times[OURS]
    columns = ["n", OURS, RAW, SYNC, ASYNC, "ours / raw"]
    return Table("Wall time of a step with a tool of 20 ms, in ms", columns, rows, targets)


def _slow_steps(base_url: str, size: int, quick: bool) -> Table:
    times = worker.run(worker.step_times, [OURS, RAW], size, base_url, "wait500", 1 if quick else 5)
    targets = {"at most 1.5 times the tool's latency": times[OURS] <= 1.5 * 0.5}
    rows = [[size, times[OURS] * 1000, times[RAW] * 1000]]
    return Table("Wall time of a step with a tool of 500 ms, in ms", ["n", OURS, RAW], rows, targets)


def _memory(base_url: str, sizes: tuple[int, ...]) -> Table:
    rows: list[list[Cell]] = []
    targets: dict[str, bool] = {}
    for size in sizes:
        limits = {OURS: size, SYNC: _SYNC_UP_TO, ASYNC: _ASYNC_UP_TO}
        used = {
            kind: worker.run(worker.memory, kind, size, base_url, "wait0") / 2**20
            for kind, limit in limits.items()
            if size <= limit
        }
        rows.append([size, *(used.get(kind) for kind in limits)])
        if size == _ASYNC_UP_TO:
            targets["at 256: at most a tenth of AsyncVectorEnv's"] = used[OURS] <= used[ASYNC] / 10
    title = "Memory, in MiB: PSS of the process tree, less what it was before construction"
    return Table(title, ["n", OURS, SYNC, ASYNC], rows, targets)


def _pool(base_url: str, sizes: tuple[int, ...], quick: bool) -> Table:
    rows: list[list[Cell]] = []
    targets: dict[str, bool] = {}
    for size in sizes:
        rates = worker.run(worker.pool_rates, size, base_url, "uneven20", 0.2 if quick else 2.0)
        rows.append([size, rates["pool"], rates["lockstep"], rates["pool"] / rates["lockstep"]])
        if not quick:
            targets[f"at {size}: at least 4 times the lockstep's steps"] = rates["pool"] >= 4 * rates["lockstep"]
    title = "Steps a second with a tool of 20 ms, of 200 ms in every tenth session; recv(min_size=n/2)"
    return Table(title, ["n", "ORSEnvPool", OURS, "ratio"], rows, targets)
