"""Discovery: health, environments, tools and splits. None of it needs a session."""

from typing import Any

from jsonschema import Draft202012Validator, SchemaError

from ors_gym.conformance._probe import UNKNOWN, Answer, Probe, named
from ors_gym.conformance._requirements import Finding, NotTestable, Registry, deviates, holds, passes, violates

registry = Registry()
requirement = registry.requirement

HTTP_API = "HTTP API Reference"
DATA_TYPES = "Data Types"


@requirement("GET /health", HTTP_API, "A running server answers 200.")
async def health_status(probe: Probe) -> Finding:
    answer = await probe.get("/health")
    return holds(answer.ok, answer.summary)


@requirement("GET /health", HTTP_API, 'The body is {"status": "ok"}.')
async def health_body(probe: Probe) -> Finding:
    body = (await probe.get("/health")).json()
    return holds(body == {"status": "ok"}, f"{body}")


@requirement("GET /list_environments", HTTP_API, "The answer is an array of names, at least one.")
async def environments_shape(probe: Probe) -> Finding:
    names = await probe.list_environments()
    return passes(f"{len(names)}: {', '.join(names)[:100]}")


@requirement("GET /list_environments", HTTP_API, "No name is there twice.")
async def environments_unique(probe: Probe) -> Finding:
    names = await probe.environments()
    return holds(len(set(names)) == len(names), f"{len(names)} names, {len(set(names))} of them different")


@requirement("GET /list_environments", HTTP_API, "Each name works as the first part of a path.")
async def environments_usable(probe: Probe) -> Finding:
    names = await probe.environments()
    broken = {name: answer.summary for name in names if not (answer := await probe.get(f"/{name}/tools")).ok}
    return holds(not broken, f"of {len(names)} environments, these do not list their tools: {broken}" if broken else "all work")


@requirement("GET /list_environments", HTTP_API, "It needs no session; the same names come again.")
async def environments_repeatable(probe: Probe) -> Finding:
    again = (await probe.get("/list_environments")).array()
    return holds(again == await probe.environments(), f"{len(again)} names again")


@requirement("GET /{env_name}/tools", HTTP_API, "The answer is an object with the array `tools`.")
async def tools_shape(probe: Probe) -> Finding:
    listed = (await probe.get(await probe.path("tools"))).array("tools")
    return holds(all(isinstance(tool, dict) for tool in listed), f"{len(listed)} tools")


@requirement("GET /{env_name}/tools", DATA_TYPES, "Each tool has a name, and no two have the same.")
async def tools_named(probe: Probe) -> Finding:
    return _unique_names((await probe.get(await probe.path("tools"))).array("tools"))


@requirement("GET /{env_name}/tools", DATA_TYPES, "Each tool has a description, a text.")
async def tools_described(probe: Probe) -> Finding:
    without = [tool["name"] for tool in await probe.tools() if not isinstance(tool.get("description"), str)]
    return holds(not without, f"without a description: {without}" if without else "all have one")


@requirement(
    "GET /{env_name}/tools", DATA_TYPES, "`input_schema` is always there: an object, or null for a tool without parameters."
)
async def tools_schema_present(probe: Probe) -> Finding:
    return schemas_present(await probe.tools())


@requirement("GET /{env_name}/tools", "Tools", "A schema is a valid JSON Schema of an object.")
async def tools_schema_valid(probe: Probe) -> Finding:
    return schemas_valid(await probe.tools())


@requirement("GET /{env_name}/tools", DATA_TYPES, "A tool has the fields of a ToolSpec, and the answer those of ListToolsOutput.")
async def tools_fields(probe: Probe) -> Finding:
    answer = await probe.get(await probe.path("tools"))
    more = extra(answer.object(), {"tools"})
    more += extra_of_all(named(answer.array("tools")), {"name", "description", "input_schema"})
    return deviates(f"more fields: {', '.join(more)}") if more else passes("no others")


@requirement("GET /{env_name}/tools", HTTP_API, "An unknown environment is 404, or redirected if the server has only one.")
async def tools_unknown_environment(probe: Probe) -> Finding:
    return await unknown_environment(probe, await probe.get(f"/{UNKNOWN}/tools"))


