"""`python -m firnline`: the same as the `firnline` command. WORLD."""

from firnline.cli.main import main

if __name__ == "__main__":
    main()
