##
# This file is part of ebsif, container modules for EasyBuild.
#
# ebsif is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License
# as published by the Free Software Foundation v2.
##
"""
EasyBuild support for installing a container image as a module, implemented as an easyblock.
"""
import copy
import json
import os
import stat
from typing import Any, Dict, List, Optional, Tuple

from easybuild.easyblocks import generic
# --include-easyblocks links this file into a directory of EasyBuild's, the first one where easyblocks are looked for.
# The package 'container' is beside the file itself; it comes before an installed copy.
if os.path.dirname(os.path.realpath(__file__)) not in generic.__path__[:2]:
    generic.__path__.insert(1, os.path.dirname(os.path.realpath(__file__)))

from .container import build, values
from .container.aliases import other_name, update_modulerc
from .container.build import Build
from .container.record import lockfile
from .container.credentials import Credentials
from .container.framework import EasyBuildExit, exit_status, keep_out_of_report, refuse_old_easybuild
from .container.framework import only_shared_directories, plain_errors, set_search_paths, status_of
from .container.framework import with_build_option, with_parameters
from .container.host.image import read_libraries
from .container.host.libraries import FOLDER, HostLibraries
from .container.host.loader import Loader
from .container.host.programs import HostPrograms
from .container.image.identity import Image, OpenImage, Wanted, check_installed_image, check_note
from .container.image.fetch import fetch
from .container.image.source import ImageSource
from .container.interruption import ignored_signals, stopped_once
from .container.kernel import JUPYTER, install_kernel
from .container.masks import Masks
from .container.modulefile import MODULE_VARIABLES, beginning, help_sections, listed_packages, program
from .container.modulerc import aliases_of, lock
from .container.names import OutdatedError, check_names
from .container.parameters import WRAPPERS_ALL, check_easyconfig, check_one_source
from .container.permissions import copy_readable, open_to_readers
from .container.probe import ImageProbe, check_account, entry_point_environment
from .container.record.installation import InstallRecord, correct_binds, versions_used
from .container.reinstallation import Reinstallation
from .container.remedies import nevertheless
from .container.runtime import InstallContainer, Runtime, existing_binds, existing_sources, named_variables
from .container.runtime import runtime_variables
from .container.scripts import check_files, install_scripts, install_wrappers, wrapped_programs
from .container.settings import MODULE_CONF, constant, container_lines, path_lines, variable_lines, write_settings
from .container.record.lockfile import IMAGE_CENTRAL, LAYER
from .container.image.installed import InstalledImage, InstalledImages, recorded
from .container.spec import SET_ENVIRONMENT, ContainerSpec
from .container.system.packages import CHECK_VARIABLE, REPORT, SystemRequest
from .container.sitevalues import INIT_CONDA, INIT_CONDA_INJECTED
from .container.smoketest import SmokeTest, try_out
from .container.venv import BASE_VARIABLE, REUSE_VARIABLE
from .container.written import printable
from easybuild.framework.easyblock import INSTALL_STEP, MODULE_STEP, POSTPROC_STEP, EasyBlock, StopException
from easybuild.framework.easyconfig.default import CUSTOM
from easybuild.framework.easyconfig.easyconfig import EasyConfig, letter_dir_for
from easybuild.tools.build_log import EasyBuildError, dry_run_msg, print_warning
from easybuild.tools.config import FORCE_DOWNLOAD_ALL, FORCE_DOWNLOAD_SOURCES, build_option, source_paths
from easybuild.tools.filetools import copy_file, remove_file, write_file
from easybuild.tools.modules import Lmod
from easybuild.tools.utilities import trace_msg

# what the module adds to search paths, relative to the installation
SEARCH_PATHS = {'PATH': ['bin'], 'JUPYTER_PATH': [JUPYTER]}


def refuse_problems(name: str, problems: List[str]) -> None:
    """Raise EasyBuildError for problems with what a parameter names of the host, all at once, if there are any."""
    if problems:
        raise EasyBuildError("Easyconfig parameter '%s': nothing was copied, because\n%s", name,
                             '\n'.join('  - ' + problem for problem in problems))


