##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The schedulers that container modules know: one small class for each.

To a class belong a file that says which rank a process is, files/runscripts/schedulers/<kind>.bash, and a folder of
templates of batch scripts, generator/ebsif/jobs/templates/<kind>/. Nothing else names a scheduler. This module imports
nothing, so that reading it costs nothing.
"""


class Scheduler:
    """
    A scheduler.

    Attributes
    ----------
    kind : str
        Its name in easyconfigs and site profiles.
    submit : tuple of str
        The command that submits a batch script, which it reads from its standard input.
    job_variable : str
        The environment variable that is set in a job.
    variables : str
        Beginning of the environment variables by which a job knows itself.
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
