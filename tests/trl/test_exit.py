"""A script that ends without closing its spec leaves no session on the server."""

import subprocess
import sys
import textwrap

from tests.servers.sdk_server import SDKServer

SCRIPT = """
    import sys

    import httpx

    from ors_gym.trl import ORSSpec

    base_url = sys.argv[1]
    spec = ORSSpec(base_url, "counter", progress=False)
    environments = [spec.environment_factory() for _ in range(4)]
    for number, environment in enumerate(environments):
        environment.reset(ors_split="train", ors_index=number)
    print([environment.tool_0000(amount=0) != "" for environment in environments[:3]])
    print(len(httpx.get(base_url + "/tests/sessions").json()) >= 3)
"""


def test_sessions_of_the_factory_are_closed_when_the_interpreter_exits(ors_server: SDKServer) -> None:
    script = textwrap.dedent(SCRIPT)
    ended = subprocess.run([sys.executable, "-c", script, ors_server.base_url], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["[True, True, True]", "True"]
    assert ors_server.live_sessions() == []
