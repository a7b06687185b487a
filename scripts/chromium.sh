#!/usr/bin/env bash
# Debian's chromium for the tests that drive the page; where it cannot be installed, say what is left out.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then exit 0; fi
done
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "Installing chromium for the browser tests"
    if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        chromium fonts-liberation >/dev/null; then
        exit 0
    fi
fi
echo "No chromium: the browser tests will be skipped. Install it with: sudo apt-get install chromium" >&2
