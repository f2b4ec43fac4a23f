"""What a hub offers and what its answers mean; speed and errors of fetching."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from app.fetching.catalogue import Kind
from app.fetching.errors import (
    FetchError,
    HubAnswerError,
    HubUnreachableError,
    NotFoundError,
    RateLimitedError,
    UnsafeNameError,
)
from app.fetching.hub import Hub, endpoint_of
from app.fetching.hub_answers import wait_s
from app.fetching.names import query_of
from app.fetching.progress import SpeedMeter
from tests.helpers.hub_server import HubServer, Repo, status

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server() -> Iterator[HubServer]:
    repos = {
        "org/a-GGUF": Repo(
            {"a-Q8_0.gguf": b"x" * 50}, tags=("gguf",), num_parameters=7, downloads=9
        ),
        "org/a": Repo({"model.safetensors": b"x"}, licence="mit", downloads=5, gated=True),
        "org/b": Repo({"pytorch_model.bin": b"x"}, licence="", downloads=70),
    }
    with HubServer(repos).running() as running:
        yield running


def test_a_search_lists_models_with_licence_size_and_gate(server: HubServer) -> None:
    first, second = Hub(server.endpoint).search("a").results[:2]
    assert (first.repo_id, first.downloads, first.licence) == ("org/a-GGUF", 9, "apache-2.0")
    assert (first.num_parameters, first.gated, first.has_gguf) == (7, False, True)
    assert (second.repo_id, second.licence, second.gated) == ("org/a", "mit", True)


def test_a_search_can_ask_for_ggufs_only(server: HubServer) -> None:
    found = Hub(server.endpoint).search("", Kind.GGUF).results
    assert [result.repo_id for result in found] == ["org/a-GGUF"]


def test_a_search_goes_on_page_by_page(server: HubServer) -> None:
    server.page_size = 2
    hub = Hub(server.endpoint)
    page = hub.search("org")
    assert [r.repo_id for r in page.results] == ["org/b", "org/a-GGUF"]
    page = hub.search("org", next_url=page.next_url)
    assert [r.repo_id for r in page.results] == ["org/a"]
    assert page.next_url == ""


def test_a_next_page_on_another_host_is_refused(server: HubServer) -> None:
    with pytest.raises(HubAnswerError):
        Hub(server.endpoint).search("", next_url="http://127.0.0.1:1/api/models?start=2")


def test_offline_a_search_fails_at_once_and_says_the_host(server: HubServer) -> None:
    hub = Hub("http://127.0.0.1:9")
    with pytest.raises(HubUnreachableError) as caught:
        hub.search("a")
    assert caught.value.numbers["host"] == "127.0.0.1"
    with pytest.raises(HubUnreachableError):
        hub.repository("org/a")
    with pytest.raises(HubUnreachableError):
        hub.probe()


def test_any_answer_means_that_the_network_is_there(server: HubServer) -> None:
    Hub(server.endpoint).probe()


@pytest.mark.parametrize("body", [b"<html>a portal</html>", b'{"no": "list"}', b"[1]"])
def test_an_answer_that_is_no_listing_is_an_error_of_the_hub(
    server: HubServer, body: bytes
) -> None:
    server.api_faults = [lambda handler, _content, _offset: handler.reply(200, body)]
    with pytest.raises(HubAnswerError):
        Hub(server.endpoint).search("a")


def test_an_address_that_is_none_is_an_error_of_the_hub() -> None:
    with pytest.raises(HubAnswerError):
        Hub("ftp://example.org").search("a")


def test_an_address_of_which_nothing_can_be_read_is_named_and_refused() -> None:
    hub = Hub("https://[hub")
    assert hub.host == "https://[hub"
    with pytest.raises(HubAnswerError):
        hub.search("a")


@pytest.mark.parametrize("zone", ["", " -0000", " +0000", " GMT"])
def test_a_date_to_wait_for_is_read_in_every_zone_and_without_one(zone: str) -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=500)).removesuffix(" +0000")
    seconds = wait_s({"Retry-After": f"{until}{zone}"})
    assert 300 < seconds <= 500


def test_a_wait_may_be_given_as_a_date_or_as_a_rate_limit(server: HubServer) -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=50), usegmt=True)
    server.api_faults = [
        status(429, Retry_After=until),
        status(429, RateLimit='"api";r=0;t=77'),
        status(429),
    ]
    waits = []
    for _ in range(3):
        with pytest.raises(RateLimitedError) as caught:
            Hub(server.endpoint).search("a")
        waits.append(caught.value.seconds)
    assert 45 < waits[0] <= 50
    assert waits[1:] == [77, 30]


def test_the_environment_can_forbid_the_network() -> None:
    program = (
        "from app.fetching.hub import Hub\n"
        "try:\n    Hub('http://127.0.0.1:9').search('a')\n"
        "except Exception as error:\n    print(error.code)\n"
    )
    done = run_python(program, HF_HUB_OFFLINE="1")
    assert done == "hub_offline_mode"


def test_a_proxy_that_cannot_be_used_is_said() -> None:
    program = (
        "from app.fetching.hub import Hub\n"
        "try:\n    Hub('http://example.org').search('a')\n"
        "except Exception as error:\n    print(error.code, 'proxy' in error.message)\n"
    )
    assert run_python(program, ALL_PROXY="socks5://127.0.0.1:9") == "hub_unreachable True"


def test_the_core_loads_neither_qt_nor_the_libraries_of_the_network() -> None:
    program = (
        "import sys, app.fetching.queue, app.fetching.tokens\n"
        "names = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(names & {'PySide6', 'huggingface_hub', 'httpx2', 'keyring'}))\n"
    )
    assert run_python(program) == "[]"


def test_opening_the_page_loads_no_library_of_the_network() -> None:
    program = (
        "import sys, app.widgets.fetching.page, app.widgets.fetching.service\n"
        "names = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(names & {'huggingface_hub', 'httpx2', 'keyring', 'psutil'}))\n"
    )
    assert run_python(program) == "[]"


def run_python(program: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_repository_tells_its_commit_licence_and_page(server: HubServer) -> None:
    repository = Hub(server.endpoint).repository("org/a")
    assert repository.commit == "c" * 40
    assert (repository.licence, repository.gated) == ("mit", True)
    assert repository.page == f"{server.endpoint}/org/a"
    assert not repository.has_pickles


def test_pickles_are_never_offered(server: HubServer) -> None:
    repository = Hub(server.endpoint).repository("org/b")
    assert repository.choices == ()
    assert repository.has_pickles


def test_a_repository_that_is_not_there(server: HubServer) -> None:
    with pytest.raises(NotFoundError):
        Hub(server.endpoint).repository("org/nothing")
    with pytest.raises(UnsafeNameError):
        Hub(server.endpoint).repository("../../etc")


def test_a_pasted_address_is_searched_by_its_name() -> None:
    assert query_of(" https://huggingface.co/org/name/tree/main ") == "org/name"
    assert query_of(" smol ") == "smol"


def test_the_endpoint_is_the_setting_else_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/")
    assert endpoint_of("") == "https://mirror.example"
    assert endpoint_of("https://mine.example") == "https://mine.example"
    monkeypatch.delenv("HF_ENDPOINT")
    assert endpoint_of("") == "https://huggingface.co"


def test_speed_is_that_of_the_last_seconds() -> None:
    now = [0.0]
    meter = SpeedMeter(lambda: now[0])
    assert meter.seconds_left(100) is None
    for second in range(20):
        now[0] = float(second)
        meter.add(second * 100 if second < 10 else 1000 + (second - 10) * 500)
    assert meter.bytes_per_s == pytest.approx(500)
    assert meter.seconds_left(5000) == pytest.approx(10)
    now[0] = 27.0
    assert meter.bytes_per_s == pytest.approx(250)
    meter.reset()
    assert meter.bytes_per_s == 0.0


def test_every_error_has_a_code_of_its_own_and_says_what_to_do() -> None:
    classes, found = [FetchError], []
    while classes:
        kind = classes.pop()
        classes += kind.__subclasses__()
        found.append(kind)
    codes = [kind.code for kind in found]
    assert len(set(codes)) == len(codes) == 16
    assert all(kind.action for kind in found if kind is not FetchError)
