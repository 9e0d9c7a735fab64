"""The tests' environments on either SDK's server, with one path more: `/tests/sessions` lists the sessions that live."""

import importlib
import json
import os
from typing import Any

import httpx

from ors_gym.serving import LocalServer
from ors_gym.serving._worker import Served, run


class SDKServer(LocalServer):
    """`LocalServer`'s life with the server class of either SDK.

    Args:
        sdk: The module that has `Server`: "ors" or "openreward.environments".
    """

    _module = "tests.servers.sdk_server"

    def __init__(self, sdk: str, **options: Any) -> None:
        super().__init__(["tests.servers.environments"], **options)
        self.sdk = sdk
        self._overlooked: set[str] = set()

    def _orders(self, port: int) -> dict[str, Any]:
        return {**super()._orders(port), "sdk": self.sdk}

    def live_sessions(self) -> list[str]:
        """The ids of the sessions that have been created and neither deleted nor timed out; those overlooked are left out."""
        return [session for session in self._all_sessions() if session not in self._overlooked]

    def overlook_sessions(self) -> None:
        """Leave out, from here on, the sessions that live now."""
        self._overlooked = set(self._all_sessions())

    def _all_sessions(self) -> list[str]:
        sessions: list[str] = httpx.get(f"{self.base_url}/tests/sessions").raise_for_status().json()
        return sessions


def build(orders: dict[str, Any]) -> Served:
    os.environ["ORS_GYM_TEST_SDK"] = orders["sdk"]
    os.environ["OPENREWARD_LOG_LEVEL"] = orders["log_level"]
    from tests.servers import environments

    server = importlib.import_module(orders["sdk"]).Server(environments.ALL)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/tests/sessions":
            body = json.dumps(list(server._active_envs)).encode()
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
            await send({"type": "http.response.body", "body": body})
        else:
            await server.app(scope, receive, send)

    return Served(app, [environment.name().lower() for environment in environments.ALL])


def main() -> None:
    run(build)
