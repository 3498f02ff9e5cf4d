"""
Try learning rates with Ray Tune on all nodes of a job: ebsif job MODULE --nodes 2 --launcher ray -- ray_tune.py

Needs ray[tune]. Each trial has as many CPUs and GPUs as `with_resources` says.
"""

from pathlib import Path

from ray import tune

RATES = [0.001, 0.01, 0.1, 0.3]


def train(config):
    """Minimize a square; your training goes here, and reports what counts."""
    value = 10.0
    for _ in range(10):
        value -= config["rate"] * 2 * value
        tune.report({"loss": value**2})


tuner = tune.Tuner(
    tune.with_resources(train, {"cpu": 1, "gpu": 0}),
    param_space={"rate": tune.grid_search(RATES)},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    # all nodes write there, so it has to be a directory that they share
    run_config=tune.RunConfig(storage_path=str(Path("ray-results").absolute()), verbose=0),
)
print("best rate:", tuner.fit().get_best_result().config["rate"])
