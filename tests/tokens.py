"""Nkeys and JWTs as `nsc` makes them: an operator, an account, a user's creds file."""

import base64
import json
import os
import time
from typing import Any

import nkeys


class Key:
    """A pair of nkeys; `kind` is one of nkeys' prefix bytes."""

    def __init__(self, kind: int) -> None:
        self.seed = bytes(nkeys.encode_seed(os.urandom(32), kind))
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public = bytes(self._pair.public_key).decode()

    def token(self, subject: "Key", name: str, **claims: Any) -> str:
        """A JWT about the subject, signed with this key (jwt v2 of NATS)."""
        about = {
            "iat": int(time.time()),
            "iss": self.public,
            "jti": base64.b32encode(os.urandom(32)).decode().rstrip("="),
            "name": name,
            "nats": {"version": 2, **claims},
            "sub": subject.public,
        }
        body = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(about)}"
        return f"{body}.{_text(bytes(self._pair.sign(body.encode())))}"


def _part(value: dict[str, Any]) -> str:
    return _text(json.dumps(value, separators=(",", ":")).encode())


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def user() -> Key:
    """A user's keys."""
    return Key(nkeys.PREFIX_BYTE_USER)


class Operator:
    """An operator with one account, and the settings of a server that trusts it."""

    def __init__(self) -> None:
        self._operator = Key(nkeys.PREFIX_BYTE_OPERATOR)
        self._account = Key(nkeys.PREFIX_BYTE_ACCOUNT)
        self._system = Key(nkeys.PREFIX_BYTE_ACCOUNT)

    @property
    def settings(self) -> str:
        """What stands in nats-server's configuration."""
        unlimited = {"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1}
        unlimited |= {"imports": -1, "exports": -1, "wildcards": True}
        storage = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
        own = self._operator.token(self._operator, "operator", type="operator")
        preload = f"""{{
          {self._account.public}: {self._issue(self._account, unlimited | storage)}
          {self._system.public}: {self._issue(self._system, unlimited)}
        }}"""
        return (
            f"operator: {own}\nresolver: MEMORY\nresolver_preload: {preload}\n"
            f"system_account: {self._system.public}"
        )

    def _issue(self, account: Key, limits: dict[str, Any]) -> str:
        return self._operator.token(account, "account", type="account", limits=limits)

    def creds(self, key: Key, **claims: Any) -> str:
        """The creds file of a user of the account."""
        limits = {"subs": -1, "data": -1, "payload": -1}
        token = self._account.token(key, "agent", type="user", **limits, **claims)
        return (
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{key.seed.decode()}\n------END USER NKEY SEED------\n"
        )
