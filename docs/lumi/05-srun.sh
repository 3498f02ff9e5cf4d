#!/bin/bash
#SBATCH --account=project_xxxxxxxxx
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-node=8
#SBATCH --mem=480G
#SBATCH --time=00:15:00

module load LUMI
module load lumi-multitorch/2.10-rocm-7.0-full-20260807_115122

# the cores next to the GPU of each rank
masks=0xfe000000000000,0xfe00000000000000,0xfe0000,0xfe000000,0xfe,0xfe00,0xfe00000000,0xfe0000000000

srun --cpu-bind=mask_cpu:$masks python train.py
