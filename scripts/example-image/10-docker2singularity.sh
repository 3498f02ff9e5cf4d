#!/bin/sh
export WITH_CONDA='source /opt/miniconda3/bin/activate pytorch'
