#!/bin/bash
#SBATCH --ntasks=1
#SBATCH --mem=4G
#SBATCH --time=02:00:00

module load PyTorch/2.13.0-cpu-python-3.11-singularity-20261121-tracking-20261123 || exit

# a directory that only you can open
sockets=$(mktemp -d /tmp/sockets.XXXXXX)
trap 'rm -r "$sockets"' EXIT
echo "on your computer: ssh -N -L 6006:$sockets/tensorboard -L 5000:$sockets/mlflow -J LOGIN $SLURMD_NODENAME"

singularity exec "$SIF" python tensorboard_socket.py "$sockets/tensorboard" --logdir runs &
# without seven processes for evaluations, which nobody needs to look at runs
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false
singularity exec "$SIF" mlflow server --workers 1 --backend-store-uri sqlite:///mlflow.db \
    --uvicorn-opts "--uds $sockets/mlflow" &
# the job ends when one of the servers ends
wait -n
