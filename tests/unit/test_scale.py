"""The page on large scale: its figures follow from the record."""

import importlib.util
import json
import re

from support import CHECKOUT

spec = importlib.util.spec_from_file_location("scale", CHECKOUT / "tools/benchmarks/scale.py")
scale = importlib.util.module_from_spec(spec)
spec.loader.exec_module(scale)


def test_the_table_follows_from_the_record():
    """W-08: docs/scale.md has what is computed from docs/scale.json, which says where and when it was measured."""
    recorded, text = json.loads(scale.RECORDED.read_text()), scale.PAGE.read_text()
    runs = json.loads(scale.BENCHMARKS.read_text())["runs"]
    assert scale.page(text, recorded, runs) == text
    assert set(recorded) >= {"date", "commit", "machine"}
    more = scale.page(text, {**recorded, "operations": recorded["operations"] * 2}, runs)
    assert more != text and more.count("\n") == text.count("\n")


def test_what_nodes_ask_for():
    """Ranks look for files, nodes read data, and copies are read once for all nodes."""
    recorded = {"operations": 100, "bytes": 3e6, "image": 15e6, "user_software": 1.1e6}
    recorded |= {"image_size": 2e9, "user_software_size": 0}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in scale.table(recorded).splitlines()[2:]]
    assert rows[0] == ["1", "800, 3 MB", "16, 16 MB", "0.1 s, 0.013 s", "2, 2 GB"]
    assert rows[-1] == ["10,000", "8.0 million, 30 GB", "160,000, 161 GB", "17 min, 2.1 min", "2, 2 GB"]
    assert [re.sub(",", "", row[0]) for row in rows] == ["1", "10", "100", "1000", "10000"]
