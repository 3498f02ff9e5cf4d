#!/bin/bash
#SBATCH --account=project_xxxxxxxxx
#SBATCH --partition=small-g
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-node=1
#SBATCH --mem-per-gpu=60G
#SBATCH --time=00:15:00

module load LUMI
module load lumi-multitorch/2.10-rocm-7.0-full-20260807_115122-optuna

srun python versions.py torch optuna
