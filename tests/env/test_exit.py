"""What a script leaves behind that ends without closing anything: no session, and not itself."""

import subprocess
import sys
from typing import Any

import pytest

from ors_gym.testing import FaultServer

SCRIPTS = {
    "an environment": "env = ORSEnv(URL); env.reset()",
    "an environment with a session ahead": "env = ORSEnv(URL, prefetch=True); env.reset()",
    "a vector environment": "envs = ORSVectorEnv(4, URL); envs.reset(seed=0)",
    "a vector environment in the middle of a step": "envs = ORSVectorEnv(4, URL); envs.reset(seed=0); envs.step_async([SLOW] * 4)",
    "ordinary environments in threads": "envs = AsyncioVectorEnv([lambda: ORSEnv(URL)] * 3); envs.reset(seed=0)",
    "ordinary environments in threads, in the middle of a step": (
        "envs = AsyncioVectorEnv([lambda: ORSEnv(URL)] * 3); envs.reset(seed=0); envs.step_async([SLOW] * 3)"
    ),
    "a pool in flight": "pool = ORSEnvPool(4, URL); pool.async_reset(seed=0); pool.recv(4); pool.send([SLOW] * 2, [0, 1])",
    "an exception": "envs = ORSVectorEnv(4, URL); envs.reset(seed=0); raise SystemExit(3)",
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_a_script_that_closes_nothing_ends_and_leaves_no_session(fault_server: FaultServer, script: str) -> None:
    code = f"""
from ors_gym.env import *
URL, SLOW = {fault_server.base_url!r}, {{"name": "slow", "input": {{"seconds": 60}}}}
{script}
"""
    ran: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == (3 if "SystemExit" in script else 0), ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr
    assert fault_server.received("create")
    assert fault_server.sessions == set()
