"""Check that this machine has what installing a container module needs. Exit status 1 if something is missing."""

from ebsif import doctor

EXAMPLES = """\
  ebsif doctor            is everything here that installing a container module needs?
"""


def configure(parser):
    """Add no arguments."""


def run(_):
    """Print what was found on this machine; return 1 if something is missing, else 0."""
    findings = doctor.examine()
    width = max(len(finding.part) for finding in findings)
    for finding in findings:
        status = "note" if finding.note else "ok" if finding.ok else "MISSING"
        print(f"{status:8} {finding.part:{width}}  {finding.text}")
    return 0 if all(finding.ok for finding in findings) else 1
