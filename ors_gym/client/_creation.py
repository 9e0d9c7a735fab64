"""How a session comes to be: `/create_session`, then `/create`, whose answer may get lost, until there is one for certain."""

import base64
from dataclasses import dataclass
from typing import Literal

from ors_gym.client._config import Timeout
from ors_gym.client._core import Core
from ors_gym.client._json import dump
from ors_gym.client._limits import Attempts, retry_after
from ors_gym.client._live import Live
from ors_gym.client._messages import Answer, Broken, Call, Cookies
from ors_gym.client._servers import Server
from ors_gym.client._sse import session_id_in
from ors_gym.client._urls import is_session_id
from ors_gym.errors import ORSError, SessionSetupFailed
from ors_gym.protocol import CreateSession
from ors_gym.secrets import Redactor, ResolvedSecret
from ors_gym.tasks import TaskRef

SecretsForm = Literal["body", "header"]


@dataclass(frozen=True)
class _Refusal:
    """Why a `/create` did not bring a session, where another may."""

    error: ORSError
    retry_after: float | None = None
    asked_to_wait: bool = False


@dataclass(frozen=True)
class Creation:
    """The creation of one session.

    Attributes:
        core: The client's state.
        env_name: The environment.
        task: The task.
        secrets: The session's secrets, resolved.
        timeout: The session's limits.
        redactor: Knows the secrets.
    """

    core: Core
    env_name: str
    task: TaskRef
    secrets: dict[str, ResolvedSecret]
    timeout: Timeout
    redactor: Redactor

    async def run(self) -> Live:
        """Tries until the server has created the session; each try takes a new session id, so that none is posted twice."""
        core, body = self.core, self._body()
        attempts = Attempts(core.http.retry, self.timeout.setup)
        refused: Server | None = None
        while True:
            call = self._call("POST", core.pick_server(avoid=refused), "create_session")
            call.server.sessions += 1  # it counts before it has an id, so that others are placed elsewhere
            try:
                answer = await core.http.request(call, attempts=attempts, patient=True, elsewhere=self._elsewhere)
                if answer.status != 200:
                    raise answer.error()
                sid = session_id_in(answer)
                if not is_session_id(sid):
                    raise answer.broken_standard("the session id is not 1 to 512 visible ASCII characters")
                form = await self._secrets_form(call.server)
                core.enter(f"a session of {self.env_name!r}")  # it may have been closed meanwhile
                live = core.adopt(sid, call.server, self.env_name, self.timeout, self.redactor, call.cookies)
            finally:
                call.server.sessions -= 1
            refusal = await self._post(live, body, form)
            if refusal is None:
                return live
            await attempts.pause(refusal.error, retry_after=refusal.retry_after, asked_to_wait=refusal.asked_to_wait)
            core.http.counters.retries += 1
            refused = live.server

    def _call(self, method: str, server: Server, endpoint: str) -> Call:
        return Call(method, server, endpoint, self.core.headers, self.timeout, self.redactor, cookies=Cookies())

    def _elsewhere(self, call: Call) -> None:
        call.server.sessions -= 1
        call.server, call.cookies = self.core.pick_server(avoid=call.server), Cookies()
        call.server.sessions += 1

    async def _secrets_form(self, server: Server) -> SecretsForm:
        """How the server takes secrets, so that none is sent in a form that it only logs: `openreward` servers have a /version."""
        if not self.secrets:
            return "body"
        if server.secrets_form is None:
            answer = await self.core.http.request(self._call("GET", server, "version"))
            version = answer.parsed() if answer.status == 200 else None
            server.secrets_form = "header" if isinstance(version, dict) and "build_sha" in version else "body"
        return server.secrets_form

    async def _post(self, live: Live, body: bytes, form: SecretsForm) -> _Refusal | None:
        """Posts `/create` once and settles what comes of it.

        Returns:
            None if the session exists now; else why not, for another try with another id.

        Raises:
            ORSError: There is no use in another try.
        """
        core, headers = self.core, live.headers
        if self.secrets and form == "header":
            headers = headers.copy()
            headers["X-Secrets"] = secrets_header(self.secrets)
        elif self.secrets:
            body = self._body(with_secrets=True)
        posting = live.creation = core.cleanups.start(core.http.exchange(live.call("POST", "create", body, headers), limit=""))
        try:
            await posting.ended()
        except BaseException:
            await core.delete(live)
            raise
        try:
            answer = posting.result()
            live.creation = None
        except Broken as broken:
            if broken.sent:
                return await self._settle(live, broken.error)
            live.server.went_down()
            core.release(live)  # nothing was posted, so there is nothing to delete
            if broken.retryable:
                return _Refusal(broken.error)
            raise broken.error from None
        except BaseException:
            await core.delete(live)
            raise
        return await self._judge(live, answer, form)

    async def _judge(self, live: Live, answer: Answer, form: SecretsForm) -> _Refusal | None:
        """What a `/create` that was answered came to."""
        server = live.server
        if 200 <= answer.status < 300:
            server.is_back()
            return None
        error = answer.error(about_session=False)
        if answer.status == 429 or answer.starting:
            self.core.release(live)  # refused before it began
            return _Refusal(error, retry_after(answer.headers), asked_to_wait=True)
        if answer.status in (502, 503, 504):
            server.went_down()
            return await self._settle(live, error)
        if answer.status >= 500:
            await self.core.delete(live)
            words = answer.words()
            message = f"{live.describe()}: the server could not create it: {words}"
            raise SessionSetupFailed(message, session_id=live.sid, status=answer.status, detail=words)
        self.core.release(live)
        if form == "body" and self.secrets and answer.refuses_field("secrets"):
            server.secrets_form = "header"
            return _Refusal(error, retry_after=0.0, asked_to_wait=True)
        raise error

    async def _settle(self, live: Live, error: ORSError) -> _Refusal | None:
        """A `/create` whose answer was lost: the session is kept if it lives, else deleted for certain."""
        try:
            if (await self.core.ping(live)).status == 200:
                return None
        except ORSError as failure:
            error = failure
        except BaseException:
            await self.core.delete(live)
            raise
        await self.core.delete(live)
        return _Refusal(error)

    def _body(self, *, with_secrets: bool = False) -> bytes:
        body = CreateSession(
            env_name=self.env_name,
            task_spec=self.task.task_spec,
            split=self.task.split,
            index=self.task.index,
            secrets={name: secret.value for name, secret in self.secrets.items()} if with_secrets else None,
        )
        return dump({name: value for name, value in body if value is not None})


def secrets_header(secrets: dict[str, ResolvedSecret]) -> str:
    """Secrets as `openreward` servers take them: the value of `X-Secrets`."""
    forms = {name: {"value": secret.value, "allowed_domains": list(secret.allowed_domains)} for name, secret in secrets.items()}
    return base64.b64encode(dump(forms)).decode("ascii")
