##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
Which one is the newest, of records, installed modules, and extensions of a name: the only place that decides it.

A release comes before its candidates, a newer version before an older one, and then the later date counts. Extensions
of a name are compared by their own dates. Doesn't import EasyBuild, because importing it takes longer than running
`ebsif list`.
"""
import re
from typing import List, Tuple

# The date of an extension, in a regular expression of Python and of bash: any word, perhaps with numbers (20261122.2).
# It excludes leftovers of installations beside it, which end in .replaced, for example.
DATE = '[A-Za-z0-9_]+([.][0-9]+)*'
# the end of the version of an extension
NAMED = re.compile(r'-(?P<name>[A-Za-z0-9_.]+)-(?P<date>%s)\Z' % DATE)

# The date in the version suffix of a container, perhaps with the time of the day.
BUILT = re.compile(r'(?<![0-9])20[0-9]{6}(?:_?[0-9]{6})?(?![0-9])')
# What stands for a version, but has no order: the date of a build, or a commit.
UNORDERED = re.compile(r'20[0-9]{6}|(?=[0-9]*[a-f])[0-9a-f]{7,40}')

# Parts of a version, in the order in which they follow what versions have in common: 2.7.dev1, 2.7rc1, 2.7 itself,
# 2.7.post1, 2.7.1.
DEVELOPMENT, CANDIDATE, END, LATER, NUMBER = range(5)
CANDIDATES = {'a': 1, 'alpha': 1, 'b': 2, 'beta': 2, 'c': 3, 'rc': 3, 'pre': 3, 'preview': 3}

# A file finds the newest of some directories that end in dates by this program in bash: `sort` compares dates as
# `date_key` does. What is found has to have a file of this name: it is a complete installation.
FIND_NEWEST = """\
ebsif_start={start}-
ebsif_newest=$(for ebsif_one in "$ebsif_start"*; do
    ebsif_date=${{ebsif_one#"$ebsif_start"}}
    ebsif_word=${{ebsif_date%%.*}}
    [[ ! "$ebsif_date" =~ ^{date}$ || ! -e "$ebsif_one/{record}" ]] ||
        printf '%s 0%s %s\\n' "$ebsif_word" "${{ebsif_date#"$ebsif_word"}}" "$ebsif_date"
done | LC_ALL=C sort -k1,1V -k2,2V | tail -n 1)
ebsif_newest=${{ebsif_newest:+$ebsif_start${{ebsif_newest##* }}}}
"""


def natural(text: str) -> List[Tuple]:
    """Return the sort key of a text in which numbers are compared as numbers, and signs come after letters."""
    parts = re.split('([0-9]+)', text)
    return [(int(part),) if number % 2 else tuple((not one.isalpha(), one) for one in part)
            for number, part in enumerate(parts)]


def date_key(date: str) -> Tuple:
    """Return the sort key of the date of an extension: 20261122 comes before 20261122.2, and that before .10."""
    word, _, numbers = date.partition('.')
    return natural(word), [int(number) for number in numbers.split('.') if number.isdigit()], date


def extension_key(version: str, date: str) -> Tuple:
    """Return the sort key of an extension of a name by its version, which ends in its date: its base counts first."""
    base = NAMED.sub('', version) if NAMED.search(version) else version[:-len(date) - 1]
    return module_key(base), natural(base), date_key(date)


def day_key(date: str) -> str:
    """Return the sort key of the date of a record, in whatever form it is written: 2025-08-27, 20250827_134408."""
    return re.sub('[^0-9]', '', date)


def version_key(version: str) -> Tuple:
    """Return the sort key of a version; what has no order, such as a commit, comes before all versions."""
    text = version.lower()
    text = text[1:] if text.startswith('v') else text
    if not text[:1].isdigit() or UNORDERED.fullmatch(text):
        return False, [], []
    public, _, local = text.partition('+')
    parts: List[Tuple[int, int, str]] = []
    for part in re.findall('[0-9]+|[a-z]+', public) + ['']:
        if part.isdigit():
            parts.append((NUMBER, int(part), ''))
            continue
        # 2.7 and 2.7.0 are the same version, and have the same candidates
        while len(parts) > 1 and parts[-1] == (NUMBER, 0, ''):
            parts.pop()
        kind = DEVELOPMENT if part == 'dev' else CANDIDATE if part in CANDIDATES else LATER if part else END
        parts.append((kind, CANDIDATES.get(part, 0), part if kind == LATER else ''))
    return True, parts, natural(local)


def module_key(version: str, date: str = '') -> Tuple:
    """
    Return the sort key of a container, or an installed module, by its version with suffix, and the date of a record.

    Without that, a date in the version counts. Versions without an order, and without a date, are compared as texts:
    R2023b comes before R2024a.
    """
    dates = BUILT.findall(version)
    number = version.partition('-')[0]
    return version_key(number), day_key(date or (dates[-1] if dates else '')), natural(number)


def find_newest(start: str, record: str) -> str:
    """
    Return commands for bash that set `ebsif_newest` to the newest directory `start`-DATE, empty if there is none.

    `start` is quoted for the shell. The directories have to have the file `record`.
    """
    return FIND_NEWEST.format(start=start, date=DATE, record=record)