class ContainerInstall(EasyBlock):
    """
    Support for installing one container image (a SIF file) as a module.

    The image in 'sources' is copied once, following links, and hashed meanwhile. Commands (bin/) and run scripts
    (runscripts/) are installed next to it, without any value written into them. share/ebsif/lock.json records the image
    and where it came from.

    container/parameters.py has the parameters, container/settings.py the settings that the module reads.
    """

    SPEC = ContainerSpec
    BUILD = Build

    @classmethod
    def extra_options(cls, extra_vars: Optional[Dict[str, List[Any]]] = None) -> Dict[str, List[Any]]:
        """Easyconfig parameters specific to container images."""
        options: Dict[str, List[Any]] = EasyBlock.extra_options(extra_vars)
        options.update((name, [one.default, one.text, CUSTOM]) for name, one in cls.SPEC.PARAMETERS.items())
        return options

    def __init__(self, ec: EasyConfig, logfile: Optional[str] = None) -> None:
        """Check the parameters, before the machine and the image are looked at."""
        refuse_old_easybuild()
        super().__init__(ec, logfile)
        with exit_status(EasyBuildExit.EASYCONFIG_ERROR):
            check_easyconfig(self.cfg)
            with self.cfg.allow_unresolved_templates():
                self.SPEC.check(self.SPEC.values_in(self.cfg), self.tcl_in_lmod)
        self.record = InstallRecord()
        # the specification, and the values from which it was made; looked at once in each step, as the image is
        self.known_spec: Optional[ContainerSpec] = None
        self.spec_values: Dict[str, object] = {}
        self.is_spec_current = False
        self.known_image: Optional[Image] = None
        # of the installation that is there, with --module-only and --sanity-check-only
        self.existing_record: Optional[InstallRecord] = None
        self.build = self.BUILD()
        self.reinstallation = Reinstallation(self.installdir, self.mod_filepath, self.SPEC.HAS_VENV, self.log)
        # without EasyBuild's CPATH, LIBRARY_PATH ...: nothing on the host compiles against a container or links with it
        set_search_paths(self.module_load_environment, **SEARCH_PATHS)

    @property
    def lock_path(self) -> str:
        """Path of the installation record; only a complete installation has one."""
        return os.path.join(self.installdir, lockfile.RECORD)

    @property
    def tcl_in_lmod(self) -> bool:
        """Whether the module file is in Tcl, and read by Lmod, where pushenv restores nothing."""
        return self.module_generator.SYNTAX == 'Tcl' and isinstance(self.modules_tool, Lmod)

    @property
    def spec(self) -> ContainerSpec:
        """What follows from the easyconfig in the current step; made again only if a value has changed."""
        if not self.is_spec_current or self.known_spec is None:
            given = self.SPEC.values_in(self.cfg)
            if self.known_spec is None or given != self.spec_values:
                self.known_spec, self.spec_values = self.SPEC(given), copy.deepcopy(given)
            self.is_spec_current = True
        return self.known_spec

    def update_config_template_run_step(self) -> None:
        """Resolve more templates before a step; hooks at its beginning may change the easyconfig, too."""
        super().update_config_template_run_step()
        self.is_spec_current, self.known_image = False, None

    def find_record(self) -> InstallRecord:
        """Return the record of this installation; with --module-only the record of the existing installation."""
        if self.record:
            return self.record
        if self.existing_record is None and os.path.exists(self.lock_path):
            self.existing_record = InstallRecord.from_file(self.lock_path)
        return self.existing_record or self.record

    def warn(self, text: Optional[str]) -> None:
        """Print a warning, unless the text is empty."""
        if text:
            print_warning(printable(text), log=self.log)

    # --- before and around the steps

    @stopped_once()
    def run_step(self, step: str, step_methods: object) -> object:
        """Run a step; files that postinstallcmds and hooks add are recorded as part of the installation."""
        try:
            with exit_status(status_of(step)), plain_errors():
                done: object = super().run_step(step, step_methods)
                if step == MODULE_STEP:
                    self.reinstallation.kept.forget()
        except BaseException as err:
            self.undo(step, err)
            raise
        if step == POSTPROC_STEP:
            self.record_files()
        return done

    def undo(self, step: str, error: BaseException) -> None:
        """
        Put the earlier installation back after a step that failed or was interrupted.

        What takes much space in the build directory is removed, unless eb has ended as asked for (--stop).
        """
        is_stopped = isinstance(error, StopException)
        is_failed = isinstance(error, Exception) and not is_stopped
        with ignored_signals():
            try:
                if step == POSTPROC_STEP and is_failed:
                    # what its commands have written doesn't count as users' changes
                    self.record_files()
            except (EasyBuildError, OSError) as err:
                self.log.warning("Files that postinstallcmds have written are set aside, not removed: %s", err)
            try:
                self.reinstallation.undo(is_stopped, is_failed and not isinstance(error, OutdatedError))
            finally:
                self.follow_installation()
            if self.builddir and build_option('cleanup_builddir') and not (is_stopped or self.dry_run):
                build.clean(self.builddir, step == INSTALL_STEP, self.is_check())

    def follow_installation(self) -> None:
        """Switch to the directory where the new installation is now, in templates as well."""
        if self.installdir != self.reinstallation.directory:
            self.installdir = self.reinstallation.directory
            self.update_config_template_run_step()

    def record_files(self) -> None:
        """Record the files that are there now: they are no changes by users."""
        if self.record.has('image') and not self.dry_run:
            self.record.write_installed(self.installdir)

    # --- steps, in EasyBuild's order

    def fetch_step(self, skip_checksums: bool = False) -> None:
        """Find the image, or fetch it, and find all other required files."""
        check_one_source(self.cfg['sources'])
        # searched after the directory of the easyconfig
        self.robot_path = list(self.robot_path or []) + self.spec.central_directories()
        instructions = self.cfg['download_instructions']
        if instructions and self.spec.image_dirs:
            # with instructions, EasyBuild doesn't list where it has searched
            instructions += "\nSearched: %s" % ', '.join(self.spec.central_directories())
        image = self.find_image()
        path = image.shared_path() or (self.fetch_image(self.spec.source) if self.spec.source else None)
        changed = {'download_instructions': instructions}
        if path:
            # EasyBuild takes it where it is
            changed.update(sources=[path], checksums=[image.wanted.checksum] if image.wanted.checksum else [])
        with with_parameters(self.cfg, **changed), only_shared_directories(self.installdir_mod, self.dry_run), \
                with_build_option('force_download', None if path else build_option('force_download')):
            # EasyBuild would read the whole image just to show its SHA256, which we compute while copying
            super().fetch_step(skip_checksums=True)
        for name in self.needed_files():
            # the easyconfig's download instructions are for the image
            self.obtain_file(name, download_instructions='')

    def needed_files(self) -> List[str]:
        """Names of required files besides the image."""
        return list(self.spec.definition_files)

    def fetch_image(self, source: ImageSource) -> Optional[str]:
        """Return the path of the image, after fetching it if it isn't found (R-01); a dry run doesn't fetch it."""
        name = self.spec.image_name
        again = build_option('force_download') in (FORCE_DOWNLOAD_ALL, FORCE_DOWNLOAD_SOURCES)
        found = None if again else self.obtain_file(name, no_download=True, warning_only=True)
        if self.dry_run:
            dry_run_msg("  * %s will be fetched from %s, if it is missing" % (name, source))
            return found
        if not found:
            folder = os.path.join(source_paths()[0], letter_dir_for(self.name), self.name)
            # a module that looks for its image in a central directory gets it there
            found = os.path.join(
                self.spec.central_directories()[0] if self.spec.image == IMAGE_CENTRAL else folder, name)
            wanted = self.find_image().wanted
            fetch(source, found, wanted.checksum, wanted.striping, again)
        check_note(found, source)
        return found

    def find_image(self) -> Image:
        """Return the image that the easyconfig describes in the current step; reads the record of the installation."""
        if self.known_image is None:
            spec = self.spec
            checksum = self.get_checksum_for(self.cfg['checksums'], filename=spec.image_name, index=0)
            wanted = Wanted(spec.image_name, spec.image, spec.source, spec.lustre_striping, checksum)
            self.known_image = Image(wanted, InstalledImages(self.reinstallation.place, source_paths()))
        return self.known_image

    def checksum_step(self) -> None:
        """Verify checksums as EasyBuild does, but don't read an image whose SHA256 is recorded (E-01)."""
        sources = self.src
        if sources and self.find_image().is_known(sources[0]['path']):
            self.src = []
        try:
            super().checksum_step()
        finally:
            self.src = sources

    def extract_step(self) -> None:
        """Open the image; there is nothing to unpack."""
        if not self.dry_run:
            self.build.image_file = OpenImage(self.src[0]['path'])

    # no type hints of the arguments: easybuild-easyblocks has a test that looks for this text
    def prepare_step(self, *args, **kwargs) -> None:
        """Check that the required programs are available, and set up the container."""
        super().prepare_step(*args, **kwargs)
        # now templates are resolved
        self.SPEC.check(self.SPEC.values_in(self.cfg), self.tcl_in_lmod)
        changed, base = os.environ.get(REUSE_VARIABLE), os.environ.get(BASE_VARIABLE)
        self.build.changed = InstalledImage(changed) if changed else None
        self.build.base = InstalledImage(base) if base else None
        self.build.masks = Masks(self.spec.masked_paths)
        self.build.system = SystemRequest(self.spec.system_packages)
        for text in self.spec.all_warnings:
            self.warn(text)
        keep_out_of_report(self.private_variables())
        if self.dry_run:
            return
        self.check_names()
        if build_option('module_only'):
            check_files(self.installdir, [SET_ENVIRONMENT])
            # the sanity check loads the module, which reads them, before the module is written
            self.reinstallation.kept.keep(os.path.join(self.installdir, MODULE_CONF))
            self.write_settings()
            return
        if not self.build.image_file:
            raise EasyBuildError("A container can't be installed in part, as with eb --skip: use `eb --rebuild` "
                                 "without it, or `eb --module-only --rebuild` to write the module only.")
        if self.spec.signature_keys:
            # before anything in it is run or copied
            keys = [self.obtain_file(name, download_instructions='') for name in self.spec.signature_keys]
            self.build.image_file.verify(keys, os.path.join(self.builddir, 'keyring'))
        self.reinstallation.check_renaming()
        binds, optional_binds = self.spec.current_binds()
        variables = dict(self.spec.container_environment, **self.spec.image_environment)
        self.build.container = InstallContainer(Runtime(), self.build.image_file.path, self.builddir, variables,
                                                self.spec.image_search_path, binds, optional_binds)

    def private_variables(self) -> List[str]:
        """Return variables that may have secrets: credentials, and what the caller names for installations."""
        return Credentials.find_variables(self.initial_environ) + named_variables(self.initial_environ)

    def check_names(self, is_done: bool = False) -> None:
        """Refuse names of other modules; `is_done`: whether the new installation is complete."""
        check_names(os.path.dirname(self.mod_filepath), self.short_mod_name, self.spec.aliases, is_done)

    def configure_step(self) -> None:
        """Start the image, and decide what depends on its contents: masks, host libraries."""
        libraries, programs = self.find_host_libraries(), self.find_host_programs()
        if self.dry_run:
            dry_run_msg("Starting the image %s once\n" % self.spec.image_name)
            if self.build.system:
                dry_run_msg("Adding packages of its system: %s\n" % ', '.join(self.build.system.names))
            return
        if self.build.system:
            self.add_system_packages()
        if self.build.masks:
            self.build.masks.apply(self.build.container)
        # fails for truncated files and files of another type
        self.build.probe = self.inspect_image()
        self.leave_out_constraints()
        # without a name, $WITH_CONDA of the image decides which one is activated by hand
        if self.spec.init == INIT_CONDA_INJECTED or (self.spec.init in INIT_CONDA and self.cfg['conda_env']):
            self.warn(self.build.probe.check_environment(self.spec.conda_prefix, bool(self.spec.venv)))
        if self.spec.has_python:
            self.build.probe.check(bool(self.spec.venv))
        wrong = self.build.probe.wrong_packages(self.spec.image_packages)
        if wrong:
            # like a failing test: eb --ignore-test-failure goes on
            self.report_test_failure(wrong)
        if libraries:
            self.add_host_libraries(libraries)
        if self.spec.entry_point:
            self.record.entry_point_environment = entry_point_environment(
                self.build.container, self.spec.entry_point, self.tcl_in_lmod)
        if programs:
            check_account(self.build.container, existing_binds(programs.files), *programs.slurm_user())
            self.record.host_programs = programs.record()

    def find_host_libraries(self) -> Optional[HostLibraries]:
        """Find the libraries of the host for the image's programs, and what they need; refuse what this host lacks."""
        if not self.spec.host_libraries:
            return None
        found = HostLibraries(**self.spec.host_libraries)
        refuse_problems('host_libraries', found.problems)
        for text in found.left_out:
            self.log.info("Without a plugin of the host: %s", text)
        return found

    def add_host_libraries(self, libraries: HostLibraries) -> None:
        """Let the container use libraries of the host that the image needs (K-01); refuse what can't work in it."""
        container = self.build.container
        decision = libraries.decide(read_libraries(container, libraries.needed_names()))
        refuse_problems('host_libraries', decision.problems)
        self.record.host_libraries = libraries.record(decision)
        container.optional_binds += self.record.host_libraries.binds
        if decision.bound:
            container.library_path = [FOLDER]
        for name, why in sorted(decision.bound.items()):
            trace_msg("library of the host: %s (%s)" % (libraries.libraries[name], why))

    def find_host_programs(self) -> Optional[HostPrograms]:
        """Find the programs of the host that work in the container, and what they need; refuse what can't work."""
        if not self.spec.host_programs:
            return None
        found = HostPrograms(Loader(), **self.spec.host_programs)
        refuse_problems('host_programs', found.problems)
        for text in found.left_out:
            self.log.info("Without a plugin of the host: %s", text)
        trace_msg("programs of the host: %s" % ', '.join(sorted(found.programs)))
        return found

    def inspect_image(self) -> ImageProbe:
        """Start the image, and return what is in it. Derived easyblocks override this."""
        return ImageProbe.inspect(self.build.container, self.spec.image_name)

    def leave_out_constraints(self) -> None:
        """Let pip and uv use the constraints of this installation alone, not those of the image, too (K-04)."""
        constraints = self.record.image_constraints = self.build.probe.constraints
        for name, files in sorted(constraints.items()):
            trace_msg("the image sets %s=%s, which is not used" % (name, files))
        self.build.container.variables.update(dict.fromkeys(constraints, ''))

    def add_system_packages(self) -> None:
        """Add packages of the image's system as a layer, which all that follows sees (V-04)."""
        target = os.path.join(self.builddir, LAYER)
        changed, system = self.build.changed, self.build.system
        layer = system.kept(changed, self.build.container.image, target) if changed else None
        if not layer:
            layer = system.add(self.build.container, target, only_check=self.only_checks_system())
        if layer.sha256:
            self.build.container.overlays.append(target)
        self.record.system_layer = layer
        # for `ebsif extend --check`
        write_file(os.path.join(self.builddir, REPORT), json.dumps(layer.content))

    def is_check(self) -> bool:
        """Return whether this only checks what would be installed (`ebsif extend --check`), and leaves nothing."""
        return CHECK_VARIABLE in os.environ

    def only_checks_system(self) -> bool:
        """Return whether a check needs no packages of the system, because nothing is built on them."""
        return self.is_check()

    def build_step(self) -> None:
        """Record what the installation consists of; there is nothing to build."""
        if self.dry_run:
            return
        self.record.module = {key: self.cfg[key] for key in ('name', 'version', 'versionsuffix')}
        # `ebsif remove` looks for it there; if it is the copy in the earlier installation, that is going to be replaced
        earlier = recorded(self.reinstallation.place)
        kept = earlier.easyconfig if self.reinstallation.contains(self.cfg.path) else None
        self.record.easyconfig = kept or os.path.realpath(self.cfg.path)
        self.record.made_from = self.find_made_from(earlier)
        self.record.masks = self.build.masks.record
        self.record.optional_binds = existing_sources(
            self.build.container.optional_binds + self.record.host_programs.binds)
        packages = self.build.probe.packages
        self.warn(packages.warning())
        self.record.image_packages = packages.pins
        vars(self.record).update(self.build.probe.inventory)
        self.record.versions = versions_used(self.build.container.runtime.version())

    def find_made_from(self, earlier: lockfile.Record) -> Optional[str]:
        """Return the module of which this one is a change; if it is installed again, what `earlier` was made from."""
        changed = self.build.changed
        if not changed or os.path.realpath(changed.root) == self.reinstallation.target:
            return earlier.made_from
        return changed.record.module_name

    def test_step(self) -> None:
        """Also start the programs of wrappers, and import what was asked for (F-10, F-12)."""
        super().test_step()
        if self.dry_run:
            return
        tried = self.try_out(wrapped_programs(self.wrappers(), self.spec.scripts))
        for text in tried.warnings():
            self.warn(text)
        wrong = tried.broken_wrappers() + self.failed_imports(tried)
        if wrong:
            # who has typed that knows it
            more = [] if build_option('ignore_test_failure') else [nevertheless()]
            raise EasyBuildError('%s', '\n'.join(wrong + more))

    def try_out(self, programs: List[str]) -> SmokeTest:
        """Start programs in the container. Derived easyblocks extend this."""
        return try_out(self.build.container.run, programs)

    def failed_imports(self, tried: SmokeTest) -> List[str]:
        """Return which packages can't be imported. Derived easyblocks extend this."""
        return []

    @open_to_readers()
    def make_installdir(self, dontcreate: Optional[bool] = None) -> None:
        """Make the installation directory, or one beside it if there is an earlier installation."""
        if not self.dry_run:
            self.reinstallation.begin()
            self.follow_installation()
        super().make_installdir(dontcreate)
        self.reinstallation.is_first = not (self.reinstallation.is_replacing or self.dry_run)

    def remove_module_file(self) -> None:
        """Keep the earlier module, which works until it's rewritten; remove one of another installation directory."""
        directory = self.module_generator.det_installdir(self.mod_filepath) if os.path.exists(self.mod_filepath) else ''
        if directory is None or os.path.realpath(directory) != os.path.realpath(self.installdir):
            super().remove_module_file()

    def install_step(self) -> None:
        """Copy the image and install the scripts."""
        install_scripts(self.spec.scripts, self.installdir)
        if self.dry_run:
            dry_run_msg("Copying the image to %s\n" % os.path.join(self.installdir, self.spec.image_name))
            return
        if self.spec.has_python:
            install_kernel(self.installdir, self.short_mod_name)
        # else the step 'prepare' stops
        assert self.build.image_file
        image = self.find_image()
        self.record.image = image.install(self.build.image_file, self.src[0]['path'], self.installdir)
        self.record.image.labels = self.build.probe.labels
        stale = image.stale_modules(self.record.image.sha256 or '')
        if stale:
            self.warn("The image is another one than before, and these modules use it without a copy of their own. "
                      "Install them again, too (eb --rebuild): %s" % ', '.join(stale))
        self.write_settings()
        self.install_additions()
        self.record.write_installed(self.installdir)
        # from here on hooks see the final paths
        self.activate_installation()

    def activate_installation(self) -> None:
        """Put the new installation in the place of the earlier one, unless it is there."""
        self.reinstallation.activate()
        self.follow_installation()

    def install_additions(self) -> None:
        """Install everything besides image and scripts. Derived easyblocks extend this."""
        if self.dry_run:
            return
        if self.record.system_layer.sha256:
            self.record.system_layer.image = self.record.image.sha256
            copy_readable(os.path.join(self.builddir, LAYER), os.path.join(self.installdir, LAYER))
        self.build.masks.install(self.builddir, self.installdir)
        for name in self.spec.definition_files:
            target = os.path.join(self.installdir, 'share', 'docker-defs', os.path.basename(name))
            copy_file(self.obtain_file(name), target)
        self.install_wrappers()

    def install_wrappers(self) -> None:
        """Install the wrappers: commands that run a program in the container."""
        self.record.wrappers = sorted(set(self.wrappers() + self.added_wrappers()))
        install_wrappers(self.record.wrappers, self.installdir)

    def added_wrappers(self) -> List[str]:
        """Return the names of wrappers besides those of the easyconfig. Derived easyblocks extend this."""
        return []

    def wrappers(self) -> List[str]:
        """Return the names of the wrappers that the easyconfig asks for."""
        if self.build.programs is None:
            self.build.programs = self.programs() if self.spec.wraps_all else []
        return sorted(set(self.spec.wrapped + self.build.programs))

    def programs(self) -> List[str]:
        """Programs that 'all' stands for. Derived easyblocks override this."""
        raise EasyBuildError("Easyconfig parameter 'wrappers': '%s' means the programs of a venv, but there is none. "
                             "List programs of the image by name.", WRAPPERS_ALL)

    def sanity_check_step(self, *args: Any, **kwargs: Any) -> None:
        """Check that the scripts exist, and that the loaded module can start the container."""
        # EasyBuild loads the module into its initial environment; the caller's binds and variables for the runtime
        # should not affect the check
        for key in runtime_variables(self.initial_environ) + list(MODULE_VARIABLES):
            self.initial_environ.pop(key, None)
        if not (self.record or build_option('ignore_checksums')):
            # --sanity-check-only, --module-only
            check_installed_image(InstalledImage(self.installdir, self.find_record()))
        record = self.find_record()
        if not self.dry_run:
            # EasyBuild shows each file that it looks for
            check_files(self.installdir, [*self.spec.scripts, *(os.path.join('bin', one) for one in record.wrappers)])
        kwargs.setdefault('custom_paths', {
            'files': [lockfile.RECORD, MODULE_CONF] + [LAYER] * bool(record.system_layer.sha256),
            'dirs': ['bin', 'runscripts']})
        kwargs.setdefault('custom_commands', [self.spec.check_command])
        super().sanity_check_step(*args, **kwargs)

    def sanity_check_rpath(self, *_: object, **__: object) -> List[str]:
        """Skip the RPATH check: binaries in an image are linked for that image."""
        self.log.info("Skipping the RPATH sanity check for a container image")
        return []

    def make_module_description(self) -> str:
        """
        Add sections on this container to the help text, and the packages that were checked to the description.

        Of the description, `whatis` has the first sentence, which lists of modules show, and the rest in a line of its
        own, which `module keyword` searches. Before them is what has to come before EasyBuild's `conflict`.
        """
        usage = [self.cfg['usage']] if self.cfg['usage'] else []
        text = '\n\n'.join(usage + help_sections(self.spec.parts, self.find_record(), self.short_mod_name))
        description = self.cfg['description']
        if self.spec.image_packages:
            description += "\nIn the image: %s." % ', '.join(
                '%s %s' % package for package in self.spec.image_packages.items())
        sentence, more = values.first_sentence(description)
        listed = ', '.join(sorted('%s-%s' % one for one in self.make_extension_list()))
        lines = [("Description", sentence), ("Details", more), ("Homepage", self.cfg['homepage']),
                 ("URL", self.cfg['homepage']), ("Extensions", listed)]
        whatis = self.cfg['whatis'] or ['%s: %s' % line for line in lines if line[1]]
        # what EasyBuild has resolved, and texts of the image, have no templates
        with with_parameters(self.cfg, usage=values.without_templates(text),
                             description=values.without_templates(description),
                             whatis=list(map(values.without_templates, whatis))):
            return beginning(self.module_generator.SYNTAX) + super().make_module_description()

    def make_extension_list(self, *args: Any, **kwargs: Any) -> List[Tuple[str, str]]:
        """Add the packages in the container, as (name, version), so that `module spider PACKAGE` finds the module."""
        # EasyBuild has an argument from 5.4 on
        return super().make_extension_list(*args, **kwargs) + listed_packages(
            self.spec.listed_packages, self.find_record())

    def make_module_dep(self, unload_info: Optional[Dict[str, List[str]]] = None) -> str:
        """Add the modules that conflict with this one to the dependencies."""
        # EasyBuild has no method for a conflict with another module
        statement = 'conflict("%s")\n' if self.module_generator.SYNTAX == 'Lua' else 'conflict %s\n'
        return super().make_module_dep(unload_info) + ''.join(statement % name for name in self.spec.conflicts)

    def make_module_extra(self, altroot: Optional[str] = None, altversion: Optional[str] = None) -> str:
        """Add the program that sets up the container, and the list of packages."""
        # the program sets constants, of which EasyBuild's statements would expand some
        others = {name: value for name, value in self.cfg.get_ref('modextravars').items()
                  if constant(value, not self.tcl_in_lmod) is None}
        with with_parameters(self.cfg, modextravars=others):
            extra = super().make_module_extra(altroot, altversion)
        # in EBEXTSLIST<NAME>; with 'extension_name' or 'exts_list', EasyBuild writes them itself
        listed = self.make_extension_list() and not self.cfg.get('extension_name')
        packages = '\n' + self.make_module_extra_extensions() if listed else ''
        return extra + program(self.module_generator.SYNTAX) + packages

    @open_to_readers()
    def make_module_step(self, fake: bool = False) -> str:
        """Write the module, and what lets it be loaded under more versions."""
        if fake or self.dry_run:
            return super().make_module_step(fake=fake)
        folder = os.path.dirname(self.mod_filepath)
        os.makedirs(folder, exist_ok=True)
        # of two modules that are ready at the same time, the second one sees the first one
        with lock(folder):
            self.check_names(is_done=True)
            # the earlier installation is going to be removed, with its easyconfig
            earlier_aliases = aliases_of(self.reinstallation.earlier)
            modules_path = self.replace_module()
            self.write_settings()
            if build_option('module_only'):
                # it may be the earlier module
                self.reinstallation.kept.keep(other_name(self.mod_filepath))
            update_modulerc(self.module_generator, self.mod_filepath, self.short_mod_name, self.spec.aliases,
                            self.installdir, earlier_aliases)
            if build_option('module_only'):
                self.warn(correct_binds(self.lock_path, self.spec.current_binds()[1]))
        return modules_path

    def replace_module(self) -> str:
        """Write the module; then the new installation is complete, and the earlier one is removed."""
        self.activate_installation()
        self.reinstallation.kept.keep(self.mod_filepath, in_place=True)
        if os.path.islink(self.mod_filepath):
            # to the name of a hidden module, which is going to be removed: EasyBuild would write through the link
            remove_file(self.mod_filepath)
        # nothing is built against a container, and EasyBuild's module for that has what eb changed in the environment
        # of the caller, passwords for registries included
        with with_build_option('generate_devel_module', False):
            modules_path: str = super().make_module_step()
        if not build_option('module_only'):
            self.reinstallation.complete(self.build.adopt, bool(self.cfg['cleanupoldinstall']))
        # eb copies it after the last step, perhaps from the earlier installation
        easyconfig = os.path.realpath(self.cfg.path)
        if self.reinstallation.contains(easyconfig) and not os.path.exists(easyconfig):
            write_file(easyconfig, self.cfg.rawtxt)
        return modules_path

    def write_settings(self) -> None:
        """Write the settings of the module, unless there is no installation (--module-only)."""
        if not os.path.isdir(self.installdir):
            return
        lines = list(container_lines(self.spec.parts, self.find_record(), self.short_mod_name))
        lines += variable_lines(self.cfg['modextravars'], not self.tcl_in_lmod)
        lines += [('conflict', name) for name in self.spec.conflicts]
        lines += [('needs', dep['short_mod_name']) for dep in self.cfg.dependencies(runtime_only=True)]
        lines += path_lines(self.installdir, SEARCH_PATHS, self.cfg['modextrapaths'])
        self.warn(write_settings(self.installdir, lines))

    def permissions_step(self) -> None:
        """Set permissions as EasyBuild does, but don't extend access to a restricted image."""
        image = os.path.join(self.installdir, self.spec.image_name)
        has_copy = os.path.isfile(image)
        before = os.stat(image).st_mode if has_copy else 0
        super().permissions_step()
        if has_copy:
            group = stat.S_IRWXG if self.group or build_option('group_writable_installdir') else 0
            closed = (stat.S_IRWXG | stat.S_IRWXO) & ~(before | group)
            os.chmod(image, stat.S_IMODE(os.stat(image).st_mode) & ~closed)
