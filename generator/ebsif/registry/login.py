"""
The login for a registry: that of the container runtime, which `apptainer registry login` stores.

Nothing here writes a credential, and none is part of a message.
"""

import base64
import binascii
import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ebsif import files
from ebsif.errors import EbsifError
from ebsif.registry.reference import DOCKER_HUB

RUNTIMES = ("APPTAINER", "SINGULARITY")
# how Docker's clients call their hub in files of credentials
HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", DOCKER_HUB)
# user name with which a helper of Docker's returns a token instead of a password
TOKEN_USER = "<token>"  # noqa: S105


class LoginError(EbsifError):
    """The stored login for a registry can't be read; the message says why and what to do."""


@dataclass(frozen=True)
class Login:
    """User name and password for a registry, or an identity token; they are never shown."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


def find(host: str) -> Optional[Login]:
    """
    Return the login for a registry that the runtime would use; None if there is none.

    Parameters
    ----------
    host
        Name of the registry, with the port if it has one.

    Raises
    ------
    LoginError
        If it is stored, but can't be read.
    """
    user, password = (variable(name) for name in ("DOCKER_USERNAME", "DOCKER_PASSWORD"))
    if user and password:
        return Login(user, password)
    return next(filter(None, (login_in(path, host) for path in files_of_logins())), None)


def variable(name):
    """Return the value of a setting of the runtime in the environment (str); empty if it is not set."""
    return next(filter(None, (os.environ.get(f"{prefix}_{name}") for prefix in RUNTIMES)), "")


def files_of_logins() -> list[Path]:
    """Return the files in which the runtimes look for logins, as far as they exist."""
    named, configuration = variable("AUTH_FILE") or variable("AUTHFILE"), variable("CONFIGDIR")
    if named:
        paths = [Path(named)]
    elif configuration:
        # Apptainer takes the second one if the first doesn't exist
        paths = [Path(configuration, name) for name in ("docker-config.json", "config.json")]
    else:
        paths = [files.home() / name for name in (
            ".apptainer/docker-config.json", ".singularity/docker-config.json", ".docker/config.json")]
    return [path for path in paths if files.is_there(path)]


def login_in(path: Path, host: str) -> Optional[Login]:
    """Return the login for a registry in a file, None if it has none."""
    stored = read(path)
    for key in HUB_KEYS if host == DOCKER_HUB else (host, f"https://{host}", f"http://{host}"):
        helper = stored.get("credHelpers", {}).get(key) or stored.get("credsStore")
        found = login_of(stored.get("auths", {}).get(key) or {}, path, host) or (ask(helper, key) if helper else None)
        if found:
            return found
    return None


def read(path: Path) -> dict[str, Any]:
    """Return the content of a file of logins."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LoginError(f"{path}, the runtime's logins for registries, can't be read: {error.strerror}") from None
    except ValueError:
        # the error of the parser would show a part of the file
        content = None
    tables = [content.get(key, {}) for key in ("auths", "credHelpers")] if isinstance(content, dict) else [None]
    if not all(isinstance(table, dict) for table in tables):
        raise LoginError(f"{path} is not a file with logins for registries: move it away, and log in again")
    return content


def login_of(stored, path, host):
    """Return the login in an entry of a file (Login), None if it has none."""
    user, password = stored.get("username", ""), stored.get("password", "")
    if stored.get("auth"):
        try:
            user, _, password = base64.b64decode(stored["auth"], validate=True).decode().partition(":")
        except (binascii.Error, ValueError, TypeError):
            raise LoginError(f"the login for {host} in {path} is damaged: log in again") from None
    token = stored.get("identitytoken", "")
    return Login(user, password.rstrip("\0"), token) if password or token else None


def ask(helper, key):
    """Return the login that a credential helper of Docker's has stored (Login), None if it has none."""
    program = shutil.which(f"docker-credential-{helper}")
    if not program:
        return None
    done = subprocess.run([program, "get"], input=key, capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout) if done.returncode == 0 else {}
    except ValueError:
        return None
    user, secret = answer.get("Username", ""), answer.get("Secret", "")
    if not secret:
        return None
    return Login(identity_token=secret) if user == TOKEN_USER else Login(user, secret)
