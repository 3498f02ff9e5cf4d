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

export SINGULARITY_BIND=samples.squashfs:/data:image-src=/
srun --cpus-per-task=7 python train.py --data /data
