"""A directory of secrets, one directory a user: made once, kept ever after, its owner's alone."""

import importlib.util
import os
import secrets
from pathlib import Path

from flightlog import CredentialsUnusable
from flightlog_recorder import private

NKEY = "nkey"
_BYTES = 32  # of a password, before it is text


class Keyring:
    """The secrets below `home`; whoever takes a user's file away has a new one made."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def of(self, user: str) -> Path:
        """The user's directory; it is there, and its owner alone may look into it."""
        found = self._home / user
        private.directory(found)
        return found

    def password(self, user: str, name: str) -> str:
        """The password in the user's file of this name. Raises `CredentialsUnusable`."""
        return self._kept(user, name, secrets.token_urlsafe(_BYTES))

    def nkey(self, user: str) -> str:
        """The public key of the seed in the user's file. Raises `CredentialsUnusable`."""
        if importlib.util.find_spec("nkeys") is None:
            raise CredentialsUnusable("nkeys need: pip install 'flightlog[nkeys]'")
        import nkeys  # noqa: PLC0415  an extra

        fresh = nkeys.encode_seed(os.urandom(_BYTES), nkeys.PREFIX_BYTE_USER)
        seed = self._kept(user, NKEY, bytes(fresh).decode())
        try:
            return bytes(nkeys.from_seed(bytearray(seed.encode())).public_key).decode()
        except (nkeys.NkeysError, ValueError) as exc:
            raise CredentialsUnusable(f"{self.of(user) / NKEY} holds no seed of an nkey") from exc

    def write(self, user: str, name: str, text: str) -> None:
        """Replace one of the user's files by this line."""
        private.write(self.of(user) / name, f"{text}\n".encode())

    def _kept(self, user: str, name: str, fresh: str) -> str:
        path = self.of(user) / name
        if not path.exists():
            self.write(user, name, fresh)
        try:
            found = path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise CredentialsUnusable(f"{path} cannot be read") from exc
        if not found:
            raise CredentialsUnusable(f"{path} is empty: remove it, and a new one is made")
        return found
