"""`python -m surefoot`."""

from surefoot.cli import main

main()
