#!/bin/bash
#SBATCH --account=project_xxxxxxxxx
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=56
#SBATCH --gpus-per-node=8
#SBATCH --mem=480G
#SBATCH --time=00:15:00

module load LUMI
module load lumi-multitorch/2.10-rocm-7.0-full-20260807_115122

srun --cpus-per-task=56 python -m torch.distributed.run --nproc-per-node="$SLURM_GPUS_ON_NODE" train.py
