"""Who one is to NATS: what is given, the environment and contexts, earlier before later."""

import json
from pathlib import Path

import pytest

from flightlog import CredentialsUnusable, NatsAccess
from flightlog.bus import access

URL = "FLIGHTLOG_NATS_URL"


@pytest.fixture
def contexts(tmp_path: Path) -> Path:
    found = tmp_path / "nats" / "context"
    found.mkdir(parents=True)
    return found


def saved(contexts: Path, name: str, **fields: object) -> dict[str, str]:
    """A context as the `nats` command writes it, and the environment in which it is found."""
    told = {"description": "", "url": "", "nkey": "", "tls_first": False, "nsc": ""} | fields
    (contexts / f"{name}.json").write_text(json.dumps(told))
    return {"XDG_CONFIG_HOME": str(contexts.parents[1])}


def test_without_anything_it_is_loopback_and_nobody() -> None:
    found = access.options(access.resolve(environ={}))
    assert found["servers"] == ["nats://127.0.0.1:4222"]
    assert found["inbox_prefix"] == "_INBOX"
    assert not {"user", "token", "user_credentials", "nkeys_seed", "tls"} & found.keys()


def test_every_server_of_a_url_is_tried() -> None:
    found = access.options(access.resolve("nats://a:1, nats://b:2", environ={URL: "nats://c:3"}))
    assert found["servers"] == ["nats://a:1", "nats://b:2"]


def test_what_is_given_comes_before_the_environment_and_that_before_a_context(
    contexts: Path,
) -> None:
    environ = saved(contexts, "prod", url="nats://context", ca="/ca", inbox_prefix="_INBOX.c")
    environ |= {"FLIGHTLOG_NATS_CONTEXT": "prod", "FLIGHTLOG_NATS_CA": "/other"}
    found = access.resolve("nats://given", environ=environ)
    assert (found.url, found.ca, found.inbox) == ("nats://given", "/other", "_INBOX.c")


def test_a_context_that_is_given_comes_before_the_environment(contexts: Path) -> None:
    environ = saved(contexts, "prod", url="nats://context") | {URL: "nats://environment"}
    assert access.resolve(context="prod", environ=environ).url == "nats://context"


@pytest.mark.parametrize("url", ["nats://ann:secret@host", "nats://token@host"])
def test_proofs_are_never_mixed(contexts: Path, url: str) -> None:
    environ = saved(contexts, "prod", creds="/agent.creds") | {
        "FLIGHTLOG_NATS_CONTEXT": "prod",
        "FLIGHTLOG_NATS_TOKEN": "t",
    }
    found = access.resolve(url, environ=environ)
    assert (found.token, found.creds) == ("", "")


@pytest.mark.parametrize(
    ("where", "inbox"),
    [
        (NatsAccess(user="acme-harness", password="p"), "_INBOX.acme-harness"),
        (NatsAccess(url="nats://ann:secret@host"), "_INBOX.ann"),
        (NatsAccess(url="nats://a-token@host"), "_INBOX"),  # a token is a secret
        (NatsAccess(user="not.one*word", password="p"), "_INBOX"),
        (NatsAccess(user="ann", password="p", inbox_prefix="own"), "own"),
    ],
)
def test_answers_arrive_under_the_users_own_prefix(where: NatsAccess, inbox: str) -> None:
    assert access.options(where)["inbox_prefix"] == inbox


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (NatsAccess(user="ann"), "user and password"),
        (NatsAccess(user="ann", password="p", token="t"), "user and token"),
        (NatsAccess(cert="/c"), "cert and key"),
        (NatsAccess(creds="/nowhere"), "FLIGHTLOG_NATS_CREDS"),
        (NatsAccess(nkey="/nowhere"), "FLIGHTLOG_NATS_NKEY"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_is_sent(where: NatsAccess, said: str) -> None:
    with pytest.raises(CredentialsUnusable, match=said):
        access.options(where)


@pytest.mark.parametrize("text", [None, "", "  \n"])
def test_a_secret_that_is_not_there_is_named_by_its_variable(
    tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "url"
    if text is not None:
        path.write_text(text)
    with pytest.raises(CredentialsUnusable, match="FLIGHTLOG_NATS_URL_FILE"):
        access.resolve(environ={f"{URL}_FILE": str(path)})
    with pytest.raises(CredentialsUnusable, match="FLIGHTLOG_REDIS_URL_FILE"):
        access.redis_url(environ={"FLIGHTLOG_REDIS_URL_FILE": str(path)})


def test_urls_may_come_in_files_as_kubernetes_mounts_them(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("nats://ann:secret@host\n")
    assert access.resolve(environ={f"{URL}_FILE": str(path)}).url == "nats://ann:secret@host"
    environ = {"FLIGHTLOG_REDIS_URL_FILE": str(path)}
    assert access.redis_url(environ=environ) == "nats://ann:secret@host"
    assert access.redis_url("redis://given", environ=environ) == "redis://given"


@pytest.mark.parametrize("name", ["gone", "../../secrets"])
def test_a_context_that_is_not_there_is_named(contexts: Path, name: str) -> None:
    with pytest.raises(CredentialsUnusable, match="context"):
        access.read_context(name, environ={"XDG_CONFIG_HOME": str(contexts.parents[1])})


def test_what_a_context_asks_for_and_is_not_spoken_is_refused(contexts: Path) -> None:
    environ = saved(contexts, "hub", url="nats://h", jetstream_domain="hub")
    with pytest.raises(CredentialsUnusable, match="jetstream_domain"):
        access.read_context("hub", environ=environ)


def test_nothing_secret_is_shown() -> None:
    where = NatsAccess(url="nats://ann:secret@host", user="ann", password="secret", token="secret")
    assert "secret" not in repr(where)
    assert where.servers == ["host"]
