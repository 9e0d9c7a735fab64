"""A local server comes up, serves, and goes down with its process."""

import httpx

from tests.servers.sdk_server import SDKServer


def test_both_sdks_serve_the_same_environments(real_server: SDKServer) -> None:
    names = httpx.get(f"{real_server.base_url}/list_environments").json()
    assert names == ["arithmetic", "counter", "faulty", "tasktools", "brokensetup"]
    assert real_server.live_sessions() == []
