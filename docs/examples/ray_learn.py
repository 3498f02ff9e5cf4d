"""
Train a policy with Ray RLlib on all nodes of a job: ebsif job MODULE --nodes 2 --launcher ray -- ray_learn.py

Needs ray[rllib] and torch. The environments run on all CPUs of the job, the learner on the first node.
"""

import ray
from ray.rllib.algorithms.ppo import PPOConfig

ray.init()
runners = max(int(ray.cluster_resources()["CPU"]) - 1, 1)
algorithm = (
    PPOConfig()
    .environment("CartPole-v1")
    .env_runners(num_env_runners=runners)
    .learners(num_learners=0, num_gpus_per_learner=1 if ray.cluster_resources().get("GPU") else 0)
    .build_algo()
)
for step in range(10):
    found = algorithm.train()
    print("step", step, "return", found["env_runners"]["episode_return_mean"], flush=True)
algorithm.stop()
