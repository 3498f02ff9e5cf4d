"""Credentials for registries: those of the container runtime's login, wherever it keeps them. Nothing here writes them.

See https://apptainer.org/docs/user/latest/docker_and_oci.html.
"""

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple, Optional

from easybuild.easyblocks.generic.container.image.source import DOCKER_HUB

from ebsif import files

# What Docker Hub is called in login files.
DOCKER_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", DOCKER_HUB)

# What a credential helper returns as the name of the user if the secret is a token.
TOKEN_USER = "<token>"

HELPER_SECONDS = 30

# User and password for one call of the runtime: for any registry, because they name none.
VARIABLES = tuple(
    (f"{prefix}DOCKER_USERNAME", f"{prefix}DOCKER_PASSWORD") for prefix in ("APPTAINER_", "SINGULARITY_", "")
)


class Login(NamedTuple):
    """User and password for a registry, or a token to exchange for others (OAuth2 refresh token)."""

    user: Optional[str]
    password: Optional[str]
    token: Optional[str] = None

    def __repr__(self) -> str:
        """Return a text without secrets."""
        return "<Login>"


def login_for(host: str) -> Optional[Login]:
    """Return the runtime's credentials for a registry (with its port): variables for one call, else from its files."""
    for names in VARIABLES:
        user, password = map(os.environ.get, names)
        if user and password:
            return Login(user, password)
    return next(filter(None, (login_in(path, host) for path in login_files())), None)


def drop_variables() -> bool:
    """Remove user and password from the environment, for commands that ask several registries; return if any."""
    removed = [os.environ.pop(name, None) for names in VARIABLES for name in names]
    return any(value is not None for value in removed)


def login_files() -> list[Path]:
    """Return the files in which Apptainer, SingularityCE and Docker keep logins, in the order of Apptainer's search."""
    for name in ("APPTAINER_AUTH_FILE", "SINGULARITY_AUTH_FILE"):
        if os.environ.get(name):
            return [Path(os.environ[name])]
    own, home = os.environ.get("APPTAINER_CONFIGDIR"), files.home()
    docker = Path(os.environ.get("DOCKER_CONFIG") or home / ".docker")
    return [
        Path(own or home / ".apptainer") / "docker-config.json",
        Path(os.environ.get("SINGULARITY_CONFIGDIR") or home / ".singularity") / "docker-config.json",
        # Apptainer writes this one in its directory if that is named, and has no docker-config.json
        *([Path(own) / "config.json"] if own else []),
        docker / "config.json",
    ]


def login_in(path: Path, host: str) -> Optional[Login]:
    """Return the credentials for a registry in one file, None if it has none or can't be read."""
    try:
        content = as_table(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
    names = DOCKER_HUB_KEYS if host == DOCKER_HUB else (host,)
    for name in names:
        helper = as_table(content.get("credHelpers")).get(name) or content.get("credsStore")
        login = login_of_helper(helper, name) if helper else None
        if login:
            return login
    entries = [entry for key, entry in as_table(content.get("auths")).items() if key in names or host_of(key) in names]
    return next(filter(None, map(login_of_entry, entries)), None)


def as_table(value: Any) -> dict[str, Any]:
    """Return a value of a file if it is a dictionary, else an empty one."""
    return value if isinstance(value, dict) else {}


def host_of(key: str) -> str:
    """Return the registry of a key in a login file, which may be a URL."""
    return key.rpartition("://")[2].partition("/")[0]


def login_of_entry(entry: Any) -> Optional[Login]:
    """Return the credentials in an entry of a login file, None if it has none."""
    entry = as_table(entry)
    try:
        user, _, password = base64.b64decode(entry.get("auth") or "").decode().partition(":")
    except ValueError:
        return None
    login = Login(
        user or entry.get("username"), password.rstrip("\0") or entry.get("password"), entry.get("identitytoken")
    )
    return login if login.token or (login.user and login.password) else None


def login_of_helper(name: str, host: str) -> Optional[Login]:
    """Return the credentials that a program of Docker's protocol keeps, None if it has none."""
    try:
        # not by EasyBuild, which writes what programs print to files
        done = subprocess.run(
            [f"docker-credential-{name}", "get"],
            input=host.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=HELPER_SECONDS,
            check=True,
        )
        answer = as_table(json.loads(done.stdout.decode()))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    user, secret = answer.get("Username"), answer.get("Secret")
    if not secret:
        return None
    return Login(None, None, secret) if user == TOKEN_USER else Login(user, secret)
