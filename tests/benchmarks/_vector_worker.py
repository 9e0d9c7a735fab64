"""Vector environments and raw aiohttp over one stub, measured in a process of their own."""

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import aiohttp
import psutil
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from ors_gym.env import ORSEnv, ORSEnvPool, ORSVectorEnv
from ors_gym.portal import Portal

OURS, SYNC, ASYNC, RAW = "ORSVectorEnv", "SyncVectorEnv", "AsyncVectorEnv", "raw aiohttp"
GO = {"name": "go", "input": {}}


class RawBatch:
    """The same calls by plain aiohttp, all at once: their answers' JSON and events are parsed, and nothing else is done."""

    def __init__(self, num_envs: int, base_url: str, env_name: str) -> None:
        self._portal, self._base_url, self._env_name = Portal(), base_url, env_name
        self._portal.call(self._open, num_envs)

    def step(self, actions: list[dict[str, Any]]) -> Any:
        return self._portal.call(self._step, actions)

    def close(self) -> None:
        self._portal.call(self._client.close)

    async def _open(self, num_envs: int) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        self._client = aiohttp.ClientSession(self._base_url, connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        self._sids = await asyncio.gather(*(self._create() for _ in range(num_envs)))

    async def _create(self) -> str:
        async with self._client.post("/create_session") as response:
            sid = (await response.text()).split("data: ")[1].split("\r\n")[0]
        body = {"env_name": self._env_name, "split": "train", "index": 0}
        async with self._client.post("/create", json=body, headers={"X-Session-ID": sid}) as response:
            await response.json()
        return sid

    async def _step(self, actions: list[dict[str, Any]]) -> list[Any]:
        return await asyncio.gather(*(self._call(sid, action) for sid, action in zip(self._sids, actions, strict=True)))

    async def _call(self, sid: str, action: dict[str, Any]) -> Any:
        async with self._client.post(f"/{self._env_name}/call", json=action, headers={"X-Session-ID": sid}) as response:
            events = (await response.text()).split("\r\n\r\n")
        return json.loads(next(event.partition("data: ")[2] for event in events if event.startswith("event: end")))


def make(kind: str, num_envs: int, base_url: str, env_name: str) -> Any:
    """One of the sides, ready to step."""
    if kind == RAW:
        return RawBatch(num_envs, base_url, env_name)
    if kind == OURS:
        envs: Any = ORSVectorEnv(num_envs, base_url, env_name)
    else:
        env_fns: list[Callable[[], ORSEnv]] = [lambda: ORSEnv(base_url, env_name)] * num_envs
        envs = SyncVectorEnv(env_fns) if kind == SYNC else AsyncVectorEnv(env_fns, shared_memory=False)
    envs.reset(seed=0)
    return envs


def step_times(kinds: list[str], num_envs: int, base_url: str, env_name: str, rounds: int) -> dict[str, float]:
    """Median seconds of a step by side, the sides in turn."""
    sides = {kind: make(kind, num_envs, base_url, env_name) for kind in kinds}
    actions = [GO] * num_envs
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for round in range(rounds + 1):
        for kind, side in sides.items():
            begun = time.perf_counter()
            side.step(actions)
            if round:  # the first opens connections
                times[kind].append(time.perf_counter() - begun)
    for side in sides.values():
        side.close()
    return {kind: median(values) for kind, values in times.items()}


def memory(kind: str, num_envs: int, base_url: str, env_name: str) -> float:
    """Bytes that a side takes after ten steps: PSS of the process tree, less what it was before construction."""
    before = _pss()
    envs = make(kind, num_envs, base_url, env_name)
    for _ in range(10):
        envs.step([GO] * num_envs)
    after = _pss()
    envs.close()
    return after - before


def pool_rates(num_envs: int, base_url: str, env_name: str, seconds: float) -> dict[str, float]:
    """Steps a second of the lockstep vector environment and of the pool, which receives when half are ready."""
    envs = make(OURS, num_envs, base_url, env_name)
    pool = ORSEnvPool(num_envs, base_url, env_name)
    pool.async_reset(seed=0)
    pool.send([GO] * num_envs, pool.recv(min_size=num_envs).env_ids)
    rates: dict[str, list[float]] = {"lockstep": [], "pool": []}
    for _ in range(5):
        begun, steps = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            envs.step([GO] * num_envs)
            steps += num_envs
        rates["lockstep"].append(steps / (time.perf_counter() - begun))
        begun, steps = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            batch = pool.recv(min_size=num_envs // 2)
            pool.send([GO] * len(batch.env_ids), batch.env_ids)
            steps += len(batch.env_ids)
        rates["pool"].append(steps / (time.perf_counter() - begun))
    pool.close()
    envs.close()
    return {name: median(values) for name, values in rates.items()}


def _pss() -> float:
    me = psutil.Process()
    return float(sum(process.memory_full_info().pss for process in (me, *me.children(recursive=True))))


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function of this module in a process of its own."""
    request = json.dumps([function.__name__, *args])
    command = [sys.executable, "-m", "tests.benchmarks._vector_worker", request]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    name, *args = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps({"step_times": step_times, "memory": memory, "pool_rates": pool_rates}[name](*args)))
