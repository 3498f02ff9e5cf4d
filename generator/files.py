"""Writing files that others may be reading."""

import uuid


def replace(path, text):
    """
    Write a text as a new file that takes the place of an earlier one: whoever reads sees one of the two, whole.

    Parameters
    ----------
    path : Path
        The file; its directory is made if it is not there.
    text : str
        What is in it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # a name of its own, also beside another machine's on a shared file system
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    try:
        with new.open("x", encoding="utf-8") as file:
            file.write(text)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
