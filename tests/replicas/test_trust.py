"""Who may ask: whoever has the token, on a private network."""

from __future__ import annotations

import stat

import pytest

import atlas_engine as atlas
from app.replicas.client import ReplicaClient
from app.replicas.trust import check_private, is_token, read_token, use_token


@pytest.fixture
def token_path(tmp_path, monkeypatch):
    path = tmp_path / "home" / "token"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    return path


def test_a_token_is_made_for_its_owner_alone_and_kept(token_path):
    token = use_token()
    assert len(token) == 64
    assert stat.S_IMODE(token_path.stat().st_mode) == 0o600
    assert use_token() == read_token() == token


def test_a_token_that_others_can_read_is_refused(token_path):
    use_token()
    token_path.chmod(0o644)
    with pytest.raises(atlas.AtlasError, match="chmod 600"):
        read_token()


def test_without_a_token_a_client_is_told_where_it_is_made(token_path):
    with pytest.raises(atlas.AtlasError, match="atlas serve"):
        ReplicaClient.from_backend("ray")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.1.2.3", "192.168.0.4", "::1"])
def test_private_addresses_are_served(host):
    check_private(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "8.8.8.8", "example.org", ""])
def test_addresses_that_the_internet_reaches_are_not(host):
    with pytest.raises(atlas.AtlasError, match="no address of a private network"):
        check_private(host)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "secret", "Basic secret", "Bearer sécret"])
def test_only_the_token_itself_opens(header):
    assert is_token("Bearer secret", "secret")
    assert not is_token(header, "secret")


@pytest.mark.parametrize("value", ["http://127.0.0.1:8000", "ray://", "ray://host", "ray://a b:1", "rays"])
def test_a_backend_that_is_none_is_refused(token_path, value):
    use_token()
    with pytest.raises(atlas.AtlasError, match="ATLAS_BACKEND"):
        ReplicaClient.from_backend(value)


def test_a_backend_names_a_host_and_a_port_or_this_machine(token_path):
    use_token()
    assert ReplicaClient.from_backend("ray").address == "127.0.0.1:8000"
    assert ReplicaClient.from_backend("ray://10.0.0.7:81/").address == "10.0.0.7:81"


def test_where_nobody_answers_the_sentence_says_what_to_start(token_path):
    use_token()
    with pytest.raises(atlas.AtlasError, match="Start them with `atlas serve`"):
        ReplicaClient("127.0.0.1", 9, token="x", seconds=5).facts()
