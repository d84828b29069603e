"""`python -m ninfer_convert` is `ninfer-convert`."""

from ninfer_convert.cli.main import main

if __name__ == "__main__":
    main()
