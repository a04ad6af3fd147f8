"""Each way to prove who one is, on a real server: it opens the door, and a wrong one is named."""

import json
from pathlib import Path

import pytest
import trustme
from msgspec.structs import replace

from flightlog import BusUnavailable, CredentialsUnusable, NatsAccess, NotPermitted, connect
from flightlog.bus import access
from flightlog_recorder.embedded import Server
from tests import tokens
from tests.conftest import MakeNats
from tests.tokens import Operator

PASSWORD = "right"


async def records(where: NatsAccess) -> int:
    """Record a session's first event; its seq."""
    async with connect(nats=where, provision=True) as log, log.session(key="job") as session:
        await session.user_message("hello")
        return session.state.seq


def address(server: Server) -> str:
    return f"nats://127.0.0.1:{server.port}"


def kept(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o600)
    return str(path)


async def test_user_and_password_beside_the_url(make_nats: MakeNats) -> None:
    server = make_nats(access=f"authorization {{ user: ann, password: {PASSWORD} }}")
    right = NatsAccess(url=address(server), user="ann", password=PASSWORD)
    assert await records(right) == 2
    wrong = NatsAccess(url=address(server), user="ann", password="wrong")
    with pytest.raises(NotPermitted, match="refused the credentials"):
        await records(wrong)


async def test_a_password_in_a_file_is_read_again_at_each_connect(
    make_nats: MakeNats, tmp_path: Path
) -> None:
    server = make_nats(access=f"authorization {{ user: ann, password: {PASSWORD} }}")
    secret = kept(tmp_path / "password", f"{PASSWORD}\n")
    environ = {
        "FLIGHTLOG_NATS_URL": address(server),
        "FLIGHTLOG_NATS_USER": "ann",
        "FLIGHTLOG_NATS_PASSWORD_FILE": secret,
    }
    where = access.resolve(environ=environ)
    assert await records(where) == 2
    kept(tmp_path / "password", "wrong")
    with pytest.raises(NotPermitted):
        await records(where)


async def test_an_nkey_and_replies_under_its_own_prefix(
    make_nats: MakeNats, tmp_path: Path
) -> None:
    key = tokens.user()
    allowed = 'publish: ">", subscribe: ["_INBOX.ann.>", "flightlog.v1.>"]'
    ann = f"{{ nkey: {key.public}, permissions: {{ {allowed} }} }}"
    server = make_nats(access=f"authorization {{ users: [ {ann} ] }}")
    seed = kept(tmp_path / "ann.nk", key.seed)
    ours = NatsAccess(url=address(server), nkey=seed, inbox_prefix="_INBOX.ann")
    assert await records(ours) == 2
    with pytest.raises(NotPermitted, match=r"receive answers on _inbox\.>"):
        await records(NatsAccess(url=address(server), nkey=seed))
    stranger = kept(tmp_path / "other.nk", tokens.user().seed)
    with pytest.raises(NotPermitted, match="refused the credentials"):
        await records(NatsAccess(url=address(server), nkey=stranger))


async def test_a_creds_file_of_an_operator(make_nats: MakeNats, tmp_path: Path) -> None:
    operator = Operator()
    server = make_nats(access=operator.settings)
    creds = kept(tmp_path / "agent.creds", operator.creds(tokens.user()))
    assert await records(NatsAccess(url=address(server), creds=creds)) == 2
    stranger = kept(tmp_path / "other.creds", Operator().creds(tokens.user()))
    with pytest.raises(NotPermitted, match="refused the credentials"):
        await records(NatsAccess(url=address(server), creds=stranger))


async def test_a_nats_context_brings_servers_and_credentials(
    make_nats: MakeNats, tmp_path: Path
) -> None:
    operator = Operator()
    server = make_nats(access=operator.settings)
    creds = kept(tmp_path / "agent.creds", operator.creds(tokens.user()))
    home = tmp_path / "nats" / "context"
    home.mkdir(parents=True)
    kept(home / "prod.json", json.dumps({"url": address(server), "creds": creds}))
    environ = {"FLIGHTLOG_NATS_CONTEXT": "prod", "XDG_CONFIG_HOME": str(tmp_path)}
    assert await records(access.resolve(environ=environ)) == 2


class Tls:
    """An authority, and the files that servers and clients get from it."""

    def __init__(self, home: Path) -> None:
        self._home, self._authority = home, trustme.CA()
        self.ca = str(home / "ca.pem")
        self._authority.cert_pem.write_to_path(self.ca)

    def issue(self, name: str) -> tuple[str, str]:
        """The files of a certificate and its key."""
        found = self._authority.issue_cert(name, "127.0.0.1")
        cert, key = str(self._home / f"{name}.pem"), str(self._home / f"{name}.key")
        found.private_key_pem.write_to_path(key)
        found.cert_chain_pems[0].write_to_path(cert)
        return cert, key

    def settings(self, verify: str = "verify") -> str:
        """A server that wants a certificate of each client."""
        cert, key = self.issue("server")
        files = f'cert_file: "{cert}", key_file: "{key}", ca_file: "{self.ca}"'
        return f"tls {{ {files}, {verify}: true }}"


async def test_tls_with_a_client_certificate(make_nats: MakeNats, tmp_path: Path) -> None:
    tls = Tls(tmp_path)
    server = make_nats(
        access=f"authorization {{ user: ann, password: {PASSWORD} }}", extra=tls.settings()
    )
    cert, key = tls.issue("ann")
    own = NatsAccess(url=address(server), user="ann", password=PASSWORD)
    assert await records(replace(own, ca=tls.ca, cert=cert, key=key)) == 2
    with pytest.raises(BusUnavailable, match="want a certificate"):
        await records(replace(own, ca=tls.ca))
    with pytest.raises(BusUnavailable, match="no authority that we trust"):
        await records(own)


async def test_a_client_certificate_alone_says_who_one_is(
    make_nats: MakeNats, tmp_path: Path
) -> None:
    tls = Tls(tmp_path)
    allowed = 'publish: ">", subscribe: ["_INBOX.ann.>", "flightlog.v1.>"]'
    server = make_nats(
        access=f"authorization {{ users: [ {{ user: ann, permissions: {{ {allowed} }} }} ] }}",
        extra=tls.settings("verify_and_map"),
    )
    cert, key = tls.issue("ann")
    ann = NatsAccess(url=address(server), ca=tls.ca, cert=cert, key=key)
    assert await records(replace(ann, inbox_prefix="_INBOX.ann")) == 2
    cert, key = tls.issue("bob")
    with pytest.raises(NotPermitted, match="refused the credentials"):
        await records(replace(ann, cert=cert, key=key))


async def test_what_is_no_certificate_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    text = kept(tmp_path / "ca.pem", "no certificate")
    with pytest.raises(CredentialsUnusable, match="cannot be used"):
        await records(NatsAccess(ca=text))
