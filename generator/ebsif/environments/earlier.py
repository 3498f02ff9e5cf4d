"""The extensions of a module that are there, and the dates that a new one can have after them."""

import itertools
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Optional

from easybuild.easyblocks.generic.container import modulerc, newest

from ebsif.installed.places import Installation

TODAY = "%Y%m%d"


@dataclass(frozen=True)
class Earlier:
    """
    The installed extensions of a module, as they were at one moment, for a new one with a name.

    `by_date` are those of its name, the newest one last, and `times` when they were installed, by directory, also those
    that others have. `others` are the newest ones of all other names.
    """

    by_date: Mapping[str, Installation]
    times: Mapping[str, int]
    others: Mapping[str, Installation]

    @classmethod
    def of(cls, module: str, name: str, there: Iterable[Installation]) -> "Earlier":
        """Return the extensions of a module among those that are there."""
        found = [(*one.extension, one) for one in there if one.base == module and one.extension]
        found.sort(key=lambda item: newest.date_key(item[1]))
        same = [(date, one) for other, date, one in found if other == name]
        return cls(
            by_date=dict(same),
            times={os.path.realpath(one.root): modulerc.time_of(str(one.root)) for _, one in same},
            others={other: one for other, _, one in found if other != name},
        )

    @property
    def variables(self) -> dict[str, str]:
        """The variables with which eb stops if there are other extensions of the name than these."""
        return {modulerc.KNOWN_VARIABLE: json.dumps(self.times)}

    @property
    def last(self) -> Optional[Installation]:
        """The newest one of the name."""
        return next(reversed(list(self.by_date.values())), None)

    @property
    def date_now(self) -> str:
        """
        The date of a new extension: today, or that of the last of the earlier ones if it is later.

        Else a machine with another clock or in another time zone would make one that its name doesn't mean.
        """
        return max([time.strftime(TODAY), *(date.partition(".")[0] for date in self.by_date)], key=newest.date_key)

    @property
    def of_today(self) -> list[str]:
        """The dates that are this date, perhaps with a number."""
        return [date for date in self.by_date if re.fullmatch(rf"{re.escape(self.date_now)}(\.\d+)?", date)]

    def free_dates(self) -> Iterator[str]:
        """Yield this date with the numbers after those that are taken; the first has none."""
        last = int(self.of_today[-1].partition(".")[2] or 1) if self.of_today else 0
        for number in itertools.count(last + 1):
            yield self.date_now if number == 1 else f"{self.date_now}.{number}"
