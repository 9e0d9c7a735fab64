"""What holds for every answer: read over all that the other checks received."""

import json

from ors_gym.conformance._probe import Answer, Probe
from ors_gym.conformance._requirements import Finding, NotTestable, Registry, deviates, passes, violates
from ors_gym.conformance.checks.discovery import HTTP_API

registry = Registry()
requirement = registry.requirement

_ANY = "every endpoint"
_SECRET = "ors-gym-check-a-value-that-must-not-come-back"


@requirement(_ANY, HTTP_API, "An answer that is no stream is JSON, and says so in its content type.")
async def answers_are_json(probe: Probe) -> Finding:
    for answer in _plain(probe):
        if "json" not in answer.headers.get("content-type", ""):
            return violates(f"{answer.method} {answer.path}: {answer.headers.get('content-type')}")
    return passes(f"{len(_plain(probe))} answers")


@requirement(_ANY, "JSON", "JSON has no NaN and no Infinity, and is UTF-8.")
async def answers_are_strict_json(probe: Probe) -> Finding:
    bodies = [(f"{a.method} {a.path}", a.content.decode("utf-8", "surrogateescape")) for a in _plain(probe)]
    bodies += [(f"the result of {call.tool}", call.payload) for call in probe.calls if call.answer.ok and call.payload is not None]
    for place, body in bodies:
        tokens: list[str] = []
        try:
            json.loads(body, parse_constant=tokens.append)
        except ValueError as error:
            return violates(f"{place} is not JSON: {error}")
        if tokens or any("\udc80" <= character <= "\udcff" for character in body):
            return violates(f"{place} has {tokens[0] if tokens else 'bytes that are not UTF-8'}")
    return passes(f"{len(bodies)} bodies")


@requirement(_ANY, HTTP_API, 'A refusal has the body {"detail": a text}.')
async def refusals_have_a_detail(probe: Probe) -> Finding:
    refusals = [answer for answer in probe.answers if answer.status >= 400]
    if not refusals:
        raise NotTestable("nothing was refused")
    lists = 0
    for answer in refusals:
        try:
            body = json.loads(answer.content)
        except ValueError:
            return violates(f"{answer.method} {answer.path} answered {answer.summary}, which is not JSON")
        detail = body.get("detail") if isinstance(body, dict) else None
        if detail is None:
            return violates(f"{answer.method} {answer.path} answered {answer.summary}, which has no detail")
        lists += not isinstance(detail, str)
    return deviates(f"{lists} of {len(refusals)} have a detail that is no text") if lists else passes(f"{len(refusals)} refusals")


@requirement(_ANY, HTTP_API, "No request is an error of the server (5xx).")
async def no_server_errors(probe: Probe) -> Finding:
    errors = [answer for answer in probe.answers if answer.status >= 500]
    if errors:
        return deviates(f"{errors[0].method} {errors[0].path}: {errors[0].summary}")
    return passes(f"{len(probe.answers)} answers")


@requirement("POST /create", "Data Types", "Secrets are not shown: a refused request does not come back with them.")
async def secrets_are_not_echoed(probe: Probe) -> Finding:
    secrets = {"secrets": {"check": _SECRET}}
    bodies = [{"env_name": await probe.env_name()}, {**await probe.by_index(), "index": "first"}]
    refusals = [(await probe.create({**body, **secrets}))[1] for body in bodies]
    echoing = [answer for answer in refusals if _SECRET.encode() in answer.content]
    if echoing:
        return deviates(f"{echoing[0].status}, with the secret in its body")
    return passes(f"{', '.join(str(answer.status) for answer in refusals)}, without the secret")


def _plain(probe: Probe) -> list[Answer]:
    return [answer for answer in probe.answers if answer.ok and not answer.is_stream]
