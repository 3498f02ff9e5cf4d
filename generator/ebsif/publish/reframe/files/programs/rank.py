"""Say which rank this is, and which GPU it uses: the only one that it sees, or that of its local rank."""

import os

visible = os.environ.get("ROCR_VISIBLE_DEVICES") or os.environ.get("CUDA_VISIBLE_DEVICES") or ""
device = visible if visible and "," not in visible else os.environ.get("LOCAL_RANK", "none")
print("rank %s of %s device %s" % (os.environ["RANK"], os.environ["WORLD_SIZE"], device), flush=True)
