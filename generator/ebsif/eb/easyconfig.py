"""Read what is written in an easyconfig, with EasyBuild's parser, before EasyBuild adds defaults."""

import warnings
from pathlib import Path
from typing import Any

from ebsif.eb import framework
from ebsif.eb.framework import EasyBuildFailure


def written_values(path: Path) -> dict[str, Any]:
    """Return the parameters and variables of an easyconfig; raise EasyBuildFailure if EasyBuild can't read it."""
    from easybuild.framework.easyconfig.parser import EasyConfigParser
    from easybuild.tools.build_log import EasyBuildError

    if not path.is_file():
        raise EasyBuildFailure(f"there is no file {path}")
    framework.session()
    try:
        with warnings.catch_warnings():
            # many easyconfigs have backslashes that Python warns about
            warnings.simplefilter("ignore")
            return EasyConfigParser(str(path)).get_config_dict()
    except EasyBuildError as error:
        raise EasyBuildFailure(f"{path}: {str(error).strip(chr(39))}") from None
