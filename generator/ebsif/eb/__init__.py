"""EasyBuild: a session, its runs, their output."""
