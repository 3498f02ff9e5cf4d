"""
Prepare data with Ray Data on all nodes of a job: ebsif job MODULE --nodes 2 --launcher ray -- ray_data.py

Needs ray[data].
"""

import socket

import ray


def prepare(batch):
    """Add a column to a batch; your own preparation goes here."""
    batch["square"] = batch["id"] ** 2
    batch["node"] = [socket.gethostname()] * len(batch["id"])
    return batch


rows = ray.data.range(100_000, override_num_blocks=8).map_batches(prepare)
rows.write_parquet("prepared")
print("sum:", rows.sum("square"), "nodes:", sorted(rows.unique("node")))
