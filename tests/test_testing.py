"""What users get for their own tests: the fault server, and the fixtures of `ors_gym.testing`."""

import socket

import httpx
import pytest

from ors_gym.client import ORSClient
from ors_gym.testing import Fault, FaultServer

pytest_plugins = ["pytester"]


def test_without_a_fault_it_is_a_working_server() -> None:
    with FaultServer() as server, ORSClient(server.base_url) as client:
        with client.environment().session(split="test", index=4) as session:
            assert server.sessions == {session.session_id}
            assert session.call_tool("submit", {"answer": "right"}).reward == 1.0
            assert session.call_tool("submit", {"answer": "wrong"}).reward == 0.0
        assert server.sessions == set()
        assert server.calls == [
            (session.session_id, "submit", {"answer": "right"}),
            (session.session_id, "submit", {"answer": "wrong"}),
        ]


def test_a_script_is_met_request_by_request() -> None:
    with FaultServer() as server, httpx.Client(base_url=server.base_url) as http:
        server.script("health", Fault(status=503, headers={"Retry-After": "1"}, body=b"busy"), None, Fault(status=418))
        answers = [http.get("/health") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [503, 200, 418, 200]
    assert (answers[0].text, answers[0].headers["retry-after"]) == ("busy", "1")
    assert len(server.received("health")) == 4
    assert server.connections == 1


@pytest.mark.parametrize("cut", [0, 5, b"Content-Type", b"ok"])
def test_a_cut_ends_the_answer_there(cut: int | bytes) -> None:
    with FaultServer() as server, httpx.Client(base_url=server.base_url) as http:
        server.script("health", Fault(cut=cut))
        with pytest.raises(httpx.TransportError):
            http.get("/health")
        assert http.get("/health").status_code == 200


def test_raw_bytes_are_sent_as_they_are() -> None:
    with FaultServer() as server, httpx.Client(base_url=server.base_url) as http:
        server.script("health", Fault(raw=b"HTTP/1.1 299 Odd\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"))
        assert (http.get("/health").status_code, http.get("/health").status_code) == (299, 200)


def test_a_stall_goes_silent() -> None:
    with FaultServer() as server, httpx.Client(base_url=server.base_url, timeout=0.2) as http:
        server.script("health", Fault(stall=10))
        with pytest.raises(httpx.ReadTimeout):
            http.get("/health")


def test_it_stops_listening_and_comes_back_on_the_same_port() -> None:
    with FaultServer() as server:
        url = f"{server.base_url}/health"
        server.stop_listening()
        with pytest.raises(httpx.ConnectError):
            httpx.get(url)
        server.listen()
        assert httpx.get(url).status_code == 200


def test_waiting_in_vain_says_what_came() -> None:
    with FaultServer() as server:
        httpx.get(f"{server.base_url}/health")
        with pytest.raises(TimeoutError, match=r"{'health': 1}"):
            server.wait_for("create", timeout=0.01)


def test_it_closes_with_connections_open_and_closes_twice() -> None:
    server = FaultServer().start()
    with httpx.Client(base_url=server.base_url) as http:
        http.get("/health")
        server.close()
        server.close()


def test_it_closes_without_a_word_while_an_answer_is_due(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        FaultServer(lambda request: Fault(delay=60)) as server,
        socket.create_connection(("127.0.0.1", int(server.base_url.rpartition(":")[2]))) as client,
    ):
        client.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        server.wait_for("health")
    assert (capfd.readouterr().err, caplog.text) == ("", "")


def test_the_fixtures_are_there_for_users(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["ors_gym.testing"]')
    pytester.makepyfile(
        """
        from ors_gym.client import ORSClient

        def test_fault(ors_fault_server):
            with ORSClient(ors_fault_server.base_url) as client:
                assert client.list_environments() == ("fault",)

        def test_local(ors_local_server):
            with ORSClient(ors_local_server.base_url) as client:
                assert client.list_environments() == ("largest_digit",)
        """
    )
    pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=2)
