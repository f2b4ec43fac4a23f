"""Where the token of a hub is kept, and where it is not sent."""

from __future__ import annotations

import pytest

from app.fetching.hub import Hub
from app.fetching.tokens import SERVICE, Place, TokenStore, system_keyring

TOKEN = "hf_secretsecretsecret"


class FakeKeyring:
    """Keeps, or fails as it is told. ``forgets``: takes everything and keeps nothing."""

    def __init__(self, error: Exception | None = None, forgets: bool = False) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.error = error
        self.forgets = forgets

    def get_password(self, service: str, username: str) -> str | None:
        self._fail()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._fail()
        if not self.forgets:
            self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._fail()
        del self.kept[service, username]

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


def test_the_keyring_keeps_the_token_for_its_hub() -> None:
    keyring = FakeKeyring()
    assert TokenStore("hub.example", lambda: keyring).set(f" {TOKEN}\n") is Place.KEYRING
    again = TokenStore("hub.example", lambda: keyring)
    assert again.token() == TOKEN
    assert again.place is Place.KEYRING
    assert TokenStore("other.example", lambda: keyring).token() == ""
    assert keyring.kept == {(SERVICE, "hub.example"): TOKEN}


def test_a_deleted_token_is_gone_from_the_keyring() -> None:
    keyring = FakeKeyring()
    store = TokenStore("hub.example", lambda: keyring)
    store.set(TOKEN)
    assert store.set("") is Place.NOWHERE
    assert keyring.kept == {}
    assert store.token() == ""


@pytest.mark.parametrize(
    "keyring",
    [None, FakeKeyring(forgets=True), FakeKeyring(RuntimeError(f"locked {TOKEN}"))],
    ids=["absent", "forgetful", "failing"],
)
def test_without_a_keyring_the_token_is_for_this_session(
    keyring: FakeKeyring | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    store = TokenStore("hub.example", lambda: keyring)
    assert store.token() == ""
    assert store.set(TOKEN) is Place.SESSION
    assert store.token() == TOKEN
    assert TOKEN not in caplog.text + repr(store)
    assert TokenStore("hub.example", lambda: keyring).token() == ""


def test_a_keyring_that_is_locked_says_so() -> None:
    store = TokenStore("hub.example", lambda: FakeKeyring(RuntimeError("locked")))
    store.set(TOKEN)
    assert store.failed


def test_backends_that_do_not_protect_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    from keyring.backends.fail import Keyring as Fail
    from keyring.backends.null import Keyring as Null

    for backend in (Fail(), Null()):
        monkeypatch.setattr(keyring, "get_keyring", lambda backend=backend: backend)
        assert system_keyring() is None

    class Plain:
        """As ``keyrings.alt`` has one."""

        __module__ = "keyrings.alt.file"

    class Chain:
        """As ``keyring.backends.chainer`` makes one."""

        def __init__(self, *backends: object) -> None:
            self.backends = backends

    good = FakeKeyring()
    for chain, expected in ((Chain(good, Plain()), good), (Chain(Plain()), None)):
        monkeypatch.setattr(keyring, "get_keyring", lambda chain=chain: chain)
        assert system_keyring() is expected

    def broken() -> None:
        raise RuntimeError("no bus")

    monkeypatch.setattr(keyring, "get_keyring", broken)
    assert system_keyring() is None


def test_the_token_is_not_sent_where_others_can_read_it() -> None:
    assert "Authorization" not in Hub("http://mirror.example", lambda: TOKEN)._headers()
    assert Hub("https://mirror.example", lambda: TOKEN)._headers()["Authorization"]
