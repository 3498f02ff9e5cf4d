##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Find and mask credentials in texts that others can read: easyconfigs (EasyBuild copies them), records, reports.
"""
import functools
import re
from typing import Dict, List, Pattern

REMEDY = "Others can read the easyconfig and the installation. Give pip the credential in a private file " \
    "(PIP_CONFIG_FILE, NETRC), or write ${NAME} in its place in a requirement line or URL, and set that variable " \
    "when you install; variables for other commands are passed if they are listed in EBSIF_INSTALL_ENV."

# Variables and options whose value is a credential: HF_TOKEN, but not HF_TOKEN_PATH or TOKENIZERS_PARALLELISM.
NAME = r'(?:(?:[\w-]+[_-])?(?:token|secret|passphrase|jwt|cookie)|[\w-]+[_-]pat|[\w-]*(?:bind|_)pw|[\w-]*mysql_pwd|' \
    r'[\w-]*(?:password|passwd|sshpass|webhook(?:_url)?|api[_-]?key|access[_-]key|private_key))'

PATTERNS = (
    # user:password@ in a URL, as pip reads it; a user name as long as a token (shorter ones belong to a keyring)
    r'(?P<before>\b[A-Za-z][\w+.-]*://[^\s/?#"\':@]*:)(?P<secret>[^\s/?#"\']+)(?=@)',
    r'(?P<before>https?://)(?P<secret>[^\s/?#"\':@]{20,})(?=:?@)',
    # pip's proxy, a parameter of a URL, an option, a variable in a command
    r'(?P<before>--proxy[=\s"\',]+[^\s/@:]+:)(?P<secret>[^\s/@]+)(?=@)',
    r'(?P<before>[?&](?i:NAME|sig|(?:x-(?:amz|goog)-)?signature)=)(?P<secret>[^\s&#"\']+)',
    r'(?P<before>--(?i:NAME)[=\s"\',]+)(?P<secret>[^\s"\']+)',
    r'(?P<before>(?:^|[\s;&|])(?=[A-Z0-9_]+=)(?i:NAME)=["\']?)(?P<secret>[^\s=;&|"\']+)',
)

# Command substitutions, switches, examples, and special tokens of language models ([PAD], </s>); before it is compared,
# variables are taken out.
NOT_SECRET = re.compile(r'(?:\$\(.*|`.*|\**|<.*>|\[.*\]|\d{1,3}|true|false|yes|no|none|on|off|password)\Z',
                        re.IGNORECASE)

# A number of tokens, or the number of a token; credentials are longer.
COUNT = re.compile(r'\d{1,9}\Z')

MASK = '****'


class Credentials:
    """Finds and masks credentials in texts and variables."""

    @staticmethod
    def find(value: object, name: str = '') -> List[str]:
        """
        Return a description of each credential in a value of an easyconfig, masked.

        Values may be lists and dictionaries, whose keys are taken as names of variables, as ``name`` is.
        """
        if isinstance(value, dict):
            return [text for key in value for text in Credentials.find(value[key], str(key))]
        if isinstance(value, (list, tuple)):
            # the words of a command line may belong together
            line = ' '.join(item for item in value if isinstance(item, str))
            return Credentials.find(line) + [
                text for item in value if not isinstance(item, str) for text in Credentials.find(item)]
        if not isinstance(value, str):
            return []
        if re.match(NAME + r'\Z', name, re.IGNORECASE) and is_secret(value, name):
            return ['%s=%s' % (name, MASK)]
        return [match.group('before').strip() + MASK for pattern in compiled() for match in pattern.finditer(value)
                if is_secret(*match.group('secret', 'before'))]

    @staticmethod
    def mask(value: object) -> str:
        """Return a value as text with masked credentials."""
        text = str(value)
        for pattern in compiled():
            text = pattern.sub(lambda match: match.group('before') + (
                MASK if is_secret(*match.group('secret', 'before')) else match.group('secret')), text)
        return text

    @staticmethod
    def find_variables(environment: Dict[str, str]) -> List[str]:
        """Return the names of the variables that hold credentials."""
        return [name for name, value in environment.items() if Credentials.find({name: value})]


@functools.lru_cache(maxsize=None)
def compiled() -> List[Pattern[str]]:
    """Return the compiled patterns; most commands only import them, which took as long as reading a catalog file."""
    return [re.compile(pattern.replace('NAME', NAME), re.MULTILINE) for pattern in PATTERNS]


def is_secret(text: str, name: str) -> bool:
    """Return whether text in the position of a credential, after this name, really is one."""
    if re.search(r'token\W*\Z', name, re.IGNORECASE) and COUNT.match(text):
        return False
    return not NOT_SECRET.match(re.sub(r'\$\{?\w+\}?', '', text))
