##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The supported schedulers, one small class each.

Each class comes with a script that determines a process's rank, files/runscripts/schedulers/<kind>.bash, and a
directory of templates for batch scripts, generator/ebsif/jobs/templates/<kind>/. No other code names a scheduler. This
module imports nothing, so importing it costs almost nothing.
"""


class Scheduler:
    """
    A scheduler.

    Attributes
    ----------
    kind : str
        Its name in easyconfigs and site profiles.
    submit : tuple of str
        The command that submits a batch script read from standard input.
    job_variable : str
        An environment variable that is set in every job.
    variables : str
        Prefix of the environment variables that the scheduler sets in a job.
    """

    kind = None
    submit = None
    job_variable = None
    variables = None


class Slurm(Scheduler):
    """Slurm: sbatch, srun."""

    kind = 'slurm'
    submit = ('sbatch',)
    job_variable = 'SLURM_JOB_ID'
    variables = 'SLURM_'


class PBS(Scheduler):
    """PBS Professional and OpenPBS: qsub, mpiexec."""

    kind = 'pbs'
    submit = ('qsub',)
    job_variable = 'PBS_JOBID'
    variables = 'PBS_'


class Flux(Scheduler):
    """Flux: flux batch, flux run."""

    kind = 'flux'
    submit = ('flux', 'batch')
    job_variable = 'FLUX_JOB_ID'
    variables = 'FLUX_'


SCHEDULERS = {one.kind: one for one in Scheduler.__subclasses__()}
