"""`check_server`: every requirement, one after another, on one environment of one server."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from ors_gym.conformance._probe import Probe
from ors_gym.conformance._requirements import Finding, Malformed, NotTestable, Requirement, not_testable, violates
from ors_gym.conformance.checks import REQUIREMENTS
from ors_gym.conformance.report import Report
from ors_gym.errors import ConnectionFailed, NotFound
from ors_gym.portal import portal


def check_server(
    base_url: str,
    env_name: str | None = None,
    *,
    call_tools: bool | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
    call_timeout: float = 10.0,
) -> Report:
    """Find out whether a server keeps the Open Reward Standard.

    It reads, opens sessions, calls tools with inputs that their schemas allow, and closes every session that it opened. What it
    could not look at is "not testable", with the reason.

    Args:
        base_url: The server.
        env_name: The environment to use; None is the first.
        call_tools: Whether to open sessions and call tools. None does so on loopback only; anywhere else it lists and reads.
        headers: Headers to send with every request, for instance an API key.
        timeout: Seconds that an answer may take.
        call_timeout: Seconds that a tool call may take before it is given up.

    Raises:
        ConnectionFailed: The server cannot be reached.
        NotFound: It has no environment of that name.

    >>> report = check_server(base_url, call_tools=False)
    >>> report.worst, report.with_verdict("violation")
    ('deviation', ())
    """
    return portal().call(
        acheck_server,
        base_url,
        env_name,
        call_tools=call_tools,
        headers=headers,
        timeout=timeout,
        call_timeout=call_timeout,
    )


async def acheck_server(
    base_url: str,
    env_name: str | None = None,
    *,
    call_tools: bool | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
    call_timeout: float = 10.0,
    requirements: tuple[Requirement, ...] = REQUIREMENTS,
) -> Report:
    """`check_server` as a coroutine; `requirements` are those to look at.

    >>> import asyncio
    >>> report = asyncio.run(acheck_server(base_url, "largest_digit", call_tools=False, requirements=REQUIREMENTS[:3]))
    >>> report.worst, len(report)
    ('pass', 3)
    """
    base_url = base_url.rstrip("/")
    may_call = is_loopback(base_url) if call_tools is None else call_tools
    async with httpx.AsyncClient(base_url=base_url, headers=dict(headers or {}), timeout=timeout) as client:
        probe = Probe(client, env_name, may_call, call_timeout)
        name = await _greet(probe, base_url, env_name)
        rows = []
        try:
            for requirement in requirements:
                rows.append(requirement.row(await _look(requirement, probe)))
                await probe.close()
        finally:
            await probe.close()
    endpoints = list(dict.fromkeys(row.endpoint for row in rows))
    return Report(base_url, name, tuple(sorted(rows, key=lambda row: endpoints.index(row.endpoint))))


async def _greet(probe: Probe, base_url: str, env_name: str | None) -> str:
    """The environment that will be used, once the server has answered anything at all."""
    try:
        await probe.get("/health")
        names = await probe.environments()
    except httpx.TransportError as error:
        raise ConnectionFailed(f"cannot reach {base_url}: {str(error) or type(error).__name__}", url=base_url) from error
    except NotTestable:  # the requirements about /list_environments will say what is wrong with it
        return env_name or ""
    if env_name is not None and env_name.lower() not in [name.lower() for name in names]:
        raise NotFound(f"{base_url} has no environment {env_name!r}; it has {', '.join(map(repr, names))}", url=base_url)
    return env_name or names[0]


async def _look(requirement: Requirement, probe: Probe) -> Finding:
    if probe.gone:
        return not_testable("the server cannot be reached any more")
    try:
        return await requirement.check(probe)
    except NotTestable as reason:
        return not_testable(str(reason))
    except Malformed as fault:
        return violates(str(fault))
    except httpx.TransportError as error:
        probe.gone = isinstance(error, httpx.ConnectError)
        return violates(f"no answer: {str(error) or type(error).__name__}")


def is_loopback(base_url: str) -> bool:
    """Whether a URL names this machine.

    >>> is_loopback("http://127.0.0.1:8080"), is_loopback("https://example.com")
    (True, False)
    """
    host = urlsplit(base_url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
