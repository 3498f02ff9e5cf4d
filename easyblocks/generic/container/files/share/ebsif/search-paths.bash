# Sourced before starting the runtime if only one of PREPEND_PATH's two names was changed since the module was loaded: use
# both values, first the one without the module's directories.
case :${APPTAINERENV_PREPEND_PATH:-}: in
    *:/runscripts:*) APPTAINERENV_PREPEND_PATH=${SINGULARITYENV_PREPEND_PATH:-}:$APPTAINERENV_PREPEND_PATH ;;
    *) APPTAINERENV_PREPEND_PATH=${APPTAINERENV_PREPEND_PATH:-}:${SINGULARITYENV_PREPEND_PATH:-} ;;
esac
# an empty element would mean the working directory
APPTAINERENV_PREPEND_PATH=${APPTAINERENV_PREPEND_PATH#:}
APPTAINERENV_PREPEND_PATH=${APPTAINERENV_PREPEND_PATH%:}
export APPTAINERENV_PREPEND_PATH SINGULARITYENV_PREPEND_PATH=$APPTAINERENV_PREPEND_PATH
