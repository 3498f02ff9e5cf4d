#!/bin/bash
#SBATCH --account=project_xxxxxxxxx
#SBATCH --partition=small-g
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=14
#SBATCH --gpus-per-node=2
#SBATCH --mem-per-gpu=60G
#SBATCH --time=00:30:00

module load LUMI
module load lumi-multitorch/2.10-rocm-7.0-full-20260807_115122

model=/scratch/$SLURM_JOB_ACCOUNT/models/my-model
folder=$(mktemp -d /tmp/vllm.XXXXXX)
trap 'rm -r "$folder"' EXIT

srun --cpus-per-task=14 singularity run "$SIF" vllm serve "$model" --uds "$folder/socket" \
    --tensor-parallel-size "$SLURM_GPUS_ON_NODE" &
server=$!
srun --overlap python ask.py "$folder/socket" "$model" 'What is a container?' &
client=$!
# the answer comes first, unless the server fails
ended=$server
while kill -0 "$server" 2>/dev/null; do
    kill -0 "$client" 2>/dev/null || { ended=$client; break; }
    sleep 1
done
wait "$ended"
status=$?
kill "$server" "$client" 2>/dev/null
wait
exit $status
