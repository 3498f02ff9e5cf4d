"""
Credentials for registries: those of the container runtime's login, wherever it keeps them. Nothing here writes them.
"""
import base64
import json
import os
import subprocess
from collections import namedtuple
from pathlib import Path

from easybuild.easyblocks.generic.container.imagesource import DOCKER_HUB

# What Docker Hub is called in login files.
DOCKER_HUB_KEYS = ('https://index.docker.io/v1/', 'index.docker.io', DOCKER_HUB)

# What a credential helper returns as the name of the user if the secret is a token.
TOKEN_USER = '<token>'

HELPER_SECONDS = 30

# User and password for one call of the runtime: for any registry, because they name none.
VARIABLES = tuple((prefix + 'DOCKER_USERNAME', prefix + 'DOCKER_PASSWORD')
                  for prefix in ('APPTAINER_', 'SINGULARITY_', ''))


class Login(namedtuple('Login', 'user password token')):
    """User and password for a registry, or a token to exchange for others (OAuth2 refresh token)."""

    __slots__ = ()

    def __repr__(self):
        """Return a text without secrets."""
        return '<Login>'


def login_for(host):
    """
    Return the runtime's credentials for a registry.

    Apptainer's order: variables for one call, its own file, Docker's; SingularityCE's file is read as well. See
    https://apptainer.org/docs/user/latest/docker_and_oci.html.

    Parameters
    ----------
    host : str
        The registry, with its port if it has one.

    Returns
    -------
    Login
        None without credentials.
    """
    for names in VARIABLES:
        user, password = map(os.environ.get, names)
        if user and password:
            return Login(user, password, None)
    for path in login_files():
        login = login_in(path, host)
        if login:
            return login
    return None


def drop_variables():
    """Remove user and password from the environment, for commands that ask several registries; return if any."""
    found = [os.environ.pop(name) for names in VARIABLES for name in names if name in os.environ]
    return any(found)


def login_files():
    """Return the files in which the runtimes keep their logins, in the order of their search (list of Path)."""
    named = [os.environ[name] for name in ('APPTAINER_AUTH_FILE', 'SINGULARITY_AUTH_FILE') if os.environ.get(name)]
    if named:
        return [Path(named[0])]
    home = Path.home()
    folders = [os.environ.get('APPTAINER_CONFIGDIR') or home / '.apptainer',
               os.environ.get('SINGULARITY_CONFIGDIR') or home / '.singularity']
    # Apptainer writes to config.json in its directory if that is named, and has no docker-config.json
    docker = [os.environ.get('APPTAINER_CONFIGDIR'), os.environ.get('DOCKER_CONFIG') or home / '.docker']
    return [Path(folder, 'docker-config.json') for folder in folders] + [
        Path(folder, 'config.json') for folder in docker if folder]


def login_in(path, host):
    """Return the credentials for a registry in one file (Login), None if it has none or can't be read."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None
    names = DOCKER_HUB_KEYS if host == DOCKER_HUB else (host,)
    helpers, logins = table(content, 'credHelpers'), table(content, 'auths')
    for name in names:
        helper = helpers.get(name) or (content.get('credsStore') if isinstance(content, dict) else None)
        login = login_of_helper(helper, name) if helper else None
        if login:
            return login
    for key, entry in logins.items():
        if key in names or host_of(key) in names:
            login = login_of_entry(entry)
            if login:
                return login
    return None


def table(content, key):
    """Return a dictionary in the content of a file, empty if it isn't there."""
    value = content.get(key) if isinstance(content, dict) else None
    return value if isinstance(value, dict) else {}


def host_of(key):
    """Return the registry of a key in a login file, which may be a URL (str)."""
    return key.partition('://')[2].partition('/')[0] if '://' in key else key.partition('/')[0]


def login_of_entry(entry):
    """Return the credentials in an entry of a login file (Login), None if it has none."""
    if not isinstance(entry, dict):
        return None
    try:
        user, _, password = base64.b64decode(entry.get('auth') or '').decode().partition(':')
    except ValueError:
        return None
    login = Login(user or entry.get('username'), password.rstrip('\0') or entry.get('password'),
                  entry.get('identitytoken'))
    return login if login.token or login.user and login.password else None


def login_of_helper(name, host):
    """Return the credentials that a program of Docker's protocol keeps (Login), None if it has none."""
    try:
        # not by EasyBuild, which writes what programs print to files
        done = subprocess.run(['docker-credential-' + name, 'get'], input=host.encode(), stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=HELPER_SECONDS, check=True)
        found = json.loads(done.stdout.decode())
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    user, secret = (table({'answer': found}, 'answer').get(key) for key in ('Username', 'Secret'))
    if not secret:
        return None
    return Login(None, None, secret) if user == TOKEN_USER else Login(user, secret, None)
