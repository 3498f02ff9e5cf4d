"""The picture of a site's containers over time: where each one is, for timeline.svg.j2."""

import datetime
from dataclasses import dataclass
from typing import Optional

from ebsif.publish.pages.entry import Page

# Pixels: height of the row of a software, and of the row with the years.
ROW, YEARS = 40, 24
# Percent of the width that stay empty at both ends.
MARGIN = 2.0


@dataclass(frozen=True)
class Timeline:
    """The picture."""

    years: list[tuple[int, float]]
    rows: list[tuple[str, list[tuple[float, Page]]]]

    @property
    def height(self) -> int:
        """Height of the picture in pixels."""
        return YEARS + ROW * len(self.rows)

    @property
    def summary(self) -> str:
        """What the picture shows, for those who can't see it."""
        found = [page for _, some in self.rows for _, page in some]
        archived = sum(1 for page in found if page.container.archived)
        names = ", ".join(name for name, _ in self.rows)
        return (f"{len(found)} containers ({names}) from {min(one.date for one in found)} to "
                f"{max(one.date for one in found)}, {archived} of them archived")


def timeline(pages: list[Page]) -> Optional[Timeline]:
    """Return the timeline of the containers that have a date; None if all have the same, or none has one."""
    dated = [(day, page) for page in pages for day in [day_of(page.date)] if day]
    first, last = min((day for day, _ in dated), default=None), max((day for day, _ in dated), default=None)
    if first == last:
        return None

    def place(day):
        return round(MARGIN + (100 - 2 * MARGIN) * (day - first).days / (last - first).days, 2)

    rows: dict[str, list[tuple[float, Page]]] = {}
    for day, page in sorted(dated, key=lambda one: one[0]):
        rows.setdefault(page.container.name, []).append((place(day), page))
    years = [(year, place(datetime.date(year, 1, 1))) for year in range(first.year + 1, last.year + 1)]
    return Timeline(years, sorted(rows.items(), key=lambda row: row[1][-1][0], reverse=True))


def day_of(text):
    """Return a date such as 2025-08-27 (datetime.date); None for other texts."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None
