##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
EasyBuild support for installing a container image as a module, implemented as an easyblock.
"""
import os
import re
import time
from easybuild.easyblocks import generic
# --include-easyblocks links this file elsewhere: the modules that it needs are next to its real path, and come before
# an installed copy.
if os.path.dirname(os.path.realpath(__file__)) not in list(generic.__path__)[:2]:
    generic.__path__ = [os.path.dirname(__file__), os.path.dirname(os.path.realpath(__file__))] + list(generic.__path__)

from easybuild.easyblocks.generic.container import lockfile, sif
from easybuild.easyblocks.generic.container.imageaccess import kept_access
from easybuild.easyblocks.generic.container.imageinstall import ImageInstall, check_installed_image
from easybuild.easyblocks.generic.container.imagenote import check_content, check_note, origin_of
from easybuild.easyblocks.generic.container.checks import check_easyconfig, check_image_dirs
from easybuild.easyblocks.generic.container.framework import EasyBuildExit, exit_status
from easybuild.easyblocks.generic.container.hostlibraries import is_library_wanted
from easybuild.easyblocks.generic.container.kernel import JUPYTER, install_kernel
from easybuild.easyblocks.generic.container.masks import MASKS
from easybuild.easyblocks.generic.container.modulefile import MODULE_VARIABLES, SYNTAXES, ModuleFile
from easybuild.easyblocks.generic.container.modulesyntax import is_literal
from easybuild.easyblocks.generic.container.modulerc import add_symbolic_versions, update_earlier_spelling
from easybuild.easyblocks.generic.container.parameters import INIT_NONE, WRAPPERS_ALL
from easybuild.easyblocks.generic.container.probe import ImageProbe, check_entry_point, entry_point_environment
from easybuild.easyblocks.generic.container.record import InstallRecord, correct_binds
from easybuild.easyblocks.generic.container.reinstall import Reinstall, write_whole
from easybuild.easyblocks.generic.container.reports import keep_easyblocks, keep_out_of_report
from easybuild.easyblocks.generic.container.runtime import Container, Runtime, existing_sources, named_variables
from easybuild.easyblocks.generic.container.runtime import runtime_variables
from easybuild.easyblocks.generic.container.sbom import BILL_OF_MATERIALS, bill_of_materials
from easybuild.easyblocks.generic.container.scriptinstall import install_scripts
from easybuild.easyblocks.generic.container.scripts import ebsif_version
from easybuild.easyblocks.generic.container.credentials import Credentials
from easybuild.easyblocks.generic.container.sharedimage import IMAGE_LINK
from easybuild.easyblocks.generic.container.sharedimage import InstalledImage, InstalledImages
from easybuild.easyblocks.generic.container.shellmodule import ShellGenerator, write_environment
from easybuild.easyblocks.generic.container.signature import IGNORED, REQUIRED, VERIFIED
from easybuild.easyblocks.generic.container.spec import ContainerSpec
from easybuild.easyblocks.generic.container.texts import value_problem
from easybuild.easyblocks.generic.container.usersoftware import UserSoftware
from easybuild.easyblocks.generic.container.verification import Verification, check_required
from easybuild.easyblocks.generic.container.wantedimage import WantedImage
from easybuild.easyblocks.generic.container.wrappers import Wrappers
from easybuild.framework.easyblock import POSTPROC_STEP, EasyBlock
from easybuild.framework.easyconfig.default import CUSTOM
from easybuild.tools.build_log import EasyBuildError, dry_run_msg, print_warning
from easybuild.tools.config import build_option, source_paths
from easybuild.tools.filetools import copy_file, write_file
from easybuild.tools.modules import Lmod
from easybuild.tools.utilities import trace_msg
from easybuild.tools.version import VERSION as EASYBUILD_VERSION


class ContainerInstall(Reinstall, EasyBlock):
    """
    Support for installing one container image (a SIF file) as a module.

    The image in 'sources' is copied once, following links, and hashed meanwhile. Commands (bin/) and run scripts
    (runscripts/) are installed next to it, without any value written into them. share/ebsif/lock.json records the image
    and where it came from.

    container/spec.py holds the parameters, container/modulefile.py the statements of the module.
    """

    SPEC = ContainerSpec
    MODULE_FILE = ModuleFile

    @classmethod
    def extra_options(cls, extra_vars=None):
        """Easyconfig parameters specific to container images."""
        extra_vars = EasyBlock.extra_options(extra_vars)
        extra_vars.update((name, [one.default, one.text, CUSTOM]) for name, one in cls.SPEC.PARAMETERS.items())
        return extra_vars

    def __init__(self, *args, **kwargs):
        """Check the parameters, before looking at the machine and the image."""
        super().__init__(*args, **kwargs)
        with exit_status(EasyBuildExit.EASYCONFIG_ERROR):
            self.check_parameters()
        self.masks = None
        self.record = InstallRecord()
        self.container = None
        self.source_image = None
        self.probe = None
        self.signature = None
        self.link_mode = InstalledImage(self.installdir).link_mode
        # nothing outside the container should compile against or link with an installation
        for variable in list(self.module_load_environment.as_dict):
            if variable != 'PATH':
                self.module_load_environment.remove(variable)
        self.module_load_environment.PATH = ['bin']
        # only if it exists: images without Python have no kernel
        self.module_load_environment.JUPYTER_PATH = [JUPYTER]

    def check_parameters(self):
        """Validate the parameters. Values may still contain unresolved templates."""
        check_easyconfig(self.cfg)
        with self.cfg.allow_unresolved_templates():
            spec = self.spec
        spec.check(tcl_in_lmod=self.tcl_in_lmod)

    @property
    def tcl_in_lmod(self):
        """Whether the module file is in Tcl, and read by Lmod."""
        return self.module_generator.SYNTAX == 'Tcl' and isinstance(self.modules_tool, Lmod)

    @property
    def spec(self):
        """The current easyconfig (ContainerSpec); before each step, templates are resolved and hooks may change it."""
        return self.SPEC.from_easyconfig(self.cfg)

    @property
    def known_record(self):
        """The record of this installation; with --module-only that of the existing one (InstallRecord)."""
        if not self.record and os.path.exists(self.lock_path):
            return InstallRecord.from_file(self.lock_path)
        return self.record

    @property
    def easyconfig_path(self):
        """Path of the easyconfig (str); if the module is installed again from its own copy, that of the earlier one."""
        path = os.path.realpath(self.cfg.path)
        return InstalledImage(self.final_installdir).record.get(lockfile.EASYCONFIG, path) if self.is_own_copy else path

    @property
    def image_path(self):
        """Path of the installation's own copy of the image."""
        return os.path.join(self.installdir, self.spec.image_name)

    def warn(self, text):
        """Warn of a likely mistake, if there is one."""
        if text:
            print_warning(text, log=self.log)

    # --- steps, in EasyBuild's order

    def fetch_step(self, *args, **kwargs):
        """Find the image and all other required files."""
        if len(self.cfg['sources']) != 1:
            raise EasyBuildError("Easyconfig parameter 'sources' must name exactly one image (a SIF file), found %d",
                                 len(self.cfg['sources']), exit_code=EasyBuildExit.EASYCONFIG_ERROR)
        # EasyBuild would read the whole image just to show its SHA256, which we compute while copying
        kwargs['skip_checksums'] = True
        super().fetch_step(*args, **kwargs)
        for name in self.needed_files():
            # the easyconfig's download instructions are for the image
            self.obtain_file(name, download_instructions='')

    def needed_files(self):
        """Names of required files besides the image (list of str)."""
        return list(self.spec.definition_files)

    def obtain_file(self, filename, *args, **kwargs):
        """Find a file as EasyBuild does, the image also in 'image_dirs' (L-01), or that of another module (E-01)."""
        if filename != self.spec.image_name:
            return super().obtain_file(filename, *args, **kwargs)
        found = self.wanted_image.shared_path
        if found:
            return found
        if self.spec.source:
            kwargs.update(no_download=True, warning_only=True)
        before = self.robot_path
        # searched after the directory of the easyconfig, and named if the image is in none of them
        self.robot_path = list(before or []) + self.spec.central_directories
        try:
            found = super().obtain_file(filename, *args, **kwargs)
        finally:
            self.robot_path = before
        return self.fetch_image(found, kwargs.get('force_download')) if self.spec.source else found

    def fetch_image(self, found, again=False):
        """Return the path of an image that was found, or fetch it (R-01); ``again``: replace one that is there."""
        source = self.spec.source
        if self.dry_run:
            if found == self.spec.image_name:
                dry_run_msg("  * %s will be fetched from %s" % (found, source))
            return found
        if not found:
            if self.spec.signature == REQUIRED:
                # not after a download or a conversion of many gigabytes
                self.verification.check_source(source)
            found = self.wanted_image.fetch(source_paths()[0], again)
        self.warn(check_note(found, source))
        return found

    @property
    def installed_images(self):
        """Images of other installations that this one may share (InstalledImages)."""
        return InstalledImages(self.final_installdir, source_paths())

    @property
    def wanted_image(self):
        """The image that the easyconfig describes (WantedImage)."""
        checksum = self.get_checksum_for(self.cfg['checksums'], filename=self.spec.image_name, index=0)
        return WantedImage(self.spec, checksum, self.installed_images)

    def checksum_step(self):
        """Verify checksums as EasyBuild does, but don't read an image whose SHA256 is recorded (E-01)."""
        sources = self.src
        if sources and self.wanted_image.is_known(sources[0]['path']):
            self.src = []
        try:
            super().checksum_step()
        finally:
            self.src = sources

    def extract_step(self):
        """Resolve the path of the image; there is nothing to unpack."""
        for source in self.src:
            source['finalpath'] = self.builddir
            # resolve links once: a central link may change during the installation
            self.source_image = os.path.realpath(source['path'])

    def prepare_step(self, *args, **kwargs):
        """Check that the required programs are available, and set up the container."""
        super().prepare_step(*args, **kwargs)
        # now their templates are resolved
        check_image_dirs(self.spec)
        self.masks = self.spec.masks
        for text in self.spec.warnings:
            self.warn(text)
        environment = self.initial_environ
        keep_out_of_report(Credentials.find_variables(environment) + named_variables(environment))
        if self.dry_run:
            return
        keep_easyblocks(self.logfile, os.path.basename(__file__))
        if build_option('module_only'):
            return
        self.verify_signature()
        binds, optional_binds = self.spec.current_binds
        self.container = Container(
            Runtime(), self.source_image, self.builddir, search_path=self.spec.image_search_path,
            variables=dict(self.spec.container_environment, **self.spec.image_environment),
            binds=binds, optional_binds=optional_binds)
        if self.masks:
            self.masks.check_machine(self.installdir, self.builddir)

    @property
    def verification(self):
        """What verifies signatures with the keys in the easyconfig (Verification)."""
        keys = [self.obtain_file(name, download_instructions='') for name in self.spec.signature_keys]
        return Verification(Runtime(), keys, os.path.join(self.builddir or '', 'keyring'))

    def verify_signature(self):
        """Verify the signature of the image before anything in it is run or copied (R-04)."""
        if self.spec.signature == IGNORED:
            return
        self.signature = self.verification.of_image(self.source_image, self.src[0]['path'], self.spec.source)
        if self.signature.state == VERIFIED:
            trace_msg("the image %s" % self.signature)
        elif self.spec.signature == REQUIRED:
            check_required(self.signature, self.source_image)
        else:
            self.warn("the image %s %s" % (self.spec.image_name, self.signature))

    def configure_step(self):
        """Start the image, and decide what depends on its contents: masks, host libraries."""
        if self.dry_run:
            dry_run_msg("Starting the image %s once\n" % self.spec.image_name)
            return
        if self.masks:
            self.masks.apply(self.container)
        # fails for truncated files and files of another type
        self.start_image()
        if self.spec.entry_point:
            check_entry_point(self.container, self.spec.entry_point)
            variables = entry_point_environment(self.container, self.spec.entry_point)
            self.record[lockfile.ENTRY_POINT_ENVIRONMENT] = {
                name: value for name, value in variables.items() if not value_problem(value, self.tcl_in_lmod)}
        self.record[lockfile.LIBRARY_BINDS] = [bind for bind, kind in sorted(self.spec.library_binds.items())
                                               if is_library_wanted(self.container, bind, kind)]
        self.container.optional_binds += self.record[lockfile.LIBRARY_BINDS]

    def start_image(self):
        """Inspect the image, and stop if it lacks something that is required."""
        self.probe = ImageProbe.of(self.container, self.spec.image_name)
        if self.spec.init != INIT_NONE:
            self.probe.check(self.HAS_USER_SOFTWARE)
        self.check_image_packages()

    def check_image_packages(self):
        """
        Check that the image has the packages of the easyconfig parameter 'image_packages' (L-12).

        Like a failing test, a difference stops the installation unless eb runs with --ignore-test-failure.
        """
        wrong = self.probe.packages.other_than(self.spec.image_packages)
        if wrong:
            self.report_test_failure(
                "Easyconfig parameter 'image_packages': the image %s has %s. Is it the right image? Use the one that "
                "the easyconfig describes, or correct the versions in the easyconfig. To install it nevertheless, use "
                "'eb --ignore-test-failure'." % (self.spec.image_name, ', '.join(wrong)))

    def build_step(self):
        """Record what the installation consists of; there is nothing to build."""
        if self.dry_run:
            return
        self.record[lockfile.MODULE] = {key: self.cfg[key] for key in ('name', 'version', 'versionsuffix')}
        # `ebsif remove` looks for it there
        self.record[lockfile.EASYCONFIG] = self.easyconfig_path
        self.record[lockfile.MASKS] = self.masks.record
        self.record[lockfile.OPTIONAL_BINDS] = existing_sources(self.container.optional_binds)
        self.record[lockfile.IMAGE_PACKAGES] = self.probe.packages.pins
        self.record.update(self.probe.inventory)
        self.record[lockfile.VERSIONS] = {
            'easybuild': str(EASYBUILD_VERSION),
            'ebsif': ebsif_version(),
            'runtime': self.container.runtime.version,
        }

    def install_step(self):
        """Copy the image and install the scripts."""
        install_scripts(self.spec, self.installdir)
        if self.dry_run:
            dry_run_msg("Copying the image to %s\n" % self.image_path)
            return
        if self.spec.init != INIT_NONE:
            install_kernel(self.installdir, self.short_mod_name)
        image = ImageInstall(self.spec.image, self.source_image, self.image_path, self.installed_images,
                             self.spec.lustre_striping)
        installed = image.install(self.src[0]['checksum'], self.signature.sha256 if self.signature else None)
        if self.spec.source and not build_option('ignore_checksums'):
            check_content(self.src[0]['path'], installed['sha256'])
        installed.update(origin_of(self.src[0]['path'], installed['sha256']), labels=self.probe.labels,
                         signers=sif.signers(self.source_image))
        if self.signature:
            installed['signature'] = self.signature.record
        self.record[lockfile.IMAGE] = installed
        self.install_additions()
        self.write_record()
        path = os.path.join(os.path.dirname(self.lock_path), BILL_OF_MATERIALS)
        write_file(path, bill_of_materials(self.record, time.time()))
        self.write_environment()
        # from here on hooks see the final paths
        self.activate_installation()

    def install_additions(self):
        """Install everything besides image and scripts. Derived easyblocks extend this."""
        if self.dry_run:
            return
        if self.masks:
            copy_file(os.path.join(self.builddir, os.path.basename(MASKS)), os.path.join(self.installdir, MASKS))
        for name in self.spec.definition_files:
            target = os.path.join(self.installdir, 'share', 'docker-defs', os.path.basename(name))
            copy_file(self.obtain_file(name), target)
        self.install_wrappers()

    def install_wrappers(self):
        """Install the wrappers: commands that run a program in the container."""
        wanted = self.spec.wrappers
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        if WRAPPERS_ALL in names:
            names = [name for name in names if name != WRAPPERS_ALL] + self.programs()
        wrappers = Wrappers(names, self.spec.wrappers_load)
        wrappers.check(self.spec.scripts, lambda command: self.run_installed(command, hidden=True, split_stderr=True))
        self.record[lockfile.WRAPPERS] = wrappers.install(self.installdir)

    def programs(self):
        """Programs that 'all' stands for (list of str). Derived easyblocks override this."""
        raise EasyBuildError("Easyconfig parameter 'wrappers': '%s' means the programs of a venv, but there is none. "
                             "List programs of the image by name.", WRAPPERS_ALL)

    def run_installed(self, command, **kwargs):
        """Run a command in the container as the module will. Derived easyblocks override this."""
        return self.container.run(command, **kwargs)

    def write_record(self):
        """Write the record, with fingerprints that later show whether somebody changed the installation."""
        files = UserSoftware(self.installdir)
        self.record[lockfile.USER_SOFTWARE], self.record[lockfile.SCRIPTS] = files.fingerprints, files.scripts
        self.record[lockfile.USER_SOFTWARE_FILE] = files.file_status
        self.record.write(self.lock_path)

    def run_step(self, step, *args, **kwargs):
        """Run a step; files that postinstallcmds and hooks add are recorded as part of the installation."""
        try:
            return super().run_step(step, *args, **kwargs)
        finally:
            # even if one failed: its files are no user changes to preserve when the installation is removed
            if step == POSTPROC_STEP and lockfile.IMAGE in self.record and not self.dry_run:
                self.write_record()

    def sanity_check_step(self, *args, **kwargs):
        """Check that the scripts exist, and that the loaded module can start the container."""
        # EasyBuild loads the module into its initial environment; the caller's binds and variables for the runtime
        # should not affect the check
        for key in runtime_variables(self.initial_environ) + list(MODULE_VARIABLES):
            self.initial_environ.pop(key, None)
        if not (self.record or build_option('ignore_checksums')):
            # --sanity-check-only, --module-only
            check_installed_image(InstalledImage(self.installdir))
        kwargs.setdefault('custom_paths', {'files': list(self.spec.scripts) + [lockfile.RECORD] + [
            os.path.join('bin', name) for name in self.known_record.get(lockfile.WRAPPERS, [])], 'dirs': ['bin']})
        kwargs.setdefault('custom_commands', [self.sanity_check_command])
        super().sanity_check_step(*args, **kwargs)

    @property
    def sanity_check_command(self):
        """A command that tests module, image and scripts together."""
        if self.spec.init == INIT_NONE:
            return 'start-shell -c true'
        return 'start-shell /runscripts/conda-python-simple --version'

    def sanity_check_rpath(self, *args, **kwargs):
        """Skip the RPATH check: binaries in an image are linked for that image."""
        self.log.info("Skipping the RPATH sanity check for a container image")
        return []

    @property
    def module_file(self):
        """The container-specific part of the module file (ModuleFile)."""
        syntax = SYNTAXES[self.module_generator.SYNTAX](self.installdir)
        return self.MODULE_FILE(self.spec, self.known_record, syntax, self.short_mod_name)

    def make_module_description(self):
        """Add sections on this container to the help text."""
        usage = self.cfg['usage']
        # EasyBuild resolves templates in it, which are already resolved in these texts
        texts = ([usage] if usage else []) + self.module_file.help_sections
        self.cfg['usage'] = re.sub(r'%(?=%*\()', '%%', '\n\n'.join(texts))
        try:
            return super().make_module_description()
        finally:
            self.cfg['usage'] = usage

    def make_extension_list(self, *args, **kwargs):
        """Add the packages in the container, as (name, version), so that `module spider PACKAGE` finds the module."""
        return super().make_extension_list(*args, **kwargs) + self.module_file.listed_packages

    def make_module_dep(self, *args, **kwargs):
        """Add the modules that conflict with this one to the dependencies."""
        return super().make_module_dep(*args, **kwargs) + self.module_file.conflicts

    def make_module_extra(self, *args, **kwargs):
        """Add the container-specific statements, variables that are set literally, and the list of packages."""
        variables = self.cfg.get_ref('modextravars')
        literal = [name for name, value in variables.items() if is_literal(value)]
        module_file = self.module_file
        # In Tcl, EasyBuild's statement would expand them; in either syntax, it is wrong for texts with both quotes.
        # Ours restores an earlier value on unload, also without a modules tool.
        text = ''.join(module_file.module.setenv(name, self.cfg['modextravars'][name]['value']) for name in literal)
        self.cfg['modextravars'] = {name: value for name, value in variables.items() if name not in literal}
        try:
            extra = super().make_module_extra(*args, **kwargs)
        finally:
            self.cfg['modextravars'] = variables
        text = module_file.module.unless_searched(module_file.text + text)
        return extra + '\n' + text + module_file.changed_packages + self.module_packages()

    def module_packages(self):
        """Statements that list the packages in EBEXTSLIST<NAME>, which EasyBuild only writes for 'exts_list'."""
        # with 'extension_name' EasyBuild writes them itself, from make_extension_list
        listed = self.make_extension_list() and not self.cfg.get('extension_name')
        return '\n' + self.make_module_extra_extensions() if listed else ''

    def make_module_step(self, fake=False):
        """Write the module, and what lets it be loaded under more versions."""
        modules_path = super().make_module_step(fake=fake)
        if not (fake or self.dry_run):
            names = (self.module_generator, self.mod_filepath, self.short_mod_name)
            self.write_environment()
            if build_option('module_only'):
                self.warn(correct_binds(self.lock_path, self.spec.current_binds[1]))
            update_earlier_spelling(*names, self.installdir, write_whole)
            add_symbolic_versions(*names, self.spec.aliases, write_whole)
        return modules_path

    def write_environment(self):
        """Write the statements of the module for programs that start without a modules tool (J-01)."""
        # with --module-only, it may be missing
        if os.path.isdir(self.installdir):
            self.warn(write_environment(self.installdir, self.shell_statements(), write_whole))

    def shell_statements(self):
        """Return all statements of the module in bash (str)."""
        before, generator = self.module_generator, ShellGenerator(self)
        self.module_generator = generator
        try:
            with generator.start_module_creation():
                return ''.join([self.make_module_deppaths(), self.make_module_dep(), self.make_module_req(),
                                self.make_module_extra()])
        finally:
            self.module_generator = before

    def permissions_step(self, *args, **kwargs):
        """Set permissions as EasyBuild does, but don't extend access to a restricted image, nor change a hard link."""
        is_link = self.record.get(lockfile.IMAGE, {}).get('kind') == IMAGE_LINK
        group_may_read = bool(self.group or build_option('group_writable_installdir'))
        with kept_access(self.image_path, is_link, group_may_read):
            super().permissions_step(*args, **kwargs)

    def run_all_steps(self, *args, **kwargs):
        """Run the steps; take back what EasyBuild has done to a hard link before them (--read-only-installdir)."""
        installed = InstalledImage(self.installdir)
        if installed.link_mode != self.link_mode:
            os.chmod(installed.own_path, self.link_mode)
        return super().run_all_steps(*args, **kwargs)

    def empty_installation(self, problem):
        """Don't remove the only copy of the image together with an earlier installation."""
        if os.path.dirname(self.source_image) == os.path.realpath(self.installdir):
            raise EasyBuildError("The earlier installation can't be swapped with a new one (%s), and emptying it would "
                                 "remove the image %s, which the new one needs: copy it to another directory, and name "
                                 "that with --sourcepath.", problem, self.source_image)
        super().empty_installation(problem)
