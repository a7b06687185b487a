#!/usr/bin/env bash
# scripts/venv.sh FOLDER REQUIREMENTS: a virtual environment holding these packages, made if it is missing.
set -euo pipefail

folder=$1 requirements=$2

newest_python() {
    local name
    for name in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "python: expected 3.11 or newer, got $(python3 --version 2>&1). Install it, or say PYTHON=/path/to/python3." >&2
    exit 1
}

# A folder that was copied or moved has an interpreter that does not start, or no pip: make it again.
if ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(newest_python)
    if ! "$python" -m venv --clear "$folder"; then
        if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
            apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv
            "$python" -m venv --clear "$folder"
        else
            echo "venv: expected Python's venv module. Run: sudo apt-get install python3-venv" >&2
            exit 1
        fi
    fi
fi
echo "Installing $requirements into $folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements"
