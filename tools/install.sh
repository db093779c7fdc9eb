#!/usr/bin/env bash
# Make the virtual environment: install.sh PYTHON VENV. Run again it only brings it up to date.
# With a third word, a file of constraints for pip, it has what the tests need and no tools.
set -euo pipefail
python=${1:-} venv=$2 constraints=${3:-}
if [ -z "$python" ]; then
    echo "install: Python 3.11 or newer is needed; set PYTHON=/path/to/python3" >&2
    exit 1
fi
if [ ! -x "$venv/bin/python" ]; then
    if ! "$python" -m venv "$venv" 2>/dev/null; then
        # Debian keeps the part that `venv` needs in a package of its own.
        rm -rf "$venv"
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            (apt-get update && apt-get install -y --no-install-recommends python3-venv) >/dev/null
        fi
        "$python" -m venv "$venv"
    fi
fi
"$venv/bin/python" -m pip install --quiet --upgrade "pip>=25.1"
if [ -n "$constraints" ]; then
    "$venv/bin/python" -m pip install --quiet -c "$constraints" -e '.[demo,hdfs,s3]' --group test
else
    "$venv/bin/python" -m pip install --quiet -e '.[demo]' --group dev
fi
echo "install: $("$venv/bin/python" -V) in $venv, $("$venv/bin/firnline" --version)"
