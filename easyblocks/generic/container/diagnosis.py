##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
What went wrong when pip failed in a container, in words that say what to do.
"""
import re


class Diagnosis:
    """
    The findings in the output of a failed pip: a table of what pip prints and what it means.

    The texts are those of pip 22 to 26, and of the tools it runs.
    """

    # (what is looked for, what it means); \1 ... are the groups of what was found
    TABLE = [
        (r"(?:No space left on device|ENOSPC)",
         "the disk is full, in the build directory or where pip keeps its files. Free space, or choose another build "
         "directory (eb --buildpath)"),
        (r"Disk quota exceeded",
         "your disk quota is used up. Remove files, or choose another build directory (eb --buildpath)"),
        (r"Invalid(?:Requirement|Marker): (.*)",
         "a requirement can't be read: \\1"),
        (r"(?s)(?:Getting requirements to build|Preparing metadata|Building wheel|Installing build dependencies)"
         r".*?ModuleNotFoundError: No module named '([\w.]+)'",
         "it needs '\\1' while it is built. If the image has it, or an earlier stage installs it, put the package into "
         "a later stage of its own with 'no_build_isolation': True; otherwise add it to an earlier stage"),
        (r"Cannot find command 'git'",
         "git is missing in the image, so requirements from a git repository can't be installed. Use a release from an "
         "index, or a wheel built elsewhere"),
        (r"(?:Temporary failure in name resolution|Name or service not known|Network is unreachable|"
         r"Failed to establish a new connection|No route to host|Could not fetch URL \S+: connection error)",
         "there is no network here, or not to that host. Install on a node with network, or set PIP_INDEX_URL to a "
         "mirror that can be reached"),
        (r"Could not find a suitable TLS CA certificate bundle, invalid path: (\S+)",
         "\\1 is not in the container: REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE or PIP_CERT names a file of this machine. "
         "Name its directory in EBSIF_INSTALL_BIND, or unset the variable"),
        (r"(?:CERTIFICATE_VERIFY_FAILED|certificate verify failed)",
         "the certificate of the index is not trusted in the image. If this machine has its own certificates, name "
         "their directory in EBSIF_INSTALL_BIND and the file in PIP_CERT"),
        (r"\b(40[13])(?= Client Error| while getting| Forbidden| Unauthorized)",
         "the index refuses (HTTP \\1). Check its address and whether it wants a password"),
        (r"ERROR: (\S+) is not a supported wheel on this platform",
         "the wheel \\1 is for another Python or another kind of machine than the image"),
        (r"No matching distribution found for (\S+\+(?:rocm|cu|cpu)[\w.]*)",
         "no index or folder that was searched has \\1, a build for one kind of GPU software. Check that it is that of "
         "the image, and name the index that has such builds in the stage ('extra_index_url')"),
        (r"No matching distribution found for (\S+)",
         "no index or folder that was searched has a version of \\1 that fits. Check the spelling, the version, and "
         "whether there is one for the Python of the image"),
    ]

    def __init__(self, output, log=''):
        """
        Look at the output of pip.

        Parameters
        ----------
        output : str
            Standard output and standard error of a pip that failed.
        log : str
            What pip wrote to its log (option --log): only there it says why an index gave no packages.
        """
        self.output = output
        self.log = log

    @property
    def package(self):
        """The package pip was busy with, as far as its output tells; an empty text if it does not."""
        before = self.output.split('error: subprocess-exited-with-error')[0]
        found = re.findall(r'^\s*(?:Collecting|Processing|Building wheels? for) (?:collected packages: )?(\S+)', before,
                           re.MULTILINE)
        return found[-1].rstrip(',') if found else ''

    @property
    def library(self):
        """What a library of GPU software that is missing means; an empty text if none is."""
        found = re.search(r'\b(lib(?:cu\w+|nv\w+|nccl|amdhip64|hip\w*|hsa\w*|roc\w+|rccl|MIOpen)\.so(?:\.\d+)*): '
                          r'cannot open shared object file', self.output)
        if not found:
            return ''
        kind = 'CUDA' if re.match('lib(cu|nv|nccl)', found.group(1)) else 'ROCm'
        return ("A package is built for a %s that the image does not have (it wants %s): take the build for the GPU "
                "software of the image. " % (kind, found.group(1)))

    @property
    def conflict(self):
        """What pip could not satisfy together with the protected packages; an empty text if that was not it."""
        protected = re.findall(r'The user requested \(constraint\) (\S+)', self.output)
        if not protected:
            return ''
        asked = re.findall(r'^\s+(\S+ \S+ depends on .*|The user requested (?!\(constraint\)).*)$', self.output,
                           re.MULTILINE)
        name = re.split('[=<>!~;]', protected[0])[0]
        return ("%s of the image can't be replaced, but: %s. Ask for a version that works with it; or, if another one "
                "is really meant, allow it for this stage with 'allow_replace': ['%s']" % (
                    ', '.join(sorted(set(protected))), '; '.join(nub_texts(asked)) or 'see the output above', name))

    @property
    def text(self):
        """What went wrong and what to do; an empty text if the output is like nothing in the table."""
        if self.conflict:
            return self.conflict
        text = self.output + (self.log if 'No matching distribution found' in self.output else '')
        for pattern, meaning in self.TABLE:
            found = re.search(pattern, text)
            if found:
                return found.expand(meaning)
        return ''


def nub_texts(texts):
    """Return texts without repetitions and surrounding blanks, in order."""
    found = []
    for text in texts:
        if text.strip() not in found:
            found.append(text.strip())
    return found
