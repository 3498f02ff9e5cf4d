##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
The supported schedulers, one small class each.

Each class comes with a script that determines a process's rank, files/runscripts/schedulers/<kind>.bash, and a
directory of templates for batch scripts, generator/ebsif/jobs/templates/<kind>/.

Doesn't import EasyBuild, because importing it takes longer than running `ebsif list`.
"""
import re
from typing import Dict, List, NamedTuple, Set, Tuple


class Job(NamedTuple):
    """A job, as its scheduler describes it."""

    # as the job itself writes it (job.bash), however a person does
    id: str
    state: str
    owner: str
    # the first one; empty if it has none yet
    node: str


class Scheduler:
    """A scheduler: its commands, its variables, and what it lacks."""

    # its name in easyconfigs and site profiles
    kind: str
    # the command that submits a batch script read from standard input
    submit: Tuple[str, ...]
    # prefix of the environment variables that it sets in a job
    variables: str
    # the beginning of the lines with its options in a batch script
    directive: str
    # the program that starts the ranks of a job
    starter: str
    # a regular expression for what `submit` prints, at some sites below their own lines; its group is the ID of the job
    submitted = r'(\S+)\s*\Z'
    # options of `submit` for a job that starts after the success of another, whose ID replaces %s
    after: Tuple[str, ...]
    # a command that fails if the scheduler doesn't answer
    answers: Tuple[str, ...]
    # the command that ends jobs or removes them from the queue, for their IDs
    cancel: Tuple[str, ...]
    # the command that prints the state of a job, for its ID, and a regular expression for the state of one that waits
    state: Tuple[str, ...]
    queued: str
    # a regular expression for what that prints of a job, with a group for each field of Job; the state of one that runs
    described: str
    running: str
    # the command that runs another one on the first node of a job, %j, or %n, so that both its ends are pipes
    inside: Tuple[str, ...]
    # a regular expression for an option that keeps other jobs away from the nodes of a job
    whole_nodes: str
    # how many seconds before the time limit it can signal a batch script at most; 0: not at all
    signals_within = 0
    # how many seconds before the time asked for it may signal a batch script
    signals_early = 0
    # options of `ebsif job` that it can't fulfil, and what to do instead
    lacks: Dict[str, str] = {}
    # pairs of variables that identify a job and a step of it; the first pair counts whose first variable is set
    steps: Tuple[Tuple[str, str], ...]

    @classmethod
    def jobs(cls, text: str) -> List[Job]:
        """Return the jobs that `state` has printed: several if the ID is that of a job array."""
        return [Job(**{name: value or '' for name, value in found.groupdict().items()})
                for found in re.finditer(cls.described, text, re.DOTALL)]

    @classmethod
    def commands(cls) -> Set[str]:
        """Return its commands that are known here."""
        return {cls.submit[0], cls.starter, cls.answers[0], cls.cancel[0], cls.state[0]}


class Slurm(Scheduler):
    """Slurm: sbatch, srun."""

    kind = 'slurm'
    submit = ('sbatch',)
    variables = 'SLURM_'
    directive = '#SBATCH'
    starter = 'srun'
    submitted = r'Submitted batch job (\d+)'
    after = ('--dependency=afterok:%s', '--kill-on-invalid-dep=yes')
    answers = ('sinfo',)
    cancel = ('scancel',)
    state = ('squeue', '--noheader', '--format=%T %u %B %A', '--jobs')
    queued = 'PENDING|CONFIGURING'
    # a member of an array, 12_3, has an ID of its own in SLURM_JOB_ID
    described = r'(?P<state>\S+) (?P<owner>\S+) (?P<node>\S+) (?P<id>\S+)'
    running = 'RUNNING'
    inside = ('srun', '--jobid=%j', '--overlap', '--nodes=1', '--ntasks=1', '--relative=0', '--quiet')
    whole_nodes = r'--exclusive(=(exclusive|user))?(\s|$)'
    signals_within = 65535
    # sbatch(1), --signal: its events have this resolution
    signals_early = 60
    steps = (('SLURM_JOB_ID', 'SLURM_STEP_ID'),)


class PBS(Scheduler):
    """PBS Professional and OpenPBS: qsub, mpiexec."""

    kind = 'pbs'
    submit = ('qsub',)
    variables = 'PBS_'
    directive = '#PBS'
    starter = 'mpiexec'
    after = ('-W', 'depend=afterok:%s')
    answers = ('qstat', '-B')
    cancel = ('qdel',)
    state = ('qstat', '-f')
    queued = 'job_state = [QHW]'
    # without the name of the server, which people leave out
    described = (r'Job Id: (?P<id>[^.\s]+).*Job_Owner = (?P<owner>[^@\s]+).*job_state = (?P<state>\w)'
                 r'(.*exec_host = (?P<node>[^/\s]+))?')
    running = 'R'
    # it starts nothing else in a job, but lets its owner in
    inside = ('ssh', '-T', '-o', 'BatchMode=yes', '%n')
    whole_nodes = r'^-l *place=(\w+:)?excl(host)?(:|\s|$)'
    lacks = {
        # qrerun needs the privileges of an operator
        'requeue': 'with PBS, only operators can put a running job back into the queue: use --segments',
    }
    steps = (('PBS_JOBID', 'PALS_APID'),)


class Flux(Scheduler):
    """Flux: flux batch, flux run."""

    kind = 'flux'
    submit = ('flux', 'batch')
    variables = 'FLUX_'
    directive = '#flux:'
    starter = 'flux'
    after = ('--dependency=afterok:%s',)
    answers = ('flux', 'jobs')
    cancel = ('flux', 'cancel')
    state = ('flux', 'jobs', '--no-header', '--format={id.f58plain} {state} {username} {nodelist}')
    queued = 'DEPEND|PRIORITY|SCHED'
    described = r'(?P<id>\S+) (?P<state>\S+) (?P<owner>\S+)( (?P<node>\S+))?'
    running = 'RUN'
    inside = ('flux', 'proxy', '%j', 'flux', 'exec', '--rank=0')
    whole_nodes = r'(^|\s)(--exclusive|-x)(\s|$)'
    lacks = {
        'requeue': 'Flux puts no job back into the queue: use --segments',
        'memory': "Flux doesn't share out memory: for all of a node, add --scheduler=--exclusive",
    }
    # each `flux run` in a batch script is a job of its own; the script itself has no FLUX_JOB_ID
    steps = (('FLUX_ENCLOSING_ID', 'FLUX_JOB_ID'), ('FLUX_JOB_ID', 'FLUX_JOB_ID'))


SCHEDULERS = {one.kind: one for one in Scheduler.__subclasses__()}