@requirement("GET /{env_name}/splits", HTTP_API, "The answer is an array of objects, at least one.")
async def splits_shape(probe: Probe) -> Finding:
    listed = (await probe.get(await probe.path("splits"))).array()
    return holds(bool(listed) and all(isinstance(split, dict) for split in listed), f"{len(listed)} splits")


@requirement("GET /{env_name}/splits", DATA_TYPES, "Each split has a name, and no two have the same.")
async def splits_named(probe: Probe) -> Finding:
    return _unique_names((await probe.get(await probe.path("splits"))).array())


@requirement("GET /{env_name}/splits", DATA_TYPES, "Each split has a type: train, validation or test.")
async def splits_typed(probe: Probe) -> Finding:
    wrong = {split["name"]: split.get("type") for split in await probe.splits() if split.get("type") not in _TYPES}
    return holds(not wrong, f"other types: {wrong}" if wrong else "all have one of the three")


@requirement("GET /{env_name}/splits", "Tasks & Splits", "Splits named train, validation and test have the type of their name.")
async def splits_type_of_name(probe: Probe) -> Finding:
    standard = [split for split in await probe.splits() if split["name"] in _TYPES]
    if not standard:
        raise NotTestable("no split has a standard name")
    wrong = {split["name"]: split.get("type") for split in standard if split.get("type") != split["name"]}
    return deviates(f"{wrong}") if wrong else passes(", ".join(split["name"] for split in standard))


@requirement("GET /{env_name}/splits", HTTP_API, "An unknown environment is 404, or redirected if the server has only one.")
async def splits_unknown_environment(probe: Probe) -> Finding:
    return await unknown_environment(probe, await probe.get(f"/{UNKNOWN}/splits"))


_TYPES = ("train", "validation", "test")


async def unknown_environment(probe: Probe, answer: Answer) -> Finding:
    """What an answer to a request for an environment that is not there says of the server."""
    if answer.status == 404:
        return passes(answer.summary)
    if 300 <= answer.status < 400:
        place = answer.headers.get("location", "")
        several = len(await probe.environments()) > 1
        observed = f"{answer.status} to {place}"
        return deviates(f"{observed}, with several environments") if several else passes(f"{observed}, as it has one environment")
    return deviates(answer.summary) if answer.status in (400, 422) else violates(answer.summary)


def schemas_present(tools: list[dict[str, Any]]) -> Finding:
    without = [tool["name"] for tool in tools if "input_schema" not in tool]
    wrong = [tool["name"] for tool in tools if not isinstance(tool.get("input_schema"), dict | None)]
    if without or wrong:
        return violates(f"without one: {without}; neither object nor null: {wrong}")
    null = [tool["name"] for tool in tools if tool["input_schema"] is None]
    return passes(f"{len(tools) - len(null)} with parameters, {len(null)} without")


def schemas_valid(tools: list[dict[str, Any]]) -> Finding:
    broken = {}
    for tool in tools:
        schema = tool.get("input_schema")
        if schema is None:
            continue
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            broken[tool["name"]] = error.message
        else:
            if not isinstance(schema, dict) or schema.get("type", "object") != "object":
                broken[tool["name"]] = f"it is not the schema of an object: {schema!r:.60}"
    return holds(not broken, f"{broken}"[:200] if broken else "all valid")


def extra(body: dict[str, Any], known: set[str]) -> list[str]:
    """The fields of an object that the standard does not name."""
    return [name for name in body if name not in known]


def extra_of_all(items: list[dict[str, Any]], known: set[str]) -> list[str]:
    return list(dict.fromkeys(name for item in items for name in extra(item, known)))


def _unique_names(items: list[Any]) -> Finding:
    names = [item["name"] for item in named(items)]
    if len(names) < len(items):
        return violates(f"{len(items) - len(names)} of {len(items)} have no name")
    twice = sorted({name for name in names if names.count(name) > 1})
    return holds(not twice, f"twice: {twice}" if twice else f"{', '.join(names)[:100]}")
