##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Credentials in texts that others can read: easyconfigs (EasyBuild copies them), the record of an installation, reports.
"""
import re

REMEDY = "Others can read easyconfig and installation. Give pip the credential in a file of your own " \
    "(PIP_CONFIG_FILE, NETRC), or write ${NAME} instead, in a requirement line or an address, and set that variable " \
    "when you install; a variable that a command needs is passed if EBSIF_INSTALL_ENV names it."

# Variables and options whose value is a credential (HF_TOKEN; not HF_TOKEN_PATH, TOKENIZERS_PARALLELISM, nor what
# counts the tokens of a text or is one of them).
NAME = r'(?:(?!(?:[\w-]*[_-])?(?:bos|cls|eos|mask|max|max[_-]new|min|num|pad|sep|unk)[_-]token\b)' \
    r'(?:[\w-]+[_-])?(?:token|secret|passphrase)|' \
    r'[\w-]*(?:password|passwd|api[_-]?key|access[_-]key|private_key))'

# In this order: user:password@ of an address, as pip reads them; a user that is as long as tokens are (others belong to
# a keyring); pip's proxy; parameters of an address; an option; a variable in a command.
CREDENTIALS = [re.compile(pattern.replace('NAME', NAME), re.MULTILINE) for pattern in (
    r'(?P<before>\b[A-Za-z][\w+.-]*://[^\s/?#"\':@]*:)(?P<secret>[^\s/?#"\']+)(?=@)',
    r'(?P<before>https?://)(?P<secret>[^\s/?#"\':@]{20,})(?=:?@)',
    r'(?P<before>--proxy[=\s"\',]+[^\s/@:]+:)(?P<secret>[^\s/@]+)(?=@)',
    r'(?P<before>[?&](?i:NAME|sig|x-amz-signature)=)(?P<secret>[^\s&#"\']+)',
    r'(?P<before>--(?i:NAME)[=\s"\',]+)(?P<secret>[^\s"\']+)',
    r'(?P<before>(?:^|[\s;&|])(?=[A-Z0-9_]+=)(?i:NAME)=["\']?)(?P<secret>[^\s=;&|"\']+)',
)]

# A variable stands for it, a shell fetches it, it's a switch, or an example.
NOT_SECRET = re.compile(r'(?:\$\(.*|`.*|\**|<.*>|\d{1,3}|true|false|yes|no|none|on|off|password)\Z', re.IGNORECASE)

# A number of tokens, or of one; those that are credentials are longer.
COUNT = re.compile(r'\d{1,9}\Z')

MASK = '****'


class Credentials:
    """Finds credentials in texts and variables."""

    @staticmethod
    def found(value, name=''):
        """
        Return the credentials in a value of an easyconfig, masked.

        Parameters
        ----------
        value : object
            A text; or a list or dictionary of values: all of them, names in a dictionary as names of variables.
        name : str, optional
            What the value is called.

        Returns
        -------
        list of str
            A text for each, with the credential masked.
        """
        if isinstance(value, dict):
            return [text for key in value for text in Credentials.found(value[key], str(key))]
        if isinstance(value, (list, tuple)):
            # words of one command line may belong together
            line = ' '.join(item for item in value if isinstance(item, str))
            return Credentials.found(line) + [
                text for item in value if not isinstance(item, str) for text in Credentials.found(item)]
        if not isinstance(value, str):
            return []
        if re.match(NAME + r'\Z', name, re.IGNORECASE) and is_secret(value, name):
            return ['%s=%s' % (name, MASK)]
        return [match.group('before').strip() + MASK for pattern in CREDENTIALS for match in pattern.finditer(value)
                if is_secret(*match.group('secret', 'before'))]

    @staticmethod
    def masked(value):
        """Return a value as text (str), its credentials masked."""
        text = str(value)
        for pattern in CREDENTIALS:
            text = pattern.sub(lambda match: match.group('before') + (
                MASK if is_secret(*match.group('secret', 'before')) else match.group('secret')), text)
        return text

    @staticmethod
    def variables(environment):
        """Return the names of the variables that hold credentials (list of str)."""
        return [name for name, value in environment.items() if Credentials.found({name: value})]


def is_secret(text, name):
    """Tell whether a text in the place of a credential is one; the name is what comes before it."""
    if re.search(r'token\W*\Z', name, re.IGNORECASE) and COUNT.match(text):
        return False
    return not NOT_SECRET.match(re.sub(r'\$\{?\w+\}?', '', text))
